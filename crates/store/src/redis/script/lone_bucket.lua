-- A specialized script: decides frequent operations under one even token bucket, as `decide.lua` does. It is the script of
-- most limits, and takes as little time as a plain one.
--
-- ARGV: the time in microseconds (empty for the server's), and three times in nanoseconds, all below 2^52, so that the
-- sum of two is exact: that of a unit, of a full bucket, and of the most that can count. Then for each key the number of
-- arguments of its operations and the operations, or `=` for those of the previous key: letter (`a`, `v`, `p` or `d`), cost,
-- and how many times.
--
-- The reply is that of `decide.lua`. An empty text means that the value has more than the script knows, and that nothing
-- was done.
--
-- Twins in bucket.rs, in one piece here: verdict, charge, clamp.

local ARGV, call, match, pack, format = ARGV, redis.pcall, string.match, struct.pack, string.format
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local interval, full = ARGV[2] + 0, ARGV[3] + 0

local replies = KEYS[2] and {}
local at, first, last = 5, nil, nil
for i = 1, #KEYS do
    if ARGV[at] ~= '=' then
        first, last = at + 1, at + ARGV[at]
        at = last
    end
    at = at + 1

    local value = call('GET', KEYS[i])
    local failure = value and value.err
    -- The reply up to the first run, and the other runs if there are any.
    local reply, more = failure and '', nil
    -- The time until the bucket is full; how long the subject stays blocked, and the text of the block's end.
    local level, is_changed, blocked, block = 0, false, 0, ''
    if value and value ~= '0' and not failure then
        local u, n = match(value, '^(%d+)(%d%d%d)$')
        if not u then
            local state, text, end_u, end_n = match(value, '^(%d+)(!(%d+)(%d%d%d)h?)$')
            if state and #end_u <= 16 and end_u - now <= 576460752303423 then
                block, blocked = text, end_u - now
                if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                if blocked < 0 then blocked = 0 end
                u, n = match(state, '^(%d+)(%d%d%d)$')
            end
            if not u and state ~= '0' or block == '' then reply = '' end
        end
        if u then
            if #u > 16 then reply = '' end
            level = (u - now) * 1000 + n
            if level < 0 then
                level = 0
            elseif level > full and level > ARGV[4] + 0 then
                -- A TAT beyond the most: the clock stepped back, or the quota was larger.
                level, is_changed = ARGV[4] + 0, true
            end
        end
    end

    for run = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[run], ARGV[run + 1] + 0, ARGV[run + 2] + 0
        local need = cost * interval
        while times > 0 do
            local here, denied, charged, left, n = times, 0, 0, full - level, level % 1000
            local u = (level - n) / 1000
            if cost > 0 and need > left then
                denied = 1
            elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                charged, is_changed = cost, true
                if times > 1 then here = math.min(times, (left - left % need) / need) end
                level = level + here * need
            end
            if reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8i8i8', here, denied, charged, blocked, u, n)
            else
                reply = pack('>i8i8i8i8i8i8i8', now, here, denied, charged, blocked, u, n)
            end
            times = times - here
        end
    end
    if more then reply = reply .. table.concat(more) end

    -- Writes only a value that has changed: a denial changes nothing. It expires when all of it is as good as none, in
    -- whole milliseconds, at least 1.
    if is_changed and reply ~= '' then
        local n = level % 1000
        local u = (level - n) / 1000
        local micros = n > 0 and u + 1 or u
        if micros < blocked then micros = blocked end
        local milliseconds = math.max((micros + -micros % 1000) / 1000, 1)
        -- The clock of a test may stand still while the server's runs.
        if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
        failure = call('SET', KEYS[i], format('%d%03d', now + u, n) .. block, 'PX', format('%d', milliseconds)).err
    end
    if not replies then return failure and redis.error_reply(failure) or reply end
    replies[i] = failure and '-' .. failure or reply
end
return replies
