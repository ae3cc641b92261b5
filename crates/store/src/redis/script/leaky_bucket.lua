-- The leaky bucket as a queue. The state is the next free slot, an instant like a TAT.
--
-- Twins in bucket.rs: ahead = used, available, charge, refund, clamp.

local LeakyBucket = {
    new = '0', fresh = Instant.fresh, parse = Instant.parse, text = Instant.text,
    available = 0, shown = 0, lasts = 0, charge = 0, refund = 0, clamp = 0,
}

local function ahead(next)
    return sub(next.u, next.n, now, 0)
end

-- A part of a slot that is not free yet is none.
function LeakyBucket.available(q, next)
    local u, n = sub(q.full_u, q.full_n, ahead(next))
    return div(u, n, q.tu, q.tn)
end

function LeakyBucket.shown(_, next)
    return pack('>i8i8', ahead(next))
end

-- The time until the queue is empty.
function LeakyBucket.lasts(_, next)
    return ahead(next)
end

-- A longer queue that shares the slots may have booked more of them.
function LeakyBucket.charge(q, next, cost)
    local bu, bn = mul(min(cost, q.capacity), q.tu, q.tn)
    local u, n = add(bu, bn, ahead(next))
    if less(q.full_u, q.full_n, u, n) then u, n = q.full_u, q.full_n end
    if u == 0 and n == 0 then return end
    if less(next.u, next.n, now + u, n) then next.u, next.n = now + u, n end
end

-- Returns slots, unless later ones have been promised.
function LeakyBucket.refund(q, next, cost, charge)
    if not less(now, 0, next.u, next.n) then return end
    if charge and (charge.end_u ~= next.u or charge.end_n ~= next.n) then return end
    local u, n = sub(next.u, next.n, given_back(q, cost, charge, charge and charge.at, now))
    if less(u, n, now, 0) then u, n = now, 0 end
    next.u, next.n = u, n
end

-- Corrects a slot beyond the end of the longest queue: the clock stepped back, or another queue was longer.
function LeakyBucket.clamp(q, next)
    local u, n = ahead(next)
    if less(q.most_u, q.most_n, u, n) then next.u, next.n = now + q.most_u, q.most_n end
end
