-- Decides about one subject that has one even token bucket and no `block_for`: what `decide.lua` does with it, in
-- less than half of the time. KEYS[1] holds the TAT, the instant at which the bucket is full again.
--
-- ARGV: the time in microseconds (empty for the server's), the capacity, and in two parts each, whole
-- microseconds and a rest of 0 to 999 nanoseconds: the time of a unit, of a full bucket, and of the most
-- that can count. Then the operations: letter (`a`, `v`, `p` or `d`), cost, and how many times it is done.
--
-- The reply is that of `decide.lua`; an empty one says that the value is none of these, and that nothing
-- was done.

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local capacity, tu, tn = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local full_u, full_n = tonumber(ARGV[5]), tonumber(ARGV[6])
local most_u, most_n = tonumber(ARGV[7]), tonumber(ARGV[8])

-- How far the bucket is from full.
local u, n, is_changed = 0, 0, false
-- For how long the subject is blocked, by hand say, and the text that tells until when.
local blocked, block = 0, ''
local value = redis.call('GET', KEYS[1])
if value and value ~= '0' then
    local micros, rest = string.match(value, '^(%d+)(%d%d%d)$')
    if not micros then
        -- Values that have seldom more than an instant.
        local tat, end_u, end_n
        tat, block, end_u, end_n = string.match(value, '^(%d+)(!(%d+)(%d%d%d)h?)$')
        if not tat or #end_u > 16 then return '' end
        blocked = tonumber(end_u) - now
        if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
        if blocked <= 0 then blocked, block = 0, '' end
        micros, rest = string.match(tat, '^(%d+)(%d%d%d)$')
        if tat == '0' then micros, rest = '0', '000' end
    end
    if not micros or #micros > 16 then return '' end
    u = tonumber(micros) - now
    if u < 0 then u = 0 else n = tonumber(rest) end
    -- A TAT beyond the most comes from a clock that stepped back or from a larger quota.
    if u > most_u or (u == most_u and n > most_n) then u, n, is_changed = most_u, most_n, true end
end

-- The level with `cost` units more. The rest is multiplied in two parts, so that neither leaves the range
-- in which a Lua number counts exactly.
local function with(cost)
    local cu, cn = cost * tu, n
    if tn > 0 then
        local thousands = math.floor(cost / 1000)
        cu, cn = cu + thousands * tn, cn + (cost - thousands * 1000) * tn
        local carry = math.floor(cn / 1000)
        cu, cn = cu + carry, cn - carry * 1000
    end
    return u + cu, cn
end

-- How many times more a cost fits.
local function alike(cost)
    local left_u, left_n = full_u - u, full_n - n
    if left_n < 0 then left_u, left_n = left_u - 1, left_n + 1000 end
    if left_u < 0 then return 0 end
    -- The first guess is at most a little off.
    local units = math.floor((left_u * 1000 + left_n) / (tu * 1000 + tn))
    local su, sn = with(units)
    while su > full_u or (su == full_u and sn > full_n) do
        units = units - 1
        su, sn = with(units)
    end
    repeat
        units = units + 1
        su, sn = with(units)
    until su > full_u or (su == full_u and sn > full_n)
    units = units - 1
    return (units - math.fmod(units, cost)) / cost
end

local reply
for at = 9, #ARGV, 3 do
    local op, cost, times = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local takes = blocked == 0 and (op == 'a' or op == 'v')
    while times > 0 do
        local here, denied, retry_after, charged = times, 0, -1, 0
        if cost > capacity then
            denied = 1
        elseif cost > 0 then
            local su, sn = with(cost)
            if su > full_u or (su == full_u and sn > full_n) then
                denied, retry_after = 1, su - full_u
                if sn > full_n then retry_after = retry_after + 1 end
            elseif takes then
                u, n, charged, is_changed = su, sn, cost, true
                if times > 1 then here = math.min(times, 1 + alike(cost)) end
            end
        end
        if reply then
            local row = struct.pack('>i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked, denied + 4 * n, retry_after, u)
            reply = reply .. row
        else
            reply = struct.pack('>i8i8i8i8i8i8i8i8i8', now, here, denied, 0, charged, blocked, denied + 4 * n, retry_after, u)
        end
        if here > 1 and charged > 0 then u, n = with((here - 1) * cost) end
        times = times - here
    end
end

-- A denial is not written. The rest lives until there is nothing left to remember, in whole milliseconds.
if is_changed then
    local micros = math.max(n > 0 and u + 1 or u, blocked)
    local milliseconds = math.max(math.ceil(micros / 1000), 1)
    -- The time of a test may stand still while the server's goes on.
    if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
    local text = string.format('%.0f%03d', now + u, n) .. block
    redis.call('SET', KEYS[1], text, 'PX', string.format('%.0f', milliseconds))
end
return reply
