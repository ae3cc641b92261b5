-- A specialized script: decides frequent operations under a list of even token buckets and windows, as `decide.lua` does, in
-- a fraction of the time: it makes no function, and few tables.
--
-- ARGV: the time in microseconds (empty for the server's), how many quotas, and five fields of each: a letter (`t`, `f` or
-- `s`), its length, the capacity, the most that can count, and how many counts it has. A bucket counts nanoseconds, all
-- below 2^52, so that the sum of two is exact, and its length is the time of a unit. That of a window is its microseconds,
-- that of a sliding window those of a slice; its counts are those of its slices and of the one that leaves. Then for each
-- key the number of arguments of its operations and the operations, or `=` for those of the previous key: letter (`a`, `v`,
-- `p` or `d`, for windows also `n`), cost, and how many times.
--
-- The reply is that of `decide.lua`. An empty text means that nothing was done: the value has more than the script knows,
-- such as rows of nodes, or has to be corrected.
--
-- Twins in crates/core/src/algorithm/decide.rs, in one piece here: judge, charge.

local rep, count, quotas, fresh = string.rep, ARGV[2] + 0, {}, ''
for k = 1, count do
    local at = 5 * k - 2
    local letter, length, last = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 4] + 0
    -- A window counts units, a bucket the time of each.
    local pattern, form, unit = '^(%d+)(%d%d%d)$', '>i8i8', length
    if letter ~= 't' then
        pattern, form, unit = '^(%d+)' .. rep(':(%d+)', last) .. '$', '>i8' .. rep('i8', last), 1
    end
    fresh = fresh .. (letter == 'f' and '0:0;' or '0;')
    quotas[k] = {
        letter = letter, length = length, capacity = ARGV[at + 2] + 0, most = ARGV[at + 3] + 0, last = last,
        pattern = pattern, form = form, unit = unit, used = 0, state = false,
    }
end

local replies = KEYS[2] and {}
local at, first, last = 5 * count + 3, nil, nil
for i = 1, #KEYS do
    if ARGV[at] ~= '=' then first, last = at + 1, at + ARGV[at] end
    at = (ARGV[at] == '=' and at or last) + 1

    local value = call('GET', KEYS[i])
    local failure, is_known, place, is_charged = value and value.err, true, 0, false
    -- How long the subject stays blocked, and the text of the block's end.
    local states, blocked, block = not failure and value or fresh, 0, ''
    if string.find(states, '!', 1, true) then
        local head, text, end_u, end_n = match(states, '^([%d:;]+)(!(%d+)(%d%d%d)h?)$')
        is_known = head and #end_u <= 16 and end_u - now <= 576460752303423
        if is_known then
            states, block, blocked = head, text, math.max(end_u - now + (end_n ~= '000' and 1 or 0), 0)
        end
    end

    -- The states: the time until a bucket is full; of a window the number of the newest slice in force, and the counts
    -- from it on.
    for text in string.gmatch(states, '[^;]+') do
        place = place + 1
        local q = quotas[place]
        if not q then break end
        local s = (text ~= '0' or q.letter == 'f') and { match(text, q.pattern) }
        if s and (not s[1] or #s[1] > 16) then
            is_known = false
        elseif q.letter == 't' then
            q.used = s and math.max((s[1] - now) * 1000 + s[2], 0) or 0
            -- The clock stepped back, or the quota was larger.
            is_known = is_known and q.used <= q.most
        else
            local passed = now % q.length
            local current = (now - passed) / q.length
            local newest, counts, used = s and s[1] + 0 or 0, { current }, 0
            if newest > current + 1 then is_known = false end
            if newest == current + 1 and (q.letter == 's' or s[2] ~= '0') then
                -- The next slice stays in force.
                counts[1], passed = newest, 0
            end
            local ahead = counts[1] - math.min(newest, counts[1])
            for slice = 2, q.last + 1 do
                if s and (#s[slice] > 15 or s[slice] + 0 > q.most) then is_known = false end
                local units = s and slice - ahead > 1 and s[slice - ahead] + 0 or 0
                counts[slice] = units
                if slice <= q.last or q.letter == 'f' then
                    used = used + units
                else
                    local weighted = units * (q.length - passed)
                    used = used + (weighted - weighted % q.length) / q.length
                end
            end
            q.state, q.used = counts, used
        end
    end
    if place ~= count then is_known = false end

    local reply, more
    for run = is_known and not failure and first or last + 1, last, 3 do
        local op, cost, times = ARGV[run], ARGV[run + 1] + 0, ARGV[run + 2] + 0
        while times > 0 do
            local here, denied, charged, shown = times, 0, 0, ''
            for k = 1, count do
                local q = quotas[k]
                if op == 'n' then
                    q.state[2] = math.min(q.state[2] + cost, q.most)
                    q.used = q.state[2]
                    if q.used > q.capacity then denied = 1 end
                elseif cost > 0 and q.used + cost * q.unit > q.capacity then
                    denied = 1
                end
                if q.letter == 't' then
                    local n = q.used % 1000
                    shown = shown .. pack(q.form, (q.used - n) / 1000, n)
                else
                    shown = shown .. pack(q.form, unpack(q.state))
                end
            end
            if op == 'n' then
                here, charged, is_charged = 1, cost, is_charged or cost > 0
            elseif denied == 0 and cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                charged, is_charged = cost, true
                for k = 1, here > 1 and count or 0 do
                    local left, need = quotas[k].capacity - quotas[k].used, cost * quotas[k].unit
                    here = math.min(here, (left - left % need) / need)
                end
                for k = 1, count do
                    local q = quotas[k]
                    q.used = q.used + here * cost * q.unit
                    if q.state then q.state[2] = q.state[2] + here * cost end
                end
            end
            local text = pack('>i8i8i8i8', here, denied, charged, blocked) .. shown
            if reply then
                more = more or {}
                more[#more + 1] = text
            else
                reply = pack('>i8', now) .. text
            end
            times = times - here
        end
    end
    if more then reply = reply .. table.concat(more) end

    -- Writes only a value that was charged: a denial changes nothing. It expires when all of it is as good as none, in
    -- whole milliseconds, at least 1.
    if is_charged then
        local text, micros = '', blocked
        for k = 1, count do
            local q = quotas[k]
            local state, lasts
            if q.letter == 't' then
                local n = q.used % 1000
                local u = (q.used - n) / 1000
                state, lasts = format('%d%03d', now + u, n), n > 0 and u + 1 or u
            else
                state = format('%d' .. rep(':%d', q.last), unpack(q.state))
                lasts = q.state[2] > 0 and (q.state[1] + q.last) * q.length - now or 0
            end
            text = k > 1 and text .. ';' .. state or state
            if lasts > micros then micros = lasts end
        end
        local milliseconds = math.max(math.ceil(micros / 1000), 1)
        -- The clock of a test may stand still while the server's runs.
        if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
        -- A count may be the most already.
        text = text .. block
        if text ~= value then failure = call('SET', KEYS[i], text, 'PX', format('%d', milliseconds)).err end
    elseif not is_known then
        reply = ''
    end
    if not replies then return failure and redis.error_reply(failure) or reply or '' end
    replies[i] = failure and '-' .. failure or reply or ''
end
return replies
