-- Times and intervals are nanoseconds, far beyond 2^53, the largest number that Lua counts exactly.
-- They are kept as two numbers: whole microseconds, and a rest of 0 to 999 nanoseconds. The limiter
-- keeps all of them within 2^59 ns, so every product and quotient below is exact.
--
-- Twins in compiled_quota.rs: instant.
-- Twins in bucket.rs: last_step = fresh_until.

local floor, fmod, max, min = math.floor, math.fmod, math.max, math.min

-- floor(a / b) of whole numbers, where a plain division could round up.
local function quotient(a, b)
    return (a - fmod(a, b)) / b
end

local function less(au, an, bu, bn)
    return au < bu or (au == bu and an < bn)
end

local function add(au, an, bu, bn)
    local n = an + bn
    if n >= 1000 then return au + bu + 1, n - 1000 end
    return au + bu, n
end

-- a - b, at least 0.
local function sub(au, an, bu, bn)
    if less(au, an, bu, bn) then return 0, 0 end
    local n = an - bn
    if n < 0 then return au - bu - 1, n + 1000 end
    return au - bu, n
end

-- times · (u, n): the rest is multiplied in two parts, so that neither leaves the exact range.
local function mul(times, u, n)
    if n == 0 then return times * u, 0 end
    local thousands = floor(times / 1000)
    local rest = (times - thousands * 1000) * n
    local carry = floor(rest / 1000)
    return times * u + thousands * n + carry, rest - carry * 1000
end

-- floor(a / b). The first guess is at most a little off where the nanoseconds are beyond the exact range.
local function div(au, an, bu, bn)
    if bn == 0 then return quotient(au, bu) end
    local a, b = au * 1000 + an, bu * 1000 + bn
    if a < 9007199254740992 then return quotient(a, b) end
    local times = floor(a / b)
    while less(au, an, mul(times, bu, bn)) do times = times - 1 end
    while not less(au, an, mul(times + 1, bu, bn)) do times = times + 1 end
    return times
end

-- Whole microseconds, rounded up.
local function micros_up(u, n)
    if n > 0 then return u + 1 end
    return u
end

-- floor(a · b / c) and the rest, for a <= c and all of them below 2^49.2: digit by digit in base 8
-- where the product is too large.
local function mul_div(a, b, c)
    if a == 0 or b <= 9007199254740991 / a then
        local product = a * b
        local rest = fmod(product, c)
        return (product - rest) / c, rest
    end
    local result, rest, unit = 0, 0, 1
    while unit * 8 <= a do unit = unit * 8 end
    while unit >= 1 do
        local digit = floor(a / unit)
        a = a - digit * unit
        local part = rest * 8 + digit * b
        rest = fmod(part, c)
        result = result * 8 + (part - rest) / c
        unit = unit / 8
    end
    return result, rest
end

-- An instant. Its text is its nanoseconds, one whole number: Redis keeps that in the least memory.
local function instant(text)
    if text == '0' then return 0, 0 end
    local u, n = match(text, '^(%d+)(%d%d%d)$')
    if u and #u <= 16 then return u + 0, n + 0 end
end

-- The last step at which a bucket was refilled.
local function last_step(q, at)
    if q.step == 0 then return at end
    return at - fmod(at, q.step)
end
