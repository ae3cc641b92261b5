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
--
-- Twins: none. No Rust code counts permits of all nodes.

local MARK, NAME, TIME = 'leases', 8, 7
local HEAD, ENTRY = #MARK + TIME, NAME + TIME

local limit, part = ARGV[1]:match('^(%d+)/?(%d*)$')
limit = tonumber(limit)
part = tonumber(part) or limit
local lease = tonumber(ARGV[2])
local longest, entries = lease, ''

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The end of the lease whose entry begins here.
local function end_at(at)
    return (struct.unpack('>I7', entries, at + NAME))
end

-- Drops leases that have ended. After a step of the clock backwards none lasts longer than the
-- longest lease.
local function heal()
    local first = 1
    while first < #entries and end_at(first) <= now do first = first + ENTRY end
    entries = entries:sub(first)

    local latest = now + longest
    local last = #entries + 1
    while last > 1 and end_at(last - ENTRY) > latest do last = last - ENTRY end
    local healed = { entries:sub(1, last - 1) }
    for at = last, #entries, ENTRY do
        healed[#healed + 1] = entries:sub(at, at + NAME - 1) .. struct.pack('>I7', latest)
    end
    entries = table.concat(healed)
end

-- The first byte of the entry of this name.
local function find(name)
    local at = entries:find(name, 1, true)
    while at and at % ENTRY ~= 1 do at = entries:find(name, at + 1, true) end
    return at
end

-- Inserts a lease by its end: a longer one may end after it.
local function add(name)
    local ends = now + lease
    local at = #entries + 1
    while at > 1 and end_at(at - ENTRY) > ends do at = at - ENTRY end
    entries = entries:sub(1, at - 1) .. name .. struct.pack('>I7', ends) .. entries:sub(at)
end

local function release(name)
    local at = find(name)
    if not at then return 0 end
    entries = entries:sub(1, at - 1) .. entries:sub(at + ENTRY)
    return 1
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
if value then
    if #value < HEAD or value:sub(1, #MARK) ~= MARK or (#value - HEAD) % ENTRY ~= 0 then
        return redis.error_reply('RATELIMIT the value of this key is not one of ours')
    end
    entries = value:sub(HEAD + 1)
    if entries ~= '' then longest = math.max(lease, (struct.unpack('>I7', value, #MARK + 1))) end
end

local before = entries
heal()
local reply = {}
for at = 3, #ARGV, 2 do reply[#reply + 1] = DO[ARGV[at]](ARGV[at + 1]) end

-- Writes only a value that has changed: a denial changes nothing. A value without leases expires in a millisecond: a script
-- that may not delete needs fewer permissions.
if entries ~= before then
    local last = entries == '' and now or end_at(#entries - ENTRY + 1)
    local expires_in = string.format('%.0f', math.max(math.ceil((last - now) / 1000), 1))
    redis.call('SET', KEYS[1], MARK .. struct.pack('>I7', longest) .. entries, 'PX', expires_in)
end
return reply
