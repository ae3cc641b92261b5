-- The time until no more than `room` of the `left` units count, by the entries of the value from the byte `from` on. Nil
-- if the entries have fewer units than the head.
local function until_fits(value, from, to, left, room, noted)
    for place = from, to, 10 do
        local time, count = unpack('>I7I3', value, place)
        left = left - count
        if left <= room then
            if time > now then return period end
            return time + period > now and time + period - now or 0
        end
    end
    return left == noted and period
end

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
    -- The units that count, those of them that are noted now, and the first and the last byte of the entries.
    local total, noted, from, to = 0, 0, 1, 0
    local value = call('GET', KEYS[i])
    if value and value ~= '0:0' then
        failure = value.err
        local units, length, start
        if not failure then
            units, length, start = match(value, '^([1-9]%d*):([1-9]%d*)\n()')
            if not units then
                -- Rare values: more than a log.
                local head, text, end_u, end_n, after = match(value, '^([%d:]+)(!(%d+)(%d%d%d)h?)()')
                if head and #end_u <= 16 and end_u - now <= 576460752303423 then
                    block, blocked = text, end_u - now
                    if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                    if blocked < 0 then blocked = 0 end
                    units, length, start = match(value, '^([1-9]%d*):([1-9]%d*)![%dh]+\n()')
                    if head == '0:0' and after > #value then units, length, start = '0', '0', after end
                end
            end
        end
        if units and #units <= 15 then total, from, to = units + 0, start, #value end
        local bytes = to - from + 1
        if not units or #units > 15 or bytes ~= length + 0 or bytes % 10 > 0 then reply = '' end
    end

    -- Skips entries that have left the window. Entries later than now were written before the clock stepped back, and
    -- count as noted now.
    local newest, is_changed
    if to > from and not reply then
        if unpack('>I7', value, from) + period <= now then
            local below, above = 0, (to - from + 1) / 10
            while below < above do
                local middle = (below + above - (below + above) % 2) / 2
                if unpack('>I7', value, from + 10 * middle) + period <= now then
                    below = middle + 1
                else
                    above = middle
                end
            end
            local live = from + 10 * below
            for place = from + 7, live, 10 do total = total - unpack('>I3', value, place) end
            -- A denial does not have to write, unless counting the entries that have left would delay the server.
            from, is_changed = live, below > 256
        end
        -- The head has less than the entries: too much would pass.
        if total < 0 then reply = '' end
        newest = unpack('>I7', value, to - 9)
        is_changed = is_changed or newest > now
        local all = to
        while newest and newest >= now do
            noted, to = noted + unpack('>I3', value, to - 2), to - 10
            newest = to > from and unpack('>I7', value, to - 9)
        end
        -- No script writes entries of zero units: the general script handles them.
        if to < all and noted == 0 then reply = '' end
    end

    local is_foreign
    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        while times > 0 and not is_foreign do
            local here, denied, retry_after, charged = times, 0, -1, 0
            if cost > capacity then
                denied = 1
            elseif cost > 0 and cost > capacity - total then
                denied, retry_after = 1, until_fits(value, from, to, total, capacity - cost, noted)
            elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                total, noted, here, charged, is_changed = total + cost, noted + cost, 1, cost, true
            end
            local left = total < capacity and capacity - total or 0
            local flags = left < extra and denied + 2 or denied
            -- The time in which the units that are left would refill, or the time until the next unit.
            local remaining, window = 0, 0
            if left > extra then
                remaining, window = left - extra, (left - extra) * interval
                local rest = window % 1000
                window = rest > 0 and (window - rest) / 1000 + 1 or window / 1000
            elseif extra >= capacity then
                window = interval % 1000 > 0 and (interval - interval % 1000) / 1000 + 1 or interval / 1000
            else
                window = until_fits(value, from, to, total, capacity - extra - 1, noted)
            end
            -- The head has more than the entries: it would deny forever.
            is_foreign = not (retry_after and window)
            local reset_after = noted > 0 and period or newest and newest + period - now or 0
            if reset_after < 0 then reset_after = 0 end
            if is_foreign then
                reply, more = '', nil
            elseif reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked, flags, retry_after, remaining, reset_after, window)
            else
                reply = pack('>i8i8i8i8i8i8i8i8i8i8i8', now, here, denied, 0, charged, blocked, flags, retry_after, remaining, reset_after, window)
            end
            times = times - here
        end
    end

    local text, micros
    if is_changed and reply ~= '' then
        micros = noted > 0 and period or newest and newest + period - now or 0
        if micros < 0 then micros = 0 end
        local entries = value and string.sub(value, from, to) or ''
        if noted > 0 then entries = entries .. pack('>I7I3', now, noted) end
        text = format('%d:%d', total, #entries)
        if entries ~= '' then block = block .. '\n' .. entries end
    end
