
    local reset_after
    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        while times > 0 do
            local here, denied, retry_after, charged = times, 0, -1, 0
            local weighted = older * (slice - over)
            local used = newer + (weighted - weighted % slice) / slice
            if cost > capacity then
                denied = 1
            elseif cost > 0 and cost > capacity - used then
                denied, retry_after = 1, first_fit(newer, older, capacity - cost, start, over)
            elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                newer, used, here, charged = newer + cost, used + cost, 1, cost
                newest, latest, earlier = index, newer, older
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
                window = first_fit(newer, older, capacity - extra - 1, start, over) * 1000
            end
            local rest = window % 1000
            window = rest > 0 and (window - rest) / 1000 + 1 or window / 1000
            reset_after = used > 0 and first_fit(newer, older, 0, start, over) or 0
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
        text, micros = newest and format('%d:%d:%d', newest, latest, earlier) or '0', reset_after
        if text .. block == (value or '0') then text = nil end
    end
