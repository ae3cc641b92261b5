
    -- The window of the state, and its count.
    local index, count = 0, 0
    if one and not reply then
        index, count = one + 0, two + 0
        -- A window more than one ahead: the clock stepped back. A count above the most: the quota was larger.
        if index > current + 1 then index = current end
        if count > capacity and count > most + 0 then count = most + 0 end
    end

    -- The current window, which is now's or the next one, its count, and the time until it ends.
    local window, used = index, count
    if index < current or count == 0 then window, used = current, 0 end
    local until_end = (window + 1) * period - now
