-- Decides about subjects that have one even token bucket and no `block_for`, each as if alone: what `decide.lua`
-- does with them, in a third of the time. A key holds the TAT, the instant at which the bucket is full again.
--
-- ARGV: the time in microseconds (empty for the server's), and in nanoseconds, all below 2^52, the time of a unit,
-- of a full bucket, and of the most that can count. Then for each key the number of arguments of its
-- operations and the operations, or `=` for those of the key before: letter (`a`, `v`, `p` or `d`),
-- cost, and how many times it is done.
--
-- The reply is that of `decide.lua`; an empty text says that the value is none of these, and that nothing
-- was done.

local call, match = redis.pcall, string.match
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local interval, full, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0

local replies, at, first, last = {}, 5, nil, nil
for i, key in ipairs(KEYS) do
    if ARGV[at] ~= '=' then
        first, last = at + 1, at + ARGV[at]
        at = last
    end
    at = at + 1

    -- How far the bucket is from full.
    local level, is_changed = 0, false
    -- For how long the subject is blocked, by hand say, and the text that tells until when.
    local blocked, block = 0, ''
    local reply
    local value = call('GET', key)
    if value and value.err then
        reply = '-' .. value.err
    elseif value and value ~= '0' then
        local micros, rest = match(value, '^(%d+)(%d%d%d)$')
        if not micros then
            -- Values that have seldom more than an instant.
            local tat, text, end_u, end_n = match(value, '^(%d+)(!(%d+)(%d%d%d)h?)$')
            if tat and #end_u <= 16 then
                blocked = end_u - now
                if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                if blocked > 0 then block = text else blocked = 0 end
                micros, rest = match(tat, '^(%d+)(%d%d%d)$')
                if tat == '0' then micros, rest = '0', '000' end
            end
        end
        if not micros or #micros > 16 then
            reply = ''
        else
            level = (micros - now) * 1000 + rest
            if level < 0 then
                level = 0
            elseif level > most then
                -- A TAT beyond the most comes from a clock that stepped back or from a larger quota.
                level, is_changed = most, true
            end
        end
    end

    if not reply then
        for row = first, last, 3 do
            local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
            while times > 0 do
                local here, denied, retry_after, charged = times, 0, -1, 0
                local after = level + cost * interval
                if cost > 0 and after > full then
                    denied = 1
                    if cost * interval <= full then retry_after = math.ceil((after - full) / 1000) end
                elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                    level, charged, is_changed = after, cost, true
                    if times > 1 then
                        local more = full - after
                        here = math.min(times, 1 + (more - more % (cost * interval)) / (cost * interval))
                    end
                end
                local n = level % 1000
                local row = struct.pack('>i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked,
                    denied + 4 * n, retry_after, (level - n) / 1000)
                reply = (reply or struct.pack('>i8', now)) .. row
                if charged > 0 then level = level + (here - 1) * cost * interval end
                times = times - here
            end
        end
        -- A denial is not written. The rest lives until there is nothing left to remember, in whole milliseconds.
        if is_changed then
            local n = level % 1000
            local u = (level - n) / 1000
            local micros = math.max(n > 0 and u + 1 or u, blocked)
            local milliseconds = math.max(math.ceil(micros / 1000), 1)
            -- The time of a test may stand still while the server's goes on.
            if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
            local text = string.format('%.0f%03d', now + u, n) .. block
            local set = call('SET', key, text, 'PX', milliseconds)
            if set.err then reply = '-' .. set.err end
        end
    end
    if not KEYS[2] then
        if reply:byte() == 45 then return redis.error_reply(reply:sub(2)) end
        return reply
    end
    replies[i] = reply
end
return replies
