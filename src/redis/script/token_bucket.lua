-- The token bucket as GCRA. The state is the time until the bucket is full, and the TAT, the instant of that. A
-- call happens at one time, so it counts with the former; the value keeps the latter.

local TokenBucket = {
    new = '0', is_even = true,
    verdict = 0, level = 0, available = 0, reset_after = 0, charge = 0, refund = 0, clamp = 0, fresh = 0, parse = 0, text = 0,
}

local function last_step(q, at)
    if q.step == 0 then return at end
    return at - fmod(at, q.step)
end

-- The time from now to the first step that is (u, n) or more after the last one.
local function until_step(q, u, n)
    if q.step == 0 or (u == 0 and n == 0) then return u, n end
    local ready = last_step(q, now) + micros_up(u, n)
    local over = fmod(ready, q.step)
    if over > 0 then ready = ready + q.step - over end
    return ready - now, 0
end

function TokenBucket.verdict(q, bucket, cost)
    if cost == 0 then return FITS, 0, 0 end
    if cost > q.capacity then return NEVER end
    local cu, cn = mul(cost, q.tu, q.tn)
    local u, n = add(cu, cn, bucket.u, bucket.n)
    if not less(q.full_u, q.full_n, u, n) then return FITS, 0, 0 end
    return AFTER, until_step(q, sub(u, n, q.full_u, q.full_n))
end

-- The time until the bucket is full.
function TokenBucket.level(bucket)
    return bucket.u, bucket.n
end

function TokenBucket.available(q, bucket)
    local u, n = sub(q.full_u, q.full_n, bucket.u, bucket.n)
    return div(u, n, q.tu, q.tn)
end

function TokenBucket.reset_after(q, bucket)
    return until_step(q, bucket.u, bucket.n)
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

function TokenBucket.refund(q, bucket, cost, charge)
    if bucket.u == 0 and bucket.n == 0 then return end
    local charged_at = charge and last_step(q, charge.at)
    local u, n = given_back(q, cost, charge, charged_at, last_step(q, now))
    change(bucket, sub(bucket.u, bucket.n, u, n))
    if bucket.u == 0 and bucket.n == 0 and last_step(q, now) == 0 then bucket.tat = '0' end
end

-- Corrects a TAT beyond the most: the clock stepped back, or the quota was larger.
function TokenBucket.clamp(q, bucket)
    if less(q.most_u, q.most_n, bucket.u, bucket.n) then change(bucket, q.most_u, q.most_n) end
end

function TokenBucket.fresh()
    return { u = 0, n = 0, tat = '0' }
end

function TokenBucket.parse(text, q)
    if text == '0' then return TokenBucket.fresh() end
    local tu, tn = match(text, '^(%d+)(%d%d%d)$')
    if not tu or #tu > 16 then return nil end
    local u = tu - last_step(q, now)
    if u < 0 then return { u = 0, n = 0, tat = text } end
    return { u = u, n = tn + 0, tat = text }
end

-- A state that has not changed keeps its text.
function TokenBucket.text(bucket, q)
    return bucket.tat or format('%d%03d', last_step(q, now) + bucket.u, bucket.n)
end
