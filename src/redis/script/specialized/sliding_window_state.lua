
    -- The number of the newest slice, none for a state as good as new, its count and that of the one before.
    local newest, latest, earlier = nil, 0, 0
    -- The current slice, which is now's or the next one: its beginning relative to now, how much of it has passed, and
    -- the counts of it and of the one before.
    local index, start, over, newer, older = current, -passed, passed, 0, 0
    if one and not reply then
        newest, latest, earlier = one + 0, two + 0, three + 0
        -- A count above the most: the quota was larger. A slice too far ahead: the clock stepped back.
        if latest > capacity and latest > most + 0 then latest = most + 0 end
        if earlier > capacity and earlier > most + 0 then earlier = most + 0 end
        if newest == current + 1 then
            index, start, over = newest, slice - passed, 0
        elseif newest > current then
            newest = current
        end
        if newest == index then
            newer, older = latest, earlier
        elseif newest + 1 == index then
            older = latest
        end
    end
