-- The token bucket as GCRA. The state is the time until the bucket is full, and the TAT, the instant of that. A
-- call happens at one time, so it counts with the former; the value keeps the latter. The leaky bucket as a queue is the
-- same: its TAT is the next free slot, and it is full while the queue is empty.
--
-- Twins in compiled_quota.rs: settle.
-- Twins in bucket.rs: available, lasts = reset_after, charge, refund, clamp.
-- Twins in crates/core/src/algorithm/mod.rs: given_back = nanos.
-- Twins in state_text.rs: parse = instant, text = instant_text.

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

local TokenBucket = {
    new = '0',
    available = 0, shown = 0, lasts = 0, charge = 0, settle = 0, refund = 0, clamp = 0, parse = 0, text = 0,
}

function TokenBucket.available(q, bucket)
    local left, unit = (q.full_u - bucket.u) * 1000 + (q.full_n - bucket.n), q.tu * 1000 + q.tn
    if left < unit and unit < 9007199254740992 then return 0 end
    if left >= 0 and left < 9007199254740992 then return (left - fmod(left, unit)) / unit end
    local u, n = sub(q.full_u, q.full_n, bucket.u, bucket.n)
    return div(u, n, q.tu, q.tn)
end

function TokenBucket.shown(_, bucket)
    return pack('>i8i8', bucket.u, bucket.n)
end

-- The time from now to the first step at which the bucket is full.
function TokenBucket.lasts(q, bucket)
    local u, n = bucket.u, bucket.n
    if q.step == 0 or (u == 0 and n == 0) then return u, n end
    local ready = last_step(q, now) + micros_up(u, n)
    local over = fmod(ready, q.step)
    if over > 0 then ready = ready + q.step - over end
    return ready - now, 0
end

local function change(bucket, u, n)
    bucket.u, bucket.n, bucket.tat = u, n, nil
end

-- Keeps a TAT that is already later: a larger bucket that shares it may have moved it.
function TokenBucket.charge(q, bucket, cost)
    local cu, cn = mul(min(cost, q.capacity), q.tu, q.tn)
    local u, n = add(cu, cn, bucket.u, bucket.n)
    if less(q.full_u, q.full_n, u, n) then u, n = q.full_u, q.full_n end
    if less(bucket.u, bucket.n, u, n) then change(bucket, u, n) end
end

-- Charges units of this time each, whether or not there is room, when a lease ends or now.
function TokenBucket.settle(q, bucket, ends, units, tu, tn)
    local tat_u, tat_n = instant(TokenBucket.text(bucket, q))
    local u, n, step = tat_u, tat_n, last_step(q, min(ends, now))
    if less(u, n, step, 0) then u, n = step, 0 end
    u, n = add(u, n, mul(units, tu, tn))
    local most_u, most_n = add(step, 0, q.most_u, q.most_n)
    if less(most_u, most_n, u, n) then u, n = most_u, most_n end
    if not less(tat_u, tat_n, u, n) then return end
    bucket.tat = format('%d%03d', u, n)
    bucket.u, bucket.n = sub(u, n, last_step(q, now), 0)
end

-- Slots of a queue are returned unless later ones have been promised.
function TokenBucket.refund(q, bucket, cost, charge)
    if bucket.u == 0 and bucket.n == 0 then return end
    if charge and letter == 'l' and (charge.end_u ~= now + bucket.u or charge.end_n ~= bucket.n) then return end
    local charged_at = charge and last_step(q, charge.at)
    local u, n = given_back(q, cost, charge, charged_at, last_step(q, now))
    change(bucket, sub(bucket.u, bucket.n, u, n))
    if bucket.u == 0 and bucket.n == 0 and last_step(q, now) == 0 then bucket.tat = '0' end
end

-- Corrects a TAT beyond the most: the clock stepped back, or the quota was larger.
function TokenBucket.clamp(q, bucket)
    if less(q.most_u, q.most_n, bucket.u, bucket.n) then change(bucket, q.most_u, q.most_n) end
end

function TokenBucket.parse(text, q)
    local tu, tn = instant(text)
    if not tu then return nil end
    local u = tu - last_step(q, now)
    if u < 0 then return { u = 0, n = 0, tat = text } end
    return { u = u, n = tn, tat = text }
end

-- A state that has not changed keeps its text.
function TokenBucket.text(bucket, q)
    return bucket.tat or format('%d%03d', last_step(q, now) + bucket.u, bucket.n)
end

-- A place in a queue cannot be leased.
if letter == 'l' then TokenBucket.settle = nil end
