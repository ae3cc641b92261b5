
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
                    if cost <= capacity then window_after = until_end end
                end
                if denied == 0 and blocked == 0 and (op == 'a' or op == 'v') then
                    level, used, here, charged, is_charged = level + need, used + cost, 1, cost, true
                end
            end
            local left = used < capacity and capacity - used or 0
            if left < extra then window_flags = window_flags + 2 end
            local n = level % 1000
            local a, b, c, d = bucket_flags + 4 * n, bucket_after, (level - n) / 1000, window_flags
            local e, f, g, h = window_after, used, used > 0 and until_end or 0, until_end
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
        if is_charged then index, count = window, used end
        local n = level % 1000
        local u = (level - n) / 1000
        local is_changed = is_charged or is_clamped
        local bucket = is_changed and format('%d%03d', now + u, n) or tat_u and tat_u .. tat_n or '0'
        text = window_first and format('%d:%d;%s', index, count, bucket) or format('%s;%d:%d', bucket, index, count)
        if not is_charged and text .. block == (value or window_first and '0:0;0' or '0;0:0') then text = nil end
        micros = n > 0 and u + 1 or u
        if used > 0 and until_end > micros then micros = until_end end
    end
