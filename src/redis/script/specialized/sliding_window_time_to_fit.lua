-- The time until no more than `room` counts, from `over` on in a slice that begins at `start`.
local function first_fit(newer, older, room, start, over)
    if newer <= room then
        local fits = weighs_at_most(older, room - newer)
        if fits < over then fits = over end
        if fits < slice then return start + fits end
    end
    return start + slice + weighs_at_most(newer, room)
end
