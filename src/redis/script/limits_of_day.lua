-- Limits by the time of day. An entry has the slice of the day at which it begins, and three limits: with the soft
-- share, the part of this class of requests, and the nominal one. This script knows no zones: if the times are those
-- of one, the node sends the slices around its own time from which on the zone is ahead of UTC by as many slices.

-- Reads the number of slices and the entries of a day. False if the server's clock is outside of the zone's slices.
local function read_limits(q, text)
    q.slices, q.period_n, q.day = match(text, '^%d+') + 0, 0, quotient(86400000000, q.slice)
    q.begins, q.whole_limits, q.limits, q.nominal = {}, {}, {}, {}
    for begin, all, own, nominal in string.gmatch(text, ';(%d+):(%d+):(%d+):(%d+)') do
        local at = #q.begins + 1
        q.begins[at], q.whole_limits[at], q.limits[at], q.nominal[at] = begin + 0, all + 0, own + 0, nominal + 0
    end
    local first, last, spans = match(text, '@(%d+)-(%d+)(.*)$')
    if not first then return true end
    q.spans, q.shifts = {}, {}
    for begin, shift in string.gmatch(spans, ':(-?%d+):(-?%d+)') do
        local at = #q.spans + 1
        q.spans[at], q.shifts[at] = begin + 0, shift + 0
    end
    local index = quotient(now, q.slice)
    return first + 0 <= index and index <= last + 0
end

-- The place of the span with one shift that a slice is in.
local function span_of(q, index)
    local at = #q.spans
    while at > 1 and q.spans[at] > index do at = at - 1 end
    return at
end

-- The slice of the day, which also those before the epoch have.
local function slot_of(q, index)
    if q.spans then index = index + q.shifts[span_of(q, index)] end
    local slot = fmod(index, q.day)
    return slot < 0 and slot + q.day or slot
end

-- The place of the entry in force at a slice of the day.
local function place_of(q, slot)
    local at = #q.begins
    while q.begins[at] > slot do at = at - 1 end
    return at
end

local function limit_at(q, limits, index)
    return limits[place_of(q, slot_of(q, index))]
end

-- The first slice after this one at which another entry begins, or at which the zone's clocks are set.
local function next_change(q, index)
    local slot = slot_of(q, index)
    local change = index + (q.begins[place_of(q, slot) + 1] or q.day) - slot
    return q.spans and min(change, q.spans[span_of(q, index) + 1] or change) or change
end

local function most_of(limits)
    local most = 0
    for at = 1, #limits do most = max(most, limits[at]) end
    return most
end

-- The sum of the limits of as many slices as a period has, before this one.
local function sum_before(q, limits, index)
    local sum, left = 0, q.slices
    while left > 0 do
        local slot = slot_of(q, index - 1)
        local at = place_of(q, slot)
        local here = min(slot - q.begins[at] + 1, left)
        local span = q.spans and span_of(q, index - 1) or 1
        if span > 1 then here = min(here, index - q.spans[span]) end
        sum, left, index = sum + here * limits[at], left - here, index - here
    end
    return sum
end

-- The first window after this one into which `cost` fits; there is one.
local function first_with(q, cost, index)
    index = index + 1
    while limit_at(q, q.limits, index) < cost do index = next_change(q, index) end
    return index
end

-- The first slice that a wait does not reach, if nothing is counted from `index` on. Every day is like the next; in a
-- zone one of two days is, since clocks are not set twice in two days.
local function end_of_waits(q, index)
    if q.spans then return quotient(now, q.slice) + 2 * (q.day + q.slices) + 1 end
    return index + q.day
end

-- The numbers of a quota: its flags have the limit in force.
local function packed_standing(q, limit, is_excess, remaining, reset_after, window)
    local flags = q.denied + (is_excess and 2 or 0) + 4 * limit
    return pack('>i8i8i8i8i8', flags, q.retry_after, remaining, reset_after, window)
end

-- The limits that the remaining units are of: those of a class, otherwise without the soft share.
local function reported_limits(q)
    return q.whole and q.limits or q.nominal
end
