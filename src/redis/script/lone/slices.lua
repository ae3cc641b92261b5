-- The part of its slice that has to pass until `count` weighs no more than `room`:
-- floor(count · left / slice) <= room exactly if count · left < (room + 1) · slice.
local function weighs_at_most(count, room)
    if count <= room then return 0 end
    local product = (room + 1) * slice
    local rest = product % count
    local left = (product - rest) / count
    return slice - (rest == 0 and left - 1 or left)
end

-- The time until no more than `room` counts, from `over` on in a slice that begins at `start`.
local function first_fit(newer, older, room, start, over)
    if newer <= room then
        local fits = weighs_at_most(older, room - newer)
        if fits < over then fits = over end
        if fits < slice then return start + fits end
    end
    return start + slice + weighs_at_most(newer, room)
end
