local numbers = '^(%d+)' .. string.rep(':(%d+)', slices + 1) .. '$'
local written = '%d' .. string.rep(':%d', slices + 1)

-- The time until no more than `room` of the counts remains, which can be several slices away.
local function first_fit(newer, counts, whole, room, start, over)
    for ahead = 0, slices do
        -- In each later slice the oldest whole one begins to leave.
        local oldest = ahead < slices and counts[slices + 2 - ahead] or newer
        if ahead > 0 then whole, over = whole - oldest, 0 end
        if whole <= room then
            local fits = weighs_at_most(oldest, room - whole)
            if fits < over then fits = over end
            if fits < slice then return start + ahead * slice + fits end
        end
    end
    return start + (slices + 1) * slice
end

-- The table of a state as good as new.
local none = { 0 }
for place = 2, slices + 2 do none[place] = 0 end

local first, last
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
    -- The number of the newest slice, and the counts of it and of those before.
    local state
    local value = call('GET', KEYS[i])
    if value and value ~= '0' then
        failure = value.err
        if failure then
            reply = ''
        else
            state = { match(value, numbers) }
            if not state[1] then
                -- Rare values: more than a state.
                local head, text, end_u, end_n = match(value, '^([%d:]+)(!(%d+)(%d%d%d)h?)$')
                if head and #end_u <= 16 and end_u - now <= 576460752303423 then
                    block, blocked = text, end_u - now
                    if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                    if blocked < 0 then blocked = 0 end
                    state = { match(head, numbers) }
                end
                if not state[1] then
                    if head ~= '0' then reply = '' end
                    state = nil
                end
                if block == '' then reply = '' end
            end
        end
    end

    -- The number of the newest slice, none for a state as good as new. The counts of the slices follow it in its table.
    local newest
    -- The current slice, which is now's or the next one: its beginning relative to now, and how much of it has passed.
    local index, start, over = current, -passed, passed
    -- The counts of the current slice and of those before, newest first, from the second place on.
    local counts, whole = none, 0
    if state and not reply then
        newest, counts = state[1] + 0, state
        if #state[1] > 16 then reply = '' end
        for place = 2, slices + 2 do
            local count = state[place] + 0
            if #state[place] > 15 then reply = '' end
            -- A count above the most: the quota was larger.
            if count > most then count = most end
            state[place], whole = count, whole + count
        end
        -- A slice too far ahead: the clock stepped back.
        if newest == current + 1 then
            index, start, over = newest, slice - passed, 0
        elseif newest > current then
            newest = current
        end
        if newest < index then
            local ahead = index - newest
            counts, whole = { 0 }, 0
            for place = 2, slices + 2 do
                local count = place - ahead > 1 and state[place - ahead] or 0
                counts[place], whole = count, whole + count
            end
        end
    end
    local newer, oldest = counts[2], counts[slices + 2]
    whole = whole - oldest
    local weighted = oldest * (slice - over)
    local used = whole + (weighted - weighted % slice) / slice

    local reset_after
    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        while times > 0 do
            local here, denied, retry_after, charged = times, 0, -1, 0
            if cost > capacity then
                denied = 1
            elseif cost > 0 and cost > capacity - used then
                denied, retry_after = 1, first_fit(newer, counts, whole, capacity - cost, start, over)
            elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                newer, whole, used, here, charged = newer + cost, whole + cost, used + cost, 1, cost
                newest, state = index, counts
            end
            local left = used < capacity and capacity - used or 0
            local flags = left < extra and denied + 2 or denied
            -- The time in which the units that are left would refill, or the time until the next unit.
            local remaining, window = 0, 0
            if left > extra then
                remaining, window = left - extra, (left - extra) * interval
            elseif extra >= capacity then
                window = interval
            else
                window = first_fit(newer, counts, whole, capacity - extra - 1, start, over) * 1000
            end
            local rest = window % 1000
            window = rest > 0 and (window - rest) / 1000 + 1 or window / 1000
            -- Nothing counts any more when the newest slice that counts has left.
            reset_after = 0
            if used > 0 then
                local count, place = newer, 2
                while count == 0 do
                    place = place + 1
                    count = counts[place]
                end
                reset_after = start + (slices + 2 - place) * slice + weighs_at_most(count, 0)
            end
            if reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked, flags, retry_after, remaining, reset_after, window)
            else
                reply = pack('>i8i8i8i8i8i8i8i8i8i8i8', now, here, denied, 0, charged, blocked, flags, retry_after, remaining, reset_after, window)
            end
            times = times - here
        end
    end

    local text, micros
    if reply ~= '' then
        text, micros = newest and format(written, newest, state == counts and newer or state[2], unpack(state, 3)) or '0', reset_after
        if text .. block == (value or '0') then text = nil end
    end
