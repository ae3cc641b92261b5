-- Permits of one subject: KEYS[1] has a lease for each of its requests in flight.
--
-- ARGV: the most leases, the time of a lease in microseconds, and then the operations, done one
-- after another: letter, and the lease's name of eight bytes. `100/80` is a limit of 100 leases of
-- which the class of the request may use 80.
--
-- The value has a mark, the longest time of a lease among them, and the leases, sorted by their
-- end, as bytes: eight for the name, seven for the microsecond at which it ends. They stay bytes
-- because most operations read one or two of them.
--
-- The reply is one whole number for each operation.

local MARK, NAME, TIME = 'leases', 8, 7
local HEAD, ENTRY = #MARK + TIME, NAME + TIME

local limit, part = ARGV[1]:match('^(%d+)/?(%d*)$')
limit = tonumber(limit)
part = tonumber(part) or limit
local lease = tonumber(ARGV[2])
local longest, entries = lease, ''

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function time_bytes(number)
    local bytes = {}
    for place = TIME, 1, -1 do
        bytes[place] = number % 256
        number = math.floor(number / 256)
    end
    return string.char(unpack(bytes))
end

local function time_at(text, at)
    local a, b, c, d, e, f, g = text:byte(at, at + TIME - 1)
    return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- The end of the lease whose entry begins here.
local function end_at(at)
    return time_at(entries, at + NAME)
end

-- Reads the value. Returns whether it is valid.
local function read(value)
    if #value < HEAD or value:sub(1, #MARK) ~= MARK or (#value - HEAD) % ENTRY ~= 0 then
        return false
    end
    entries = value:sub(HEAD + 1)
    if entries ~= '' then longest = math.max(lease, time_at(value, #MARK + 1)) end
    return true
end

-- Drops leases that have ended. After a step of the clock backwards none lasts longer than the
-- longest lease.
local function heal()
    local first = 1
    while first < #entries and end_at(first) <= now do first = first + ENTRY end
    if first > 1 then entries = entries:sub(first) end

    local latest = now + longest
    local last, moved = #entries, {}
    while last > 0 and end_at(last - ENTRY + 1) > latest do
        local name = entries:sub(last - ENTRY + 1, last - TIME)
        moved[#moved + 1] = name .. time_bytes(latest)
        last = last - ENTRY
    end
    if #moved > 0 then entries = entries:sub(1, last) .. table.concat(moved) end
end

-- The first byte of the entry of this name.
local function find(name)
    local from = 1
    while true do
        local at = entries:find(name, from, true)
        if not at or at % ENTRY == 1 then return at end
        from = at + 1
    end
end

local function remove(at)
    entries = entries:sub(1, at - 1) .. entries:sub(at + ENTRY)
end

-- Inserts a lease by its end: a longer one may end after it.
local function add(name)
    local ends = now + lease
    local last = #entries
    while last > 0 and end_at(last - ENTRY + 1) > ends do last = last - ENTRY end
    local entry = name .. time_bytes(ends)
    if last == #entries then
        entries = entries .. entry
    else
        entries = entries:sub(1, last) .. entry .. entries:sub(last + 1)
    end
end

local function release(name)
    local at = find(name)
    if at then remove(at) end
    return at and 1 or 0
end

-- Renews a lease from now on. One that was lost is added again: its request is in flight whatever
-- the limit.
local function renew(name)
    release(name)
    add(name)
    return 1
end

-- Adds a lease. Returns how many more fit, -1 if this one does not, or -2 if only its class does not. A cluster's client may send
-- a call twice when its connection breaks: then it is the same lease.
local function acquire(name)
    release(name)
    local held = #entries / ENTRY
    if held >= part then return held < limit and -2 or -1 end
    add(name)
    return part - held - 1
end

local DO = { a = acquire, r = release, k = renew }

local value = redis.call('GET', KEYS[1])
if value and not read(value) then
    return redis.error_reply('RATELIMIT the value of this key is not one of ours')
end

local before = entries
heal()
local reply = {}
for at = 3, #ARGV, 2 do reply[#reply + 1] = DO[ARGV[at]](ARGV[at + 1]) end

-- A value without leases expires in a millisecond: a script that may not delete needs fewer
-- permissions.
local function time_to_live()
    if entries == '' then return '1' end
    local milliseconds = math.ceil((end_at(#entries - ENTRY + 1) - now) / 1000)
    return string.format('%.0f', math.max(milliseconds, 1))
end

-- Writes only a value that has changed: a denial changes nothing.
if entries ~= before then
    redis.call('SET', KEYS[1], MARK .. time_bytes(longest) .. entries, 'PX', time_to_live())
end
return reply
