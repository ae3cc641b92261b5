-- The times of what was admitted in the trailing period. The state is the sum of all counts, and
-- the entries, oldest first, as bytes: seven for the microsecond, three for the count. They stay
-- bytes because most decisions look at one or two of them, and a log can be long.

local SlidingLog = {}

local ENTRY = 10

local function entry_at(log, index)
    local a, b, c, d, e, f, g, x, y, z = log.bytes:byte(index * ENTRY + 1, index * ENTRY + ENTRY)
    if not z then return nil end
    local at = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    return at, (x * 256 + y) * 256 + z
end

local function entry_bytes(at, count)
    local bytes = {}
    for place = 7, 1, -1 do
        bytes[place] = at % 256
        at = floor(at / 256)
    end
    for place = 10, 8, -1 do
        bytes[place] = count % 256
        count = floor(count / 256)
    end
    return string.char(unpack(bytes))
end

-- From now until what was noted then leaves; a time later than now counts as now.
local function leaves_after(q, at)
    local u, n = add(math.min(at, now), 0, q.period_u, q.period_n)
    return sub(u, n, now, 0)
end

local function is_gone(q, at)
    local u, n = add(at, 0, q.period_u, q.period_n)
    return not less(now, 0, u, n)
end

-- How many entries have left the window, and how much they counted.
local function gone(q, log)
    local entries, sum = 0, 0
    while true do
        local at, count = entry_at(log, entries)
        if not at or not is_gone(q, at) then return entries, sum end
        entries, sum = entries + 1, sum + count
    end
end

local function log_used(q, log)
    local _, sum = gone(q, log)
    return math.min(log.total - sum, q.capacity)
end

local function newest_of(log)
    return entry_at(log, #log.bytes / ENTRY - 1)
end

-- Forgets what has left the window, and moves times later than now to now.
local function tidy(q, log)
    local entries, sum = gone(q, log)
    log.bytes, log.total = log.bytes:sub(entries * ENTRY + 1), log.total - sum
    local last = #log.bytes / ENTRY
    local moved = {}
    while last > 0 do
        local at, count = entry_at(log, last - 1)
        if at <= now then break end
        table.insert(moved, 1, entry_bytes(now, count))
        last = last - 1
    end
    if #moved > 0 then log.bytes = log.bytes:sub(1, last * ENTRY) .. table.concat(moved) end
end

function SlidingLog.verdict(q, log, cost)
    if cost > q.capacity then return NEVER end
    local room = q.capacity - cost
    if cost == 0 or log_used(q, log) <= room then return FITS, 0, 0 end
    local left = log.total
    for index = 0, #log.bytes / ENTRY - 1 do
        local at, count = entry_at(log, index)
        left = left - count
        if left <= room then return AFTER, leaves_after(q, at) end
    end
    return AFTER, 0, 0
end

function SlidingLog.available(q, log)
    return q.capacity - log_used(q, log)
end

function SlidingLog.reset_after(q, log)
    local at = newest_of(log)
    if not at or is_gone(q, at) then return 0, 0 end
    return leaves_after(q, at)
end

function SlidingLog.charge(q, log, cost)
    local count = math.min(cost, SlidingLog.available(q, log))
    if count == 0 then return tidy(q, log) end
    tidy(q, log)
    log.total = log.total + count
    local at, already = newest_of(log)
    if at == now then
        log.bytes = log.bytes:sub(1, -ENTRY - 1)
        count = count + already
    end
    log.bytes = log.bytes .. entry_bytes(now, count)
end

-- Takes back what was noted at `charged_at`, else the newest.
function SlidingLog.refund(q, log, cost, charged_at)
    tidy(q, log)
    if is_gone(q, charged_at) then return end
    local times, counts = {}, {}
    for index = 1, #log.bytes / ENTRY do
        times[index], counts[index] = entry_at(log, index - 1)
    end
    local left = cost
    local function take(index)
        local taken = math.min(left, counts[index])
        counts[index], left = counts[index] - taken, left - taken
    end
    for index = 1, #times do
        if times[index] == charged_at then take(index) end
    end
    for index = #times, 1, -1 do take(index) end
    log.total = log.total - (cost - left)
    local kept = {}
    for index = 1, #times do
        if counts[index] > 0 then
            kept[#kept + 1] = entry_bytes(times[index], counts[index])
        end
    end
    log.bytes = table.concat(kept)
end

-- Times ahead of now come from a clock that stepped back.
function SlidingLog.heal(q, log)
    local at = newest_of(log)
    if at and at > now then tidy(q, log) end
end

function SlidingLog.fresh()
    return { total = 0, bytes = '' }
end

-- The text has the length of the bytes, which stand at the end of the value.
function SlidingLog.parse(text, _, bytes)
    local total, length = text:match('^(%d+):(%d+)$')
    if not total or #total > 15 or #length > 9 then return nil end
    length = tonumber(length)
    if #bytes < length or length % ENTRY > 0 then return nil end
    return { total = tonumber(total), bytes = bytes:sub(1, length) }, bytes:sub(length + 1)
end

function SlidingLog.text(log)
    return string.format('%.0f:%d', log.total, #log.bytes), log.bytes
end
