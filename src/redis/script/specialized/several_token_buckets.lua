local count = ARGV[2] + 0
local interval, full, most = {}, {}, {}
for k = 1, count do
    interval[k], full[k], most[k] = ARGV[3 * k] + 0, ARGV[3 * k + 1] + 0, ARGV[3 * k + 2] + 0
end
local pattern = '^(%d+)(%d%d%d)' .. string.rep(';(%d+)(%d%d%d)', count - 1) .. '$'

local at, first, last = 3 * count + 3, nil, nil
for i = 1, #KEYS do
    if ARGV[at] ~= '=' then
        first, last = at + 1, at + ARGV[at]
        at = last
    end
    at = at + 1

    -- The reply up to the first outcome, the other outcomes if there are any, and the error of a command.
    local reply, more, failure
    -- How long the subject stays blocked, by hand for example, and the text of the block's end.
    local blocked, block = 0, ''
    local value = call('GET', KEYS[i])
    local texts
    if value then
        failure = value.err
        if failure then
            reply = ''
        else
            texts = { match(value, pattern) }
            if not texts[1] then
                -- Rare values: more than states, or states that are as good as new.
                local states, text, end_u, end_n = match(value, '^([%d;]+)(!(%d+)(%d%d%d)h?)$')
                if states and #end_u <= 16 and end_u - now <= 576460752303423 then
                    block, blocked = text, end_u - now
                    if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                    if blocked < 0 then blocked = 0 end
                end
                for state in string.gmatch(states or value, '[^;]+') do
                    local tu, tn = match(state, '^(%d+)(%d%d%d)$')
                    texts[#texts + 1], texts[#texts + 2] = tu or state, tn or ''
                    if not tu and state ~= '0' then reply = '' end
                end
                if #texts ~= 2 * count or states and block == '' then reply = '' end
            end
        end
    end

    -- The times until the buckets are full. A corrected one is written; a charge writes all of them.
    local level, is_charged, clamped = {}, false, nil
    for k = 1, reply and 0 or count do
        local here = 0
        if texts and texts[2 * k - 1] ~= '0' then
            if #texts[2 * k - 1] > 16 then reply = '' end
            here = (texts[2 * k - 1] - now) * 1000 + texts[2 * k]
            if here < 0 then
                here = 0
            elseif here > most[k] then
                -- A TAT beyond the most: the clock stepped back, or the quota was larger.
                here, clamped = most[k], clamped or {}
                clamped[k] = true
            end
        end
        level[k] = here
    end

    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        while times > 0 do
            local here, denied, charged = times, 0, 0
            for k = 1, cost > 0 and count or 0 do
                if level[k] + cost * interval[k] > full[k] then denied = 1 end
            end
            local takes = denied == 0 and cost > 0 and blocked == 0 and (op == 'a' or op == 'v')
            if takes then here, charged, is_charged = 1, cost, true end
            local outcome = pack('>i8i8i8i8i8', here, denied, 0, charged, blocked)
            for k = 1, count do
                local need, flags, retry_after = cost * interval[k], 0, -1
                if takes then
                    level[k] = level[k] + need
                elseif cost > 0 and level[k] + need > full[k] then
                    flags = 1
                    if need <= full[k] then retry_after = math.ceil((level[k] + need - full[k]) / 1000) end
                end
                local n = level[k] % 1000
                outcome = outcome .. pack('>i8i8i8', flags + 4 * n, retry_after, (level[k] - n) / 1000)
            end
            if reply then
                more = more or {}
                more[#more + 1] = outcome
            else
                reply = pack('>i8', now) .. outcome
            end
            times = times - here
        end
    end

    local text, micros
    if is_charged or clamped then
        micros = 0
        for k = 1, count do
            local n = level[k] % 1000
            local u = (level[k] - n) / 1000
            local micros_up = n > 0 and u + 1 or u
            if micros_up > micros then micros = micros_up end
            local tat
            if is_charged or clamped[k] then
                tat = format('%d%03d', now + u, n)
            else
                tat = texts[2 * k - 1] .. texts[2 * k]
            end
            text = text and text .. ';' .. tat or tat
        end
    end
