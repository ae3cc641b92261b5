-- The token bucket as GCRA. The state is the TAT, the instant at which the bucket is full again.

local TokenBucket = { fresh = Instant.fresh, parse = Instant.parse, text = Instant.text }

local function last_step(q)
    if q.step == 0 then return now end
    return now - fmod(now, q.step)
end

-- From now to the first instant at which tokens come, (u, n) or more after the last one.
local function until_step(q, u, n)
    if q.step == 0 or (u == 0 and n == 0) then return u, n end
    local ready = last_step(q) + micros_up(u, n)
    local over = fmod(ready, q.step)
    if over > 0 then ready = ready + q.step - over end
    return ready - now, 0
end

-- How far the bucket is from full: the same until the TAT is changed.
local function used(q, tat)
    if not tat.used_u then tat.used_u, tat.used_n = sub(tat.u, tat.n, last_step(q), 0) end
    return tat.used_u, tat.used_n
end

function TokenBucket.verdict(q, tat, cost)
    if cost == 0 then return FITS, 0, 0 end
    if cost > q.capacity then return NEVER end
    local cu, cn = mul(cost, q.tu, q.tn)
    local u, n = add(cu, cn, used(q, tat))
    if not less(q.full_u, q.full_n, u, n) then return FITS, 0, 0 end
    return AFTER, until_step(q, sub(u, n, q.full_u, q.full_n))
end

function TokenBucket.available(q, tat)
    local u, n = sub(q.full_u, q.full_n, used(q, tat))
    return div(u, n, q.tu, q.tn)
end

function TokenBucket.reset_after(q, tat)
    return until_step(q, used(q, tat))
end

function TokenBucket.charge(q, tat, cost)
    local cu, cn = mul(min(cost, q.capacity), q.tu, q.tn)
    local u, n = add(cu, cn, used(q, tat))
    if less(q.full_u, q.full_n, u, n) then u, n = q.full_u, q.full_n end
    tat.u, tat.n, tat.used_u, tat.used_n = last_step(q) + u, n, u, n
end

function TokenBucket.refund(q, tat, cost)
    local last = last_step(q)
    if not less(last, 0, tat.u, tat.n) then return end
    local u, n = sub(tat.u, tat.n, mul(min(cost, q.capacity), q.tu, q.tn))
    if less(u, n, last, 0) then u, n = last, 0 end
    tat.u, tat.n, tat.used_u = u, n, nil
end

-- A TAT beyond a full refill comes from a clock that stepped back or from a larger quota.
function TokenBucket.heal(q, tat)
    local u, n = used(q, tat)
    if less(q.full_u, q.full_n, u, n) then
        tat.u, tat.n, tat.used_u = last_step(q) + q.full_u, q.full_n, nil
    end
end
