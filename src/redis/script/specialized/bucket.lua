
    -- The time until the bucket is full, also in whole microseconds and a rest.
    local level, u, n, is_changed = 0, 0, 0, false
    if one and not reply then
        level = (one - now) * 1000 + two
        if level < 0 then
            level = 0
        elseif level > full and level > ARGV[4] + 0 then
            -- A TAT beyond the most: the clock stepped back, or the quota was larger.
            level, is_changed = ARGV[4] + 0, true
        end
    end

    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        local need = cost * interval
        while times > 0 do
            local here, denied, retry_after, charged = times, 0, -1, 0
            if level + need > full and cost > 0 then
                denied = 1
                if need <= full then retry_after = math.ceil((level + need - full) / 1000) end
            elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                level, charged, is_changed = level + need, cost, true
                if times > 1 then
                    local left = full - level
                    here = math.min(times, 1 + (left - left % need) / need)
                end
            end
            n = level % 1000
            u = (level - n) / 1000
            if reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked, denied + 4 * n, retry_after, u)
            else
                reply = pack('>i8i8i8i8i8i8i8i8i8', now, here, denied, 0, charged, blocked, denied + 4 * n, retry_after, u)
            end
            if here > 1 and charged > 0 then
                level = level + (here - 1) * need
                n = level % 1000
                u = (level - n) / 1000
            end
            times = times - here
        end
    end

    local text, micros
    if is_changed then
        text, micros = format('%d%03d', now + u, n), n > 0 and u + 1 or u
    end
