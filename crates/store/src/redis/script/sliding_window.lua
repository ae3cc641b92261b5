-- Counters of slices of the period; the oldest counts in proportion. The state is the number of the
-- newest slice, and its count and those before it, newest first; none if never used.
--
-- Twins in sliding_window.rs: position, advance, freshen, available, lasts, until_end = slice_end, charge, settle, refund.
-- Twins in sliding_window.rs: clamp.
-- Twins in state_text.rs: parse = slices, text = write, shown = state_of_numbers.

local SlidingWindow = {
    new = '0',
    available = 0, shown = 0, lasts = 0, until_end = 0, charge = 0, settle = 0, refund = 0, clamp = 0, parse = 0, text = 0,
}

-- The number of the slice in force at an instant, and how much of it has passed. The slice after it stays in force.
local function position(q, slices, at)
    at = at or now
    local passed = fmod(at, q.slice)
    local index = (at - passed) / q.slice
    if slices.newest == index + 1 then return index + 1, 0 end
    return index, passed
end

-- The units in use: those of whole slices, and a part of those of the oldest.
local function slices_used(q, slices)
    local newest, passed = position(q, slices)
    local last = q.slices + 1 - max(newest - slices.newest, 0)
    local sum = 0
    for at = 1, min(last - 1, #slices) do sum = sum + slices[at] end
    local oldest = slices[last] or 0
    if oldest > 0 then sum = sum + mul_div(oldest, q.slice - passed, q.slice) end
    return sum
end

-- Makes the slice in force the newest, in these slices or in others that `to` will be.
local function advance(q, slices, at, to)
    local newest = position(q, slices, at)
    if slices.newest == newest and slices[1] then return slices end
    to = to or slices
    local ahead = max(newest - slices.newest, 0)
    for at = q.slices + 1, 1, -1 do to[at] = slices[at - ahead] or 0 end
    to.newest = newest
    return to
end

-- Slices in which nothing is counted are as good as new.
local function freshen(q, slices)
    for at = 1, q.slices + 1 do
        if slices[at] > 0 then return end
    end
    slices.newest = 0
    for at = 1, q.slices + 1 do slices[at] = nil end
end

function SlidingWindow.available(q, slices)
    return max(q.capacity - slices_used(q, slices), 0)
end

-- The number of the slice in force, and the counts from it on.
function SlidingWindow.shown(q, slices)
    local counts = advance(q, slices, now, {})
    return pack('>i8' .. string.rep('i8', q.slices + 1), counts.newest, unpack(counts))
end

-- The time until the newest slice has left the window, whatever it counts: at most a slice too much.
function SlidingWindow.lasts(q, slices)
    if not slices[1] then return 0, 0 end
    local newest = min(slices.newest, (position(q, slices)))
    return max((newest + q.slices + 1) * q.slice - now, 0), 0
end

-- The time until the slice in force ends.
function SlidingWindow.until_end(q, slices)
    return ((position(q, slices)) + 1) * q.slice - now
end

function SlidingWindow.charge(q, slices, cost)
    local room = SlidingWindow.available(q, slices)
    advance(q, slices)
    slices[1] = slices[1] + min(cost, room)
    freshen(q, slices)
end

-- Counts beyond the limit, in the slice of the end of a lease or now.
function SlidingWindow.settle(q, slices, ends, units)
    local at = min(max(ends - 1, 0), now)
    local index = position(q, slices, at)
    if slices.newest < index or not slices[1] then advance(q, slices, at) end
    local place = slices.newest - index + 1
    if slices[place] then slices[place] = max(min(slices[place] + units, q.most_u), slices[place]) end
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

function SlidingWindow.parse(text, q)
    if not match(text, '^[%d:]+$') then return nil end
    local slices, newest = {}, nil
    for number in string.gmatch(text, '%d+') do
        if #number > 16 then return nil end
        if newest then slices[#slices + 1] = number + 0 else newest = number + 0 end
    end
    if #slices ~= 0 and #slices ~= q.slices + 1 then return nil end
    slices.newest = newest
    return newest and slices
end

function SlidingWindow.text(slices)
    return format('%d' .. string.rep(':%d', #slices), slices.newest, unpack(slices))
end
