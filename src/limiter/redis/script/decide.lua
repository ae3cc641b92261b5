-- Decides about one subject: KEYS[1] holds all that is remembered of it.
--
-- ARGV: the time in microseconds (empty for the server's), the time of a block in two parts (empty
-- for none), the number of slots, what describes each of them, and then the operations, which are
-- done one after another: letter, cost, when the cost was charged (empty for now), and how many times
-- it is done.
--
-- A slot is what one algorithm counts. Some may belong to quotas of other tiers: they are kept, and
-- not asked. The value has the slots' texts, the end of a block if there is one, and the bytes of
-- logs: `slot;slot!blocked\nbytes`. A lone token bucket is one whole number.
--
-- The reply is one text of whole numbers of eight bytes each, the highest first: the time, and then
-- what `answer` says.

-- Each is made only where it is asked for: a script makes all its functions anew in every call.
local ALGORITHMS = {
    t = token_bucket, l = leaky_bucket, f = fixed_window, s = sliding_window, g = sliding_log,
}
local SLOT_FIELDS, OP_FIELDS = 8, 4

local slots, active = {}, {}

local function read_slot(at)
    local q = {
        algorithm = ALGORITHMS[ARGV[at]](),
        capacity = tonumber(ARGV[at + 2]), extra = tonumber(ARGV[at + 3]),
        tu = tonumber(ARGV[at + 4]), tn = tonumber(ARGV[at + 5]),
    }
    local one, two = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
    q.step, q.slice, q.slices, q.period_u, q.period_n = one, one, two, one, two
    q.full_u, q.full_n = mul(q.capacity, q.tu, q.tn)
    -- Of a bucket that fills evenly only the level is told: the limiter works out the rest.
    q.level = q.step == 0 and q.algorithm.level
    slots[#slots + 1] = q
    if ARGV[at + 1] == '1' then active[#active + 1] = q end
end

local block_u, block_n = tonumber(ARGV[2]), tonumber(ARGV[3])
local first_op = 5 + ARGV[4] * SLOT_FIELDS
for at = 5, first_op - 1, SLOT_FIELDS do read_slot(at) end

-- The value

local blocked_until = Instant.fresh()

local function forget()
    for _, q in ipairs(slots) do q.state = q.algorithm.fresh() end
end

-- Whether the value could be read.
local function read(value)
    local head, bytes = value, ''
    local line = value:find('\n', 1, true)
    if line then head, bytes = value:sub(1, line - 1), value:sub(line + 1) end
    local mark = head:find('!', 1, true)
    if mark then
        blocked_until = Instant.parse(head:sub(mark + 1))
        head = head:sub(1, mark - 1)
    end
    local count = 0
    for text in head:gmatch('[^;]+') do
        count = count + 1
        local q = slots[count]
        if not q then return false end
        local rest
        q.state, rest = q.algorithm.parse(text, q, bytes)
        if not q.state then return false end
        bytes = rest or bytes
    end
    return count == #slots and bytes == '' and blocked_until ~= nil
end

local function write()
    local heads, tails = {}, {}
    for at, q in ipairs(slots) do
        local head, tail = q.algorithm.text(q.state, q)
        heads[at], tails[#tails + 1] = head, tail
    end
    local value = table.concat(heads, ';')
    local blocked = Instant.text(blocked_until)
    if blocked ~= '0' then value = value .. '!' .. blocked end
    local bytes = table.concat(tails)
    if bytes ~= '' then value = value .. '\n' .. bytes end
    return value
end

-- Whole milliseconds until there is nothing left to remember, at least 1.
local function time_to_live()
    local u, n = sub(blocked_until.u, blocked_until.n, now, 0)
    for _, q in ipairs(slots) do
        local ru, rn = q.algorithm.reset_after(q, q.state)
        if less(u, n, ru, rn) then u, n = ru, rn end
    end
    local milliseconds = max(math.ceil(micros_up(u, n) / 1000), 1)
    -- The time of a test may stand still while the server's goes on.
    if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
    return string.format('%.0f', milliseconds)
end

-- Operations

-- What an operation came to. One table for all of them: each is answered before the next is done.
local result = {}

-- Whether the cost fits all quotas. Each remembers what it said, for `measure`.
local function judge(cost)
    local denied, can_fit, wait_u, wait_n = false, true, 0, 0
    for _, q in ipairs(active) do
        local verdict, u, n = q.algorithm.verdict(q, q.state, cost)
        q.denied, q.retry_after = verdict ~= FITS, -1
        if verdict == FITS then
            if less(wait_u, wait_n, u, n) then wait_u, wait_n = u, n end
        else
            denied = true
            if verdict == AFTER then q.retry_after = micros_up(u, n) else can_fit = false end
        end
    end
    result.denied, result.breached = denied, denied and can_fit
    result.wait, result.charged = micros_up(wait_u, wait_n), 0
end

-- The most that every quota can give.
local function available()
    local least
    for _, q in ipairs(active) do
        local here = q.algorithm.available(q, q.state)
        if not least or here < least then least = here end
    end
    return least
end

local function charge(cost)
    for _, q in ipairs(active) do
        q.algorithm.charge(q, q.state, cost)
    end
end

local function acquire(cost)
    judge(cost)
    if not result.denied and cost > 0 then
        charge(cost)
        result.charged = cost
    end
end

local DO = { a = acquire, p = judge }

function DO.u(most)
    acquire(min(most, max(available(), 1)))
end

function DO.h(cost)
    judge(cost)
    result.charged = min(cost, available())
    if cost > 0 then charge(cost) end
    -- What passes whatever the limit says waits in no queue.
    result.wait = 0
end

function DO.r(cost, charged_at)
    for _, q in ipairs(active) do
        q.algorithm.refund(q, q.state, cost, charged_at or now)
    end
    judge(0)
end

function DO.x()
    forget()
    blocked_until = Instant.fresh()
    judge(0)
end

-- How long the subject stays out. A clock that stepped back must not make it longer than a block.
local function blocked_for()
    if less(now + block_u, block_n, blocked_until.u, blocked_until.n) then
        blocked_until.u, blocked_until.n = now + block_u, block_n
    end
    return micros_up(sub(blocked_until.u, blocked_until.n, now, 0))
end

-- Does an operation, and says for how long the subject is blocked. Who is blocked takes nothing; the
-- first denial of a cost that could fit starts a block.
local function apply(op, cost, charged_at)
    local blocked = block_u and blocked_for() or 0
    local takes = op == 'a' or op == 'u'
    if blocked > 0 and takes then
        judge(op == 'u' and min(cost, 1) or cost)
        return cost > 0 and blocked or 0
    end
    DO[op](cost, charged_at)
    if cost == 0 or op == 'r' or op == 'x' then return 0 end
    if block_u and takes and result.breached then
        blocked_until = { u = now + block_u, n = block_n }
        return micros_up(block_u, block_n)
    end
    return blocked
end

-- How often the operation that was just done comes to the same in a row, at most `most` times, as far
-- as that can be told without doing it. A look or a denial changes nothing; where one level is all there
-- is, only that moves on.
local function alike(op, cost, most)
    if op == 'p' or (op == 'a' and result.charged == 0) then return most end
    local q = active[1]
    if op ~= 'a' or #active > 1 or not q.level then return 1 end
    return min(most, 1 + quotient(q.algorithm.available(q, q.state), cost))
end

-- How a quota stands, in five numbers.
local function measure(q)
    local algorithm, state = q.algorithm, q.state
    local denied = q.denied and 1 or 0
    if q.level then
        local u, n = q.level(state)
        return denied, q.retry_after, u, n, 0
    end
    local left = algorithm.available(q, state)
    local remaining, window = max(left - q.extra, 0), 0
    if algorithm.window_end then
        window = micros_up(algorithm.window_end(q, state))
    elseif remaining > 0 then
        window = micros_up(mul(remaining, q.tu, q.tn))
    else
        local verdict, u, n = algorithm.verdict(q, state, q.extra + 1)
        if verdict == AFTER then window = micros_up(u, n) end
    end
    local flags = denied + (left < q.extra and 2 or 0)
    return flags, q.retry_after, remaining, micros_up(algorithm.reset_after(q, state)), window
end

local reply = { struct.pack('>i8', now) }

-- Says of operations that come to the same: how many there are, whether they were denied, the wait in a
-- queue, the units that each of them took, the time of a block, and how each quota stands after the
-- first of them.
local function answer(times, blocked)
    local denied = result.denied and 1 or 0
    reply[#reply + 1] = struct.pack('>i8i8i8i8i8', times, denied, result.wait, result.charged, blocked)
    for _, q in ipairs(active) do reply[#reply + 1] = struct.pack('>i8i8i8i8i8', measure(q)) end
end

local function perform(op, cost, charged_at, times)
    while times > 0 do
        local blocked = apply(op, cost, charged_at)
        local here = alike(op, cost, times)
        answer(here, blocked)
        if here > 1 and result.charged > 0 then charge((here - 1) * cost) end
        times = times - here
    end
end

local value = redis.call('GET', KEYS[1])
if not value then
    forget()
elseif not read(value) then
    return redis.error_reply('RATELIMIT the value of this key is not one of ours')
end

local before = value or write()

for _, q in ipairs(active) do q.algorithm.heal(q, q.state) end
for at = first_op, #ARGV, OP_FIELDS do
    perform(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
end

-- What has not changed, a denial above all, is not written.
local after = write()
if after ~= before then redis.call('SET', KEYS[1], after, 'PX', time_to_live()) end
return table.concat(reply)
