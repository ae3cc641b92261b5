-- The times of the units admitted in the trailing period. The state is the sum of all counts, and the
-- entries, oldest first, as bytes: seven for the microsecond, three for the count. They stay bytes because
-- most decisions read one or two of them, and a log can be long. Entries noted now are added at the end of
-- the call, so that many operations copy the bytes once.
--
-- Twins in sliding_log.rs: leaves_after, is_gone = is_expired, gone = expired, tidy, wait = verdict, available.
-- Twins in sliding_log.rs: lasts = reset_after, charge, settle, refund, clamp.
-- Twins in state_text.rs: parse = log, text = write.
-- Twins in compiled_quota.rs: shown = status_of_log.

local SlidingLog = {
    new = '0:0',
    available = 0, wait = 0, shown = 0, lasts = 0, charge = 0, settle = 0, refund = 0, clamp = 0, parse = 0, text = 0,
}

local ENTRY, MOST_OF_ENTRY = 10, 16777215

-- The most entries that may stay after they have left the window: a denial does not have to write.
local MOST_KEPT = 256

local function entry_at(log, index)
    if index < 0 or (index + 1) * ENTRY > #log.bytes then return nil end
    local at, count = struct.unpack('>I7I3', log.bytes, index * ENTRY + 1)
    return at, count
end

-- The count of an existing entry.
local function count_at(log, index)
    return (struct.unpack('>I3', log.bytes, index * ENTRY + 8))
end

-- The time from now until an entry of `at` leaves the window; a time later than now counts as now.
local function leaves_after(q, at)
    local u, n = add(min(at, now), 0, q.period_u, q.period_n)
    return sub(u, n, now, 0)
end

local function is_gone(q, at)
    local u, n = leaves_after(q, at)
    return u == 0 and n == 0
end

-- The number of entries before the first one whose time is not early.
local function entries_before(log, is_early)
    local from, to = 0, #log.bytes / ENTRY
    while from < to do
        local middle = floor((from + to) / 2)
        if is_early((entry_at(log, middle))) then from = middle + 1 else to = middle end
    end
    return from
end

-- The number of entries that have left the window, and their sum: constant during a call until `tidy` drops
-- them.
local function gone(q, log)
    if not log.gone then
        local oldest, entries, sum = entry_at(log, 0), 0, 0
        if oldest and is_gone(q, oldest) then
            entries = entries_before(log, function(at) return is_gone(q, at) end)
        end
        for index = 0, entries - 1 do sum = sum + count_at(log, index) end
        log.gone, log.gone_sum = entries, sum
        -- The head has less than the entries: too much would pass.
        log.is_foreign = sum > log.total
    end
    return log.gone, log.gone_sum
end

