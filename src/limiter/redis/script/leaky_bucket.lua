-- The leaky bucket as a queue. The state is the next free slot, an instant like a TAT.

local LeakyBucket = { fresh = Instant.fresh, parse = Instant.parse, text = Instant.text }

local function ahead(next)
    return sub(next.u, next.n, now, 0)
end

function LeakyBucket.verdict(q, next, cost)
    if cost == 0 then return FITS, 0, 0 end
    if cost > q.capacity then return NEVER end
    local bu, bn = mul(cost - 1, q.tu, q.tn)
    local u, n = add(bu, bn, ahead(next))
    local longest_u, longest_n = sub(q.full_u, q.full_n, q.tu, q.tn)
    if not less(longest_u, longest_n, u, n) then return FITS, u, n end
    return AFTER, sub(u, n, longest_u, longest_n)
end

function LeakyBucket.available(q, next)
    local u, n = ahead(next)
    return max(q.capacity - div_ceil(u, n, q.tu, q.tn), 0)
end

function LeakyBucket.reset_after(_, next)
    return ahead(next)
end

function LeakyBucket.charge(q, next, cost)
    local bu, bn = mul(min(cost, q.capacity), q.tu, q.tn)
    local u, n = add(bu, bn, ahead(next))
    if less(q.full_u, q.full_n, u, n) then u, n = q.full_u, q.full_n end
    next.u, next.n = now + u, n
end

function LeakyBucket.refund(q, next, cost)
    if not less(now, 0, next.u, next.n) then return end
    local u, n = sub(next.u, next.n, mul(min(cost, q.capacity), q.tu, q.tn))
    if less(u, n, now, 0) then u, n = now, 0 end
    next.u, next.n = u, n
end

-- A slot beyond the end of the queue comes from a clock that stepped back or from a longer queue.
function LeakyBucket.heal(q, next)
    local u, n = ahead(next)
    if less(q.full_u, q.full_n, u, n) then next.u, next.n = now + q.full_u, q.full_n end
end
