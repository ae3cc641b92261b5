    for row = reply and last + 1 or first, last, 3 do
        local op, cost, times = ARGV[row], ARGV[row + 1] + 0, ARGV[row + 2] + 0
        while times > 0 do
            local here, denied, retry_after, charged = times, 0, -1, 0
            if op == 'n' then
                here, charged = 1, cost
                if cost > 0 then
                    used = used + cost
                    if used > most + 0 then used = most + 0 end
                    index, count = window, used
                end
                if used > capacity then
                    denied, retry_after = 1, cost > capacity and -1 or until_end
                end
            elseif cost > capacity then
                denied = 1
            elseif cost > 0 and cost > capacity - used then
                denied, retry_after = 1, until_end
            elseif cost > 0 and blocked == 0 and (op == 'a' or op == 'v') then
                used, here, charged = used + cost, 1, cost
                index, count = window, used
            end
            local left = used < capacity and capacity - used or 0
            local flags = left < extra and denied + 2 or denied
            local reset_after = used > 0 and until_end or 0
            if reply then
                more = more or {}
                more[#more + 1] = pack('>i8i8i8i8i8i8i8i8i8i8', here, denied, 0, charged, blocked, flags, retry_after, used, reset_after, until_end)
            else
                reply = pack('>i8i8i8i8i8i8i8i8i8i8i8', now, here, denied, 0, charged, blocked, flags, retry_after, used, reset_after, until_end)
            end
            times = times - here
        end
    end

    local text, micros
    if reply ~= '' then
        text, micros = format('%d:%d', index, count), used > 0 and until_end or 0
        if text .. block == (value or '0:0') then text = nil end
    end