-- The time of the newest entry.
local function newest_of(log)
    if log.noted > 0 then return now end
    return (entry_at(log, #log.bytes / ENTRY - 1))
end

-- Drops entries that have left the window, and moves times later than now to now.
local function tidy(q, log)
    local entries, sum = gone(q, log)
    if entries > 0 then
        log.bytes, log.total = log.bytes:sub(entries * ENTRY + 1), log.total - sum
        log.gone, log.gone_sum = 0, 0
    end
    local last, later = #log.bytes / ENTRY, 0
    while last > 0 do
        local at, count = entry_at(log, last - 1)
        if at < now then break end
        later, last = later + count, last - 1
    end
    if later > 0 then
        log.bytes, log.noted = log.bytes:sub(1, last * ENTRY), log.noted + later
    end
end

-- The time until a cost fits that does not fit now, but can.
function SlidingLog.wait(q, log, cost)
    local room = q.capacity - cost
    local entries, sum = gone(q, log)
    local left = log.total - sum
    for index = entries, #log.bytes / ENTRY - 1 do
        left = left - count_at(log, index)
        if left <= room then return leaves_after(q, (entry_at(log, index))) end
    end
    -- The head has more than the entries: it would deny forever.
    log.is_foreign = log.is_foreign or left ~= log.noted
    return leaves_after(q, now)
end

function SlidingLog.available(q, log)
    local _, sum = gone(q, log)
    return max(q.capacity - (log.total - sum), 0)
end

-- A log is long: the reply has its numbers instead. They are the units in use, the time until all of them have left, the
-- wait of a denial, and if no unit is left the time until one is. Units that nodes hold may be spent for a `delay`.
function SlidingLog.shown(q, log, wait, delay)
    local _, sum = gone(q, log)
    local used, window = log.total - sum, 0
    if max(q.capacity - used, 0) <= q.extra then
        window = q.extra < q.capacity and micros_up(SlidingLog.wait(q, log, q.extra + 1)) + delay or -1
    end
    return pack('>i8i8i8i8', used, micros_up(SlidingLog.lasts(q, log)) + delay, wait, window)
end

-- The time until the newest entry has left the window.
function SlidingLog.lasts(q, log)
    local at = newest_of(log)
    if not at then return 0, 0 end
    return leaves_after(q, at)
end

function SlidingLog.charge(q, log, cost)
    local count = min(cost, SlidingLog.available(q, log))
    tidy(q, log)
    log.total, log.noted = log.total + count, log.noted + count
end

-- Adds units at the end of a lease or now, whether or not there is room; if there are later ones, to these.
function SlidingLog.settle(q, log, ends, units)
    tidy(q, log)
    local newest, count = now, log.noted
    if count == 0 then newest, count = entry_at(log, #log.bytes / ENTRY - 1) end
    local at = max(min(ends, now), newest or 0)
    if is_gone(q, at) then return end
    if at ~= newest then count = 0 end
    units = min(units, MOST_OF_ENTRY - min(count, MOST_OF_ENTRY))
    log.total = log.total + units
    if at == now then
        log.noted = log.noted + units
    else
        if at == newest then log.bytes = log.bytes:sub(1, -ENTRY - 1) end
        log.bytes = log.bytes .. pack('>I7I3', at, count + units)
    end
end

-- Removes the entry of a charge, or the newest. An entry that has left the window by itself is not returned a
-- second time.
function SlidingLog.refund(q, log, cost, charge)
    -- Removes up to `most` units noted at `time`. Returns how many are left to remove.
    local function take_at(log, time, most)
        if time == now then
            local noted = min(most, log.noted)
            log.noted = log.noted - noted
            return most - noted
        end
        local index = entries_before(log, function(at) return at < time end)
        local at, count = entry_at(log, index)
        if at ~= time then return most end
        local taken = min(most, count)
        local rest = taken < count and pack('>I7I3', at, count - taken) or ''
        log.bytes = log.bytes:sub(1, index * ENTRY) .. rest .. log.bytes:sub((index + 1) * ENTRY + 1)
        return most - taken
    end

    -- Removes up to `most` units from the newest entries. Returns how many are left to remove.
    local function take_newest(log, most)
        local noted = min(most, log.noted)
        log.noted, most = log.noted - noted, most - noted
        local last, rest = #log.bytes / ENTRY, ''
        while most > 0 and last > 0 do
            local at, count = entry_at(log, last - 1)
            if count > most then rest = pack('>I7I3', at, count - most) end
            most, last = max(most - count, 0), last - 1
        end
        if last < #log.bytes / ENTRY then log.bytes = log.bytes:sub(1, last * ENTRY) .. rest end
        return most
    end

    tidy(q, log)
    local left = charge and take_at(log, charge.at, cost) or take_newest(log, cost)
    log.total = log.total - (cost - left)
end

-- Times later than now were written before the clock stepped back. Many entries that have left the window are dropped
-- by the next operation, even by a peek: counting them every time would delay the server.
function SlidingLog.clamp(q, log)
    local at = newest_of(log)
    if at and (at > now or gone(q, log) > MOST_KEPT) then tidy(q, log) end
end

-- The text has the length of the bytes, which are at the end of the value.
function SlidingLog.parse(text, _, bytes)
    local total, length = match(text, '^(%d+):(%d+)$')
    if not total or #total > 15 or #length > 9 then return nil end
    total, length = total + 0, length + 0
    if #bytes < length or length % ENTRY > 0 then return nil end
    if (total == 0) ~= (length == 0) then return nil end
    if length == #bytes then return { total = total, bytes = bytes, noted = 0 }, '' end
    return { total = total, bytes = bytes:sub(1, length), noted = 0 }, bytes:sub(length + 1)
end

function SlidingLog.text(log)
    local bytes = log.bytes
    if log.noted > 0 then bytes = bytes .. pack('>I7I3', now, log.noted) end
    return format('%d:%d', log.total, #bytes), bytes
end
