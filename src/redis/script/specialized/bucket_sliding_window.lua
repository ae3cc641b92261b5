
    local weighted = older * (slice - over)
    local used = newer + (weighted - weighted % slice) / slice
    local reset_after
    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        local need = cost * interval
        while times > 0 do
            local here, denied, charged = times, 0, 0
            local bucket_flags, bucket_after, window_flags, window_after = 0, -1, 0, -1
            if cost > 0 then
                if level + need > full then
                    denied, bucket_flags = 1, 1
                    if need <= full then bucket_after = math.ceil((level + need - full) / 1000) end
                end
                if cost > capacity - used then
                    denied, window_flags = 1, 1
                    if cost <= capacity then window_after = first_fit(newer, older, capacity - cost, start, over) end
                end
                if denied == 0 and blocked == 0 and (op == 'a' or op == 'v') then
                    level, newer, used = level + need, newer + cost, used + cost
                    here, charged, is_charged = 1, cost, true
                end
            end
            local left = used < capacity and capacity - used or 0
            if left < extra then window_flags = window_flags + 2 end
            -- The time in which the units that are left would refill, or the time until the next unit.
            local remaining, until_next = 0, 0
            if left > extra then
                remaining, until_next = left - extra, (left - extra) * unit
            elseif extra >= capacity then
                until_next = unit
            else
                until_next = first_fit(newer, older, capacity - extra - 1, start, over) * 1000
            end
            local rest = until_next % 1000
            until_next = rest > 0 and (until_next - rest) / 1000 + 1 or until_next / 1000
            reset_after = used > 0 and first_fit(newer, older, 0, start, over) or 0
            local n = level % 1000
            local a, b, c, d = bucket_flags + 4 * n, bucket_after, (level - n) / 1000, window_flags
            local e, f, g, h = window_after, remaining, reset_after, until_next
            if window_first then a, b, c, d, e, f, g, h = d, e, f, g, h, a, b, c end
            if reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8i8i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked, a, b, c, d, e, f, g, h)
            else
                reply = pack('>i8i8i8i8i8i8i8i8i8i8i8i8i8i8', now, here, denied, 0, charged, blocked, a, b, c, d, e, f, g, h)
            end
            times = times - here
        end
    end

    local text, micros
    if reply ~= '' then
        if is_charged then newest, latest, earlier = index, newer, older end
        local n = level % 1000
        local u = (level - n) / 1000
        local is_changed = is_charged or is_clamped
        local bucket = is_changed and format('%d%03d', now + u, n) or tat_u and tat_u .. tat_n or '0'
        local window = newest and format('%d:%d:%d', newest, latest, earlier) or '0'
        text = window_first and window .. ';' .. bucket or bucket .. ';' .. window
        if not is_charged and text .. block == (value or '0;0') then text = nil end
        micros = n > 0 and u + 1 or u
        if reset_after > micros then micros = reset_after end
    end
