-- A sliding window whose limit is weighted as its counts are. The state is a sliding window's.

local VaryingSlidingWindow = {}
for name, action in pairs(SlidingWindow) do VaryingSlidingWindow[name] = action end
VaryingSlidingWindow.vary = read_limits

local NO_SLICES = { newest = 0 }

-- The units in use less the limit are (start + rise · e / S) / n at e of S microseconds of a slice, and in the
-- following slices while nothing is counted and no entry begins.
local function line(q, slices, limits, index)
    local leaving = count_of(slices, index, q.slices)
    local start = q.slices * (whole(q, slices, index) + leaving) - sum_before(q, limits, index)
    return start, limit_at(q, limits, index - q.slices) - limit_at(q, limits, index) - q.slices * leaving
end

-- floor(a / b) also of a negative number.
local function floor_div(a, b)
    local rest = fmod(a, b)
    if rest < 0 then rest = rest + b end
    return (a - rest) / b
end

-- The units in use less the limit, rounded down.
local function balance(q, slices, limits, newest, passed)
    local start, rise = line(q, slices, limits, newest)
    local risen, rest = mul_div(passed, rise < 0 and -rise or rise, q.slice)
    if rise < 0 then risen = rest > 0 and -risen - 1 or -risen end
    return floor_div(start + risen, q.slices)
end

-- The first microsecond from `from` on, of `length` slices, at which `cost` fits: the line with it, less one unit, is
-- below 0, and so is its floor.
local function first_below(q, slices, limits, cost, index, from, length)
    local start, rise = line(q, slices, limits, index)
    start = start + q.slices * (cost - 1)
    local risen, rest = mul_div(from, rise < 0 and -rise or rise, q.slice)
    if rise < 0 then risen = rest > 0 and -risen - 1 or -risen end
    if start + risen < 0 then return from end
    if rise >= 0 or start >= -rise * length then return nil end
    local at = mul_div(start, q.slice, -rise) + 1
    return at < q.slice * length and at or nil
end

-- The time until `cost` fits, which can be the next day; nil if it never does.
local function time_to_fit(q, slices, limits, cost)
    local index, from = position(q, slices)
    local last_counted = max(slices.newest + q.slices, index)
    while index <= last_counted do
        local at = first_below(q, slices, limits, cost, index, from, 1)
        if at then return max(index * q.slice + at - now, 0) end
        index, from = index + 1, 0
    end
    local last = end_of_waits(q, index)
    while index < last do
        -- The oldest slice that counts meets the entries one period later.
        local oldest = index - q.slices
        local length = min(next_change(q, index) - index, next_change(q, oldest) - oldest, last - index)
        local at = first_below(q, NO_SLICES, limits, cost, index, 0, length)
        if at then return index * q.slice + at - now end
        index = index + length
    end
end

local function verdict_by(q, slices, limits, cost)
    if cost == 0 then return FITS, 0, 0 end
    local newest, passed = position(q, slices)
    if cost <= -balance(q, slices, limits, newest, passed) then return FITS, 0, 0 end
    if cost > most_of(limits) then return NEVER end
    local wait = time_to_fit(q, slices, limits, cost)
    if wait then return AFTER, wait, 0 end
    return NEVER
end

function VaryingSlidingWindow.verdict(q, slices, cost)
    return verdict_by(q, slices, q.limits, cost)
end

function VaryingSlidingWindow.available(q, slices)
    local newest, passed = position(q, slices)
    return max(-balance(q, slices, q.limits, newest, passed), 0)
end

-- A part of a unit counts, too: a cost may exceed a fraction of a limit by less than one.
function VaryingSlidingWindow.reset_after(q, slices)
    for age = 0, q.slices do
        if (slices[age + 1] or 0) > 0 then
            return max((slices.newest - age + q.slices + 1) * q.slice - now, 0), 0
        end
    end
    return 0, 0
end

function VaryingSlidingWindow.charge(q, slices, cost)
    local units = min(cost, VaryingSlidingWindow.available(q, slices))
    advance(q, slices)
    slices[1] = slices[1] + units
    freshen(q, slices)
end

function VaryingSlidingWindow.standing(q, slices)
    local newest, passed = position(q, slices)
    local limits = reported_limits(q)
    local left = -balance(q, slices, limits, newest, passed)
    local is_excess = q.extra > 0 and left < 0
    local window = 0
    if left > 0 then
        window = micros_up(mul(left, q.tu, q.tn))
    else
        local verdict, u = verdict_by(q, slices, limits, 1)
        if verdict == AFTER then window = u end
        if verdict == NEVER then window = micros_up(q.tu, q.tn) end
    end
    local limit = -balance(q, NO_SLICES, q.nominal, newest, passed)
    local reset_after = VaryingSlidingWindow.reset_after(q, slices)
    return packed_standing(q, limit, is_excess, max(left, 0), reset_after, window)
end
