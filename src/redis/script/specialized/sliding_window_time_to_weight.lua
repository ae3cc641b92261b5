-- The part of its slice that has to pass until `count` weighs no more than `room`:
-- floor(count · left / slice) <= room exactly if count · left < (room + 1) · slice.
local function weighs_at_most(count, room)
    if count <= room then return 0 end
    local product = (room + 1) * slice
    local rest = product % count
    local left = (product - rest) / count
    return slice - (rest == 0 and left - 1 or left)
end

