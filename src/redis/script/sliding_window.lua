-- Counters of slices of the period; the oldest counts in proportion. The state is the number of the
-- newest slice, and its count and those before it, newest first; none if never used.

local SlidingWindow = {
    new = '0',
    verdict = 0, available = 0, reset_after = 0, charge = 0, refund = 0, clamp = 0, fresh = 0, parse = 0, text = 0,
}

-- The number of now's slice, and how much of it has passed. The slice after it stays in force.
local function position(q, slices)
    local passed = fmod(now, q.slice)
    local index = (now - passed) / q.slice
    if slices.newest == index + 1 then return index + 1, 0 end
    return index, passed
end

-- The count of the slice `age` slices before `newest`.
local function count_of(slices, newest, age)
    local at = age - max(newest - slices.newest, 0)
    if at < 0 then return 0 end
    return slices[at + 1] or 0
end

local function weighted(q, count, passed)
    return (mul_div(count, q.slice - passed, q.slice))
end

local function whole(q, slices, newest)
    local sum = 0
    for age = 0, q.slices - 1 do sum = sum + count_of(slices, newest, age) end
    return sum
end

local function slices_used(q, slices)
    local newest, passed = position(q, slices)
    local oldest = count_of(slices, newest, q.slices)
    return whole(q, slices, newest) + weighted(q, oldest, passed)
end

-- The part of its slice that has to pass until `count` weighs no more than `room`:
-- floor(count · left / slice) <= room exactly if count · left < (room + 1) · slice.
local function weighs_at_most(q, count, room)
    if room >= count then return 0 end
    local left, rest = mul_div(room + 1, q.slice, count)
    if rest == 0 then left = left - 1 end
    return q.slice - min(left, q.slice)
end

-- The time until no more than `room` counts, which can be several slices away.
local function first_fit(q, slices, room)
    local newest, passed = position(q, slices)
    local counted = whole(q, slices, newest)
    for ahead = 0, q.slices do
        -- In each later slice the oldest whole one begins to leave.
        local oldest = count_of(slices, newest, q.slices - ahead)
        local from = passed
        if ahead > 0 then counted, from = counted - oldest, 0 end
        if counted <= room then
            local at = max(weighs_at_most(q, oldest, room - counted), from)
            if at < q.slice then return (newest + ahead) * q.slice + at - now end
        end
    end
    return (newest + q.slices + 1) * q.slice - now
end

-- Makes now's slice the newest.
local function advance(q, slices)
    local newest = position(q, slices)
    if slices.newest == newest and slices[1] then return end
    local counts = {}
    for age = 0, q.slices do counts[age + 1] = count_of(slices, newest, age) end
    for at = 1, q.slices + 1 do slices[at] = counts[at] end
    slices.newest = newest
end

-- Slices in which nothing is counted are as good as new.
local function freshen(q, slices)
    for at = 1, q.slices + 1 do
        if slices[at] > 0 then return end
    end
    slices.newest = 0
    for at = 1, q.slices + 1 do slices[at] = nil end
end

function SlidingWindow.verdict(q, slices, cost)
    if cost > q.capacity then return NEVER end
    if cost == 0 or cost <= q.capacity - slices_used(q, slices) then return FITS, 0, 0 end
    return AFTER, first_fit(q, slices, q.capacity - cost), 0
end

function SlidingWindow.available(q, slices)
    return max(q.capacity - slices_used(q, slices), 0)
end

function SlidingWindow.reset_after(q, slices)
    if slices_used(q, slices) == 0 then return 0, 0 end
    return first_fit(q, slices, 0), 0
end

function SlidingWindow.charge(q, slices, cost)
    local room = SlidingWindow.available(q, slices)
    advance(q, slices)
    slices[1] = slices[1] + min(cost, room)
    freshen(q, slices)
end

function SlidingWindow.refund(q, slices, cost, charge)
    advance(q, slices)
    local age = charge and slices.newest - quotient(charge.at, q.slice) or 0
    if age >= 0 and slices[age + 1] then
        slices[age + 1] = max(slices[age + 1] - cost, 0)
    end
    freshen(q, slices)
end

-- Slices too far ahead come from a clock that stepped back, a count above the most from a larger quota.
function SlidingWindow.clamp(q, slices)
    if slices.newest > position(q, slices) then advance(q, slices) end
    for at, count in ipairs(slices) do slices[at] = min(count, q.most_u) end
end

function SlidingWindow.fresh()
    return { newest = 0 }
end

function SlidingWindow.parse(text, q)
    local slices = {}
    for number in text:gmatch('[^:]+') do
        if not number:match('^%d+$') or #number > 16 then return nil end
        slices[#slices + 1] = tonumber(number)
    end
    local newest = table.remove(slices, 1)
    if #slices ~= 0 and #slices ~= q.slices + 1 then return nil end
    slices.newest = newest
    return newest and slices
end

function SlidingWindow.text(slices)
    local numbers = { format('%d', slices.newest) }
    for at, count in ipairs(slices) do numbers[at + 1] = format('%d', count) end
    return table.concat(numbers, ':')
end
