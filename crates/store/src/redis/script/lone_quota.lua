-- A specialized script: decides frequent operations under one even token bucket, one fixed window, or one sliding window of one
-- slice, as `decide.lua` does. It is the script of most limits, and takes little more time than a plain one.
--
-- ARGV: the time in microseconds (empty for the server's), a letter (`t`, `f` or `s`), its length, the capacity, and the most
-- that can count. Those of a bucket are nanoseconds, all below 2^52, so that the sum of two is exact, and its length is the
-- time of a unit. Those of a window are its microseconds and units; the most times the window is below 2^53 if it slides. Then
-- for each key the number of arguments of its operations and the operations, or `=` for those of the previous key: letter
-- (`a`, `v`, `p` or `d`, for a fixed window also `n`), cost, and how many times.
--
-- The reply is that of `decide.lua`. An empty text means that nothing was done: the value has more than the script knows, such
-- as rows of nodes, or has to be corrected.
--
-- Twins in bucket.rs, in one piece here: verdict, charge.
-- Twins in sliding_window.rs, in one piece here: position, balance, charge.

local letter, length, capacity, most = ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
local is_bucket, slides = letter == 't', letter == 's'
-- A window counts units, a bucket the time of each.
local fresh, pattern, form, first_form, unit = '0', '^(%d+)(%d%d%d)$', '>i8i8i8i8i8i8', '>i8i8i8i8i8i8i8', length
local passed, current = 0, 0
if not is_bucket then
    passed, unit = now % length, 1
    current, fresh, pattern = (now - passed) / length, '0:0', '^(%d+):(%d+)$'
    if slides then fresh, pattern, form, first_form = '0', '^(%d+):(%d+):(%d+)$', first_form, '>i8i8i8i8i8i8i8i8' end
end

local replies = KEYS[2] and {}
local at, first, last = 6, nil, nil
for i = 1, #KEYS do
    if ARGV[at] ~= '=' then first, last = at + 1, at + ARGV[at] end
    at = (ARGV[at] == '=' and at or last) + 1

    local value = call('GET', KEYS[i])
    local failure = value and value.err
    -- The reply up to the first run, and the other runs if there are any.
    local reply, more = failure and '', nil
    -- What counts as used: the time until the bucket is full, or units. The window in force, its count, and that of the window
    -- before.
    local used, index, newer, older, is_charged = 0, current, 0, 0, false
    -- How long the subject stays blocked, and the text of the block's end.
    local blocked, block = 0, ''
    if value and value ~= fresh and not failure then
        -- More than the most: the quota was larger, or the clock stepped back, as it did before a window too far ahead.
        local one, two, three = match(value, pattern)
        if not one then
            local state, text, end_u, end_n = match(value, '^([%d:]+)(!(%d+)(%d%d%d)h?)$')
            if state and #end_u <= 16 and end_u - now <= 576460752303423 then
                block, blocked = text, math.max(end_u - now + (end_n ~= '000' and 1 or 0), 0)
                one, two, three = match(state, pattern)
            end
            if not one and state ~= fresh or block == '' then reply = '' end
        end
        if one and (#one > 16 or not is_bucket and (#two > 15 or three and #three > 15)) then
            reply = ''
        elseif one and is_bucket then
            used = (one - now) * 1000 + two
            if used < 0 then used = 0 elseif used > most then reply = '' end
        elseif one then
            local newest, over = one + 0, passed
            newer, older = two + 0, slides and three + 0 or 0
            if newest > current + 1 or newer > most or older > most then reply = '' end
            if newest > current and (slides or newer > 0) then
                -- The next window stays in force.
                index, over = newest, 0
            elseif newest < current then
                newer, older = 0, slides and newest == current - 1 and newer or 0
            end
            local weighted = older * (length - over)
            used = newer + (weighted - weighted % length) / length
        end
    end

    for run = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[run], ARGV[run + 1] + 0, ARGV[run + 2] + 0
        local need = cost * unit
        while times > 0 do
            local here, denied, charged, left = times, 0, 0, capacity - used
            if op == 'n' then
                here, charged, newer = 1, cost, math.min(newer + cost, most)
                used, is_charged = newer, is_charged or cost > 0
                if newer > capacity then denied = 1 end
            elseif cost > 0 and need > left then
                denied = 1
            end
            -- The state that is judged: the one before the charge.
            local state, rest = index, newer
            if is_bucket then
                rest = used % 1000
                state = (used - rest) / 1000
            end
            if denied == 0 and cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                charged, is_charged = cost, true
                if times > 1 then here = math.min(times, (left - left % need) / need) end
                used, newer = used + here * need, newer + here * cost
            end
            if reply then
                more = more or {}
                more[#more + 1] = pack(form, here, denied, charged, blocked, state, rest, older)
            else
                reply = pack(first_form, now, here, denied, charged, blocked, state, rest, older)
            end
            times = times - here
        end
    end
    if more then reply = reply .. table.concat(more) end

    -- Writes only a value that was charged: a denial changes nothing. It expires when all of it is as good as none, in
    -- whole milliseconds, at least 1.
    if is_charged then
        local text, micros
        if is_bucket then
            local n = used % 1000
            local u = (used - n) / 1000
            text, micros = format('%d%03d', now + u, n), n > 0 and u + 1 or u
        else
            text = slides and format('%d:%d:%d', index, newer, older) or format('%d:%d', index, newer)
            micros = newer > 0 and (index + (slides and 2 or 1)) * length - now or 0
        end
        if micros < blocked then micros = blocked end
        local milliseconds = math.max((micros + -micros % 1000) / 1000, 1)
        -- The clock of a test may stand still while the server's runs.
        if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
        -- A count may be the most already.
        text = text .. block
        if text ~= value then failure = call('SET', KEYS[i], text, 'PX', format('%d', milliseconds)).err end
    end
    if not replies then return failure and redis.error_reply(failure) or reply end
    replies[i] = failure and '-' .. failure or reply
end
return replies
