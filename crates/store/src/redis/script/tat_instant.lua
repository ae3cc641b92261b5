-- An instant. Its text is its nanoseconds, one whole number: Redis keeps that in the least memory.
--
-- Twins in bucket.rs: last_step = fresh_until.
-- Twins in crates/core/src/algorithm/mod.rs: given_back = nanos.
-- Twins in meter.rs: parse = instant, text = instant_text.

local Instant = {}

function Instant.fresh()
    return { u = 0, n = 0 }
end

function Instant.parse(text)
    if text == '0' then return Instant.fresh() end
    local u, n = match(text, '^(%d+)(%d%d%d)$')
    if not u or #u > 16 then return nil end
    return { u = u + 0, n = n + 0 }
end

function Instant.text(tat)
    if tat.u == 0 and tat.n == 0 then return '0' end
    return format('%d%03d', tat.u, tat.n)
end

-- The last step at which a bucket was refilled.
local function last_step(q, at)
    if q.step == 0 then return at end
    return at - fmod(at, q.step)
end

-- The part of `cost` units that a bucket gets back at `at`, now or the last step: all of them for a refund without a
-- charge. Otherwise each unit fades over the time of a full bucket, by 1 / capacity of the time since the charge;
-- `Refund::nanos` in Rust gives the reason.
local function given_back(q, cost, charge, charged_at, at)
    if not charge then return mul(cost, q.tu, q.tn) end
    -- The clock has stepped back since, and may have moved the bucket.
    if at < charged_at then return 0, 0 end
    local capacity = max(q.capacity, 1)
    local rest = fmod(at - charged_at, capacity)
    local faded_n, over = mul_div(rest, 1000, capacity)
    if over > 0 then faded_n = faded_n + 1 end
    local faded_u, carried = add((at - charged_at - rest) / capacity, 0, 0, faded_n)
    local u, n = mul(cost, sub(charge.tu, charge.tn, faded_u, carried))
    local left_u, left_n = sub(charge.end_u, charge.end_n, at, 0)
    if less(left_u, left_n, u, n) then return left_u, left_n end
    return u, n
end
