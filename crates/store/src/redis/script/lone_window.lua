-- A specialized script: decides frequent operations under one fixed window, or one sliding window of one slice, as
-- `decide.lua` does, in a fraction of the time.
--
-- ARGV: the time in microseconds (empty for the server's), a letter (`f` or `s`), the microseconds of the window, the
-- capacity, and the most that can count. The most times the window is below 2^53 if it slides. Then for each key the number of
-- arguments of its operations and the operations, or `=` for those of the previous key: letter (`a`, `v`, `p` or `d`, for a
-- fixed window also `n`), cost, and how many times.
--
-- The reply is that of `decide.lua`. An empty text means that nothing was done: the value has more than the script knows, or
-- has to be corrected though nothing is charged.
--
-- Twins in sliding_window.rs, in one piece here: position, balance, charge, clamp.

local ARGV, call, match, pack, format = ARGV, redis.pcall, string.match, struct.pack, string.format
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local slides, length, capacity, most = ARGV[2] == 's', ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
local passed = now % length
local current = (now - passed) / length
local pattern = slides and '^(%d+):(%d+):(%d+)$' or '^(%d+):(%d+)$'

local replies = KEYS[2] and {}
local at, first, last = 6, nil, nil
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
    -- How long the subject stays blocked, and the text of the block's end.
    local blocked, block, is_corrected, is_charged = 0, '', false, false
    -- The window in force, its count, that of the window before, and what of this one counts.
    local index, newer, older, weighted = current, 0, 0, 0
    if value and (value ~= '0' or not slides) and not failure then
        local one, two, three = match(value, pattern)
        if not one then
            local state, text, end_u, end_n = match(value, '^([%d:]+)(!(%d+)(%d%d%d)h?)$')
            if state and #end_u <= 16 and end_u - now <= 576460752303423 then
                block, blocked = text, end_u - now
                if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                if blocked < 0 then blocked = 0 end
                one, two, three = match(state, pattern)
            end
            if not one and (state ~= '0' or not slides) or block == '' then reply = '' end
        end
        if one then
            if #one > 16 or #two > 15 or three and #three > 15 then reply = '' end
            local newest = one + 0
            newer, older = two + 0, three and three + 0 or 0
            -- A count above the most: the quota was larger. A window too far ahead: the clock stepped back.
            if newer > most then newer, is_corrected = most, true end
            if older > most then older, is_corrected = most, true end
            if newest > current + 1 then newest, is_corrected = current, true end
            local over = passed
            if newest > current and (slides or newer > 0) then
                -- The next window stays in force.
                index, over = newest, 0
            elseif newest < current then
                newer, older = 0, newest == current - 1 and newer or 0
            end
            if slides and older > 0 then
                weighted = older * (length - over)
                weighted = (weighted - weighted % length) / length
            end
        end
    end

    for run = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[run], ARGV[run + 1] + 0, ARGV[run + 2] + 0
        while times > 0 do
            local here, denied, charged, left = times, 0, 0, capacity - newer - weighted
            if op == 'n' then
                here, charged, newer = 1, cost, math.min(newer + cost, most)
                is_charged = is_charged or cost > 0
                if newer > capacity then denied = 1 end
            elseif cost > 0 and cost > left then
                denied = 1
            end
            -- The state that is judged: the one before the charge.
            local text = slides and pack('>i8i8i8', index, newer, older) or pack('>i8i8', index, newer)
            if denied == 0 and cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                charged, is_charged = cost, true
                if times > 1 then here = math.min(times, (left - left % cost) / cost) end
                newer = newer + here * cost
            end
            if reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8', here, denied, charged, blocked) .. text
            else
                reply = pack('>i8i8i8i8i8', now, here, denied, charged, blocked) .. text
            end
            times = times - here
        end
    end
    if more then reply = reply .. table.concat(more) end

    -- Writes only a value that was charged: a denial changes nothing. It expires when all of it is as good as none, in
    -- whole milliseconds, at least 1.
    if is_charged then
        local text = (slides and format('%d:%d:%d', index, newer, older) or format('%d:%d', index, newer)) .. block
        local micros = newer > 0 and (index + (slides and 2 or 1)) * length - now or 0
        if micros < blocked then micros = blocked end
        local milliseconds = math.max((micros + -micros % 1000) / 1000, 1)
        -- The clock of a test may stand still while the server's runs.
        if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
        -- A count may be the most already.
        if text ~= value then failure = call('SET', KEYS[i], text, 'PX', format('%d', milliseconds)).err end
    elseif is_corrected and not failure then
        reply = ''
    end
    if not replies then return failure and redis.error_reply(failure) or reply end
    replies[i] = failure and '-' .. failure or reply
end
return replies
