-- A counter that starts again with each window. The state is the window's number and the count. The windows of a
-- calendar are in the arguments: this script knows no months.
--
-- Twins in fixed_window.rs: current, available, lasts = reset_after, charge, settle, refund, clamp = clamped.
-- Twins in core/src/algorithm/calendar_windows.rs: place = around.
-- Twins in state_text.rs: parse = window, text = write, shown = state_of_numbers.

local FixedWindow = {
    new = '0:0',
    available = 0, shown = 0, lasts = 0, until_end = 0, charge = 0, settle = 0, refund = 0, clamp = 0, parse = 0, text = 0,
}

-- The number of the window at an instant.
local function index_at(q, at)
    return q.index or div(at, 0, q.period_u, q.period_n)
end

-- The current window: now's, or the next one, if the clock stepped back since it was written.
local function current(q, window, at)
    local index = index_at(q, at or now)
    if window.index < index or window.count == 0 then return index, 0 end
    return window.index, window.count
end

-- The time until the current window ends.
function FixedWindow.until_end(q, window)
    local index = current(q, window)
    if q.index then return (index == q.index and q.ends or q.next_ends) - now, 0 end
    local u, n = mul(index + 1, q.period_u, q.period_n)
    return sub(u, n, now, 0)
end

function FixedWindow.available(q, window)
    local _, count = current(q, window)
    return max(q.capacity - count, 0)
end

function FixedWindow.shown(q, window)
    return pack('>i8i8', current(q, window))
end

function FixedWindow.lasts(q, window)
    local _, count = current(q, window)
    if count == 0 then return 0, 0 end
    return FixedWindow.until_end(q, window)
end

-- A larger quota that shares the window may have counted more.
function FixedWindow.charge(q, window, cost)
    local index, count = current(q, window)
    window.index, window.count = index, max(min(count + cost, q.capacity), count)
end

-- Counts beyond the limit, when a lease ends or now.
function FixedWindow.settle(q, window, ends, units)
    local index, count = current(q, window, min(max(ends - 1, 0), now))
    window.index, window.count = index, max(min(count + units, q.most_u), count)
end

function FixedWindow.refund(q, window, cost, charge)
    local index, count = current(q, window)
    -- A charge in a window of the calendar has its number as its end.
    if not charge or (q.index and charge.end_u or index_at(q, charge.at)) == index then
        count = max(count - cost, 0)
    end
    window.index, window.count = index, count
end

-- Corrects a window more than one ahead, after the clock stepped back, and a count above the most, of a larger quota.
function FixedWindow.clamp(q, window)
    local index = index_at(q, now)
    if window.index > index + 1 then window.index = index end
    window.count = min(window.count, q.most_u)
end

-- Finds now's window in a calendar: `edges` are the microseconds at which windows begin, the first of them number
-- `first`. The window after now's has to end within them, too.
function FixedWindow.place(q, first, edges)
    local ends = {}
    for edge in string.gmatch(edges, '%d+') do ends[#ends + 1] = edge + 0 end
    for at = 1, #ends - 2 do
        if ends[at] <= now and now < ends[at + 1] then
            q.index, q.ends, q.next_ends = first + at - 1, ends[at + 1], ends[at + 2]
            return true
        end
    end
end

function FixedWindow.parse(text)
    if text == '0' then return { index = 0, count = 0 } end
    local index, count = match(text, '^(%d+):(%d+)$')
    if not index or #index > 16 or #count > 16 then return nil end
    return { index = index + 0, count = count + 0 }
end

function FixedWindow.text(window)
    return format('%d:%d', window.index, window.count)
end
