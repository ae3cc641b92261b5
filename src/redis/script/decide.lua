-- Decides about subjects, each as if alone: a key holds all that is remembered of one.
--
-- ARGV: the time in microseconds (empty for the server's), the time of a block in two parts (empty
-- for none), the number of slots, and what describes each of them. Then for each key the number of arguments
-- of its operations and the operations, or `=` for those of the key before. Operations are done one after
-- another: letter, cost, how many times it is done, and what `corrections` reads.
--
-- A slot is what quotas of all tiers count that stand at one place and count alike. Those that no quota
-- of the tier in force counts in are kept, and not asked. The value has the slots' texts; what responses
-- counted in them, if they counted anything; the end of a block if there is one, marked if it is by hand;
-- and the bytes of logs: `slot;slot|counted;counted!blocked\nbytes`. A lone token bucket is one whole
-- number.
--
-- The reply is one text for each key, without an array for one key: whole numbers of eight bytes each, the
-- highest first, which are the time, and then what each operation came to. The error of one of many
-- keys is a text that begins with `-`.

-- Each is made only where it is asked for: a script makes all its functions anew in every call.
local ALGORITHMS = {
    t = token_bucket, l = leaky_bucket, f = fixed_window, s = sliding_window, g = sliding_log,
}
local SLOT_FIELDS = 10
local FOREIGN = '-RATELIMIT the value of this key is not one of ours'

local slots, active = {}, {}

-- The most that can count is told where it is more than the quota's own capacity.
local function read_slot(at)
    local q = {
        algorithm = ALGORITHMS[ARGV[at]](),
        capacity = tonumber(ARGV[at + 2]), extra = tonumber(ARGV[at + 3]),
        tu = tonumber(ARGV[at + 4]), tn = tonumber(ARGV[at + 5]),
    }
    local one, two = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
    q.step, q.slice, q.slices, q.period_u, q.period_n = one, one, two, one, two
    q.most_u, q.most_n = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
    -- Only the level of a bucket is told: the limiter works out the rest.
    q.level = q.algorithm.level
    if q.level then q.full_u, q.full_n = mul(q.capacity, q.tu, q.tn) end
    if not q.most_u then q.most_u, q.most_n = q.full_u or q.capacity, q.full_n end
    slots[#slots + 1] = q
    if ARGV[at + 1] == '1' then active[#active + 1] = q end
end

local block_u, block_n = tonumber(ARGV[2]), tonumber(ARGV[3])
local first_op = 5 + ARGV[4] * SLOT_FIELDS
for at = 5, first_op - 1, SLOT_FIELDS do read_slot(at) end

-- The value

local blocked_until, by_hand = Instant.fresh(), ''

local function forget()
    for _, q in ipairs(slots) do q.state, q.counted = q.algorithm.fresh(), nil end
    blocked_until, by_hand = Instant.fresh(), ''
end

-- The text of each slot's state, or of its count of responses, and the bytes of its log.
local function texts(field)
    local heads, tails = '', ''
    for at, q in ipairs(slots) do
        local head, tail = q.algorithm.text(q[field] or q.algorithm.fresh(), q)
        heads = at == 1 and head or heads .. ';' .. head
        if tail then tails = tails .. tail end
    end
    return heads, tails
end

local function write()
    local value, bytes = texts('state')
    for _, q in ipairs(slots) do
        if q.counted then
            local heads, tails = texts('counted')
            value, bytes = value .. '|' .. heads, bytes .. tails
            break
        end
    end
    if blocked_until.u > 0 or blocked_until.n > 0 then
        value = value .. '!' .. Instant.text(blocked_until) .. by_hand
    end
    if bytes ~= '' then value = value .. '\n' .. bytes end
    return value
end

-- Operations

-- The outcome of an operation. One table for all of them: each is answered before the next is done.
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
    for _, q in ipairs(active) do q.algorithm.charge(q, q.state, cost) end
end

local function acquire(cost)
    judge(cost)
    if not result.denied and cost > 0 then
        charge(cost)
        result.charged = cost
    end
end

local function hit(cost)
    judge(cost)
    result.charged = min(cost, available())
    if cost > 0 then charge(cost) end
    -- A request that passes regardless of the limit waits in no queue.
    result.wait = 0
end

-- How long the subject stays out.
local function blocked_for()
    return micros_up(sub(blocked_until.u, blocked_until.n, now, 0))
end

local function start_block()
    blocked_until, by_hand = { u = now + block_u, n = block_n }, ''
end

-- Does an operation that asks whether a cost fits, and says for how long the subject is blocked; nothing
-- for another operation. A blocked subject takes nothing. The first denial of a cost that could fit
-- starts a block, unless another question follows.
local function decide(op, cost)
    local blocked = blocked_for()
    local takes = op == 'a' or op == 'v' or op == 'u'
    if op == 'u' then cost = min(cost, blocked > 0 and 1 or max(available(), 1)) end
    if takes and blocked == 0 then
        acquire(cost)
    elseif takes or op == 'p' or op == 'd' then
        judge(cost)
    elseif op == 'h' then
        hit(cost)
    else
        return nil
    end
    local starts = op == 'a' or op == 'u' or op == 'd'
    if starts and blocked == 0 and block_u and result.breached then
        start_block()
        return blocked_for()
    end
    return blocked
end

-- Rare operations, made only when they come. Each says for how long the subject is blocked, as far as the answer
-- heeds that, and where the next operation's arguments begin.
local function corrections()
    -- When it was charged, empty for the newest charge, and of each quota the end of the charge and the
    -- time of a unit, in two parts each, empty for one that was not charged.
    local function read_receipt(at)
        local charged_at = tonumber(ARGV[at])
        if not charged_at then return nil, at + 1 end
        local charges = {}
        for i = 1, #active do
            local field = at + 4 * i - 3
            local end_u, end_n = tonumber(ARGV[field]), tonumber(ARGV[field + 1])
            local tu, tn = tonumber(ARGV[field + 2]), tonumber(ARGV[field + 3])
            charges[i] = end_u and { at = charged_at, end_u = end_u, end_n = end_n, tu = tu, tn = tn }
        end
        return charges, at + 1 + 4 * #active
    end

    local function refund(cost, charges)
        if cost == 0 then return end
        for i, q in ipairs(active) do
            local of = charges and charges[i]
            if of or not charges then q.algorithm.refund(q, q.state, cost, of) end
        end
    end

    -- Counts what a response said that its request cost, and blocks a subject that leaves no unit of
    -- that, unless it is blocked already.
    local function count(cost)
        local is_used_up = false
        for _, q in ipairs(active) do
            q.counted = q.counted or q.algorithm.fresh()
            q.algorithm.clamp(q, q.counted)
            q.algorithm.charge(q, q.counted, cost)
            if q.algorithm.verdict(q, q.counted, 1) ~= FITS then is_used_up = true end
        end
        if is_used_up and blocked_for() == 0 then start_block() end
    end

    local DO = {}

    function DO.r(cost, at)
        local charges, after = read_receipt(at)
        refund(cost, charges)
        judge(0)
        return 0, after
    end

    -- `cost` is what is missing. The excess and the units that count stand after the receipt.
    function DO.s(cost, at)
        local charges, after = read_receipt(at)
        local taken, counts = 0, tonumber(ARGV[after + 1])
        if cost > 0 then
            hit(cost)
            taken = result.charged
        end
        refund(tonumber(ARGV[after]), charges)
        if counts > 0 and block_u then count(counts) end
        judge(0)
        result.charged = taken
        return 0, after + 2
    end

    -- How long stands in place of a receipt; no time at all ends a block.
    function DO.b(_, at)
        local u, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
        blocked_until, by_hand = Instant.fresh(), ''
        if u + n > 0 then blocked_until, by_hand = { u = now + u, n = n }, 'h' end
        judge(0)
        return blocked_for(), at + 2
    end

    function DO.x(_, at)
        forget()
        judge(0)
        return 0, at
    end

    return DO
end

-- How often the operation that was just done comes to the same in a row, at most `most` times, as far
-- as that can be told without doing it. A look or a denial changes nothing but that it starts a block;
-- where one level that falls evenly is all there is, only that moves on.
local function alike(op, cost, most)
    if op == 'p' or op == 'd' then return most end
    if op ~= 'a' and op ~= 'v' then return 1 end
    if result.charged == 0 then return most end
    local q = active[1]
    if #active > 1 or not q.algorithm.is_even or q.step > 0 then return 1 end
    return min(most, 1 + quotient(q.algorithm.available(q, q.state), cost))
end

-- How a quota stands. For a bucket: whether it denied, with a part of the level, when to retry, and the
-- rest of the level.
local function measure(q)
    local algorithm, state = q.algorithm, q.state
    local denied = q.denied and 1 or 0
    if q.level then
        local u, n = q.level(state)
        return struct.pack('>i8i8i8', denied + 4 * n, q.retry_after, u)
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
        if verdict == NEVER then window = micros_up(q.tu, q.tn) end
    end
    local flags = denied + (left < q.extra and 2 or 0)
    local reset_after = micros_up(algorithm.reset_after(q, state))
    return struct.pack('>i8i8i8i8i8', flags, q.retry_after, remaining, reset_after, window)
end

-- Reads a state of each slot, and says which bytes are left; nothing if one could not be read.
local function read_states(heads, field, bytes)
    local count = 0
    for text in heads:gmatch('[^;]+') do
        count = count + 1
        local q = slots[count]
        if not q then return nil end
        local rest
        q[field], rest = q.algorithm.parse(text, q, bytes)
        if not q[field] then return nil end
        bytes = rest or bytes
    end
    return count == #slots and bytes or nil
end

-- Whether the value is one of ours.
local function read(value)
    local head, bytes = value, ''
    local line = value:find('\n', 1, true)
    if line then head, bytes = value:sub(1, line - 1), value:sub(line + 1) end
    local mark = head:find('!', 1, true)
    if mark then
        local blocked
        blocked, by_hand = head:match('^(%d+)(h?)$', mark + 1)
        blocked_until = blocked and Instant.parse(blocked)
        if not blocked_until then return false end
        head = head:sub(1, mark - 1)
    end
    local bar, counted = head:find('|', 1, true), nil
    if bar then head, counted = head:sub(1, bar - 1), head:sub(bar + 1) end
    bytes = read_states(head, 'state', bytes)
    if counted and bytes then bytes = read_states(counted, 'counted', bytes) end
    return bytes == ''
end

-- Does the operations that stand in the arguments from `first` to `last`. For operations of one outcome the
-- reply says: how many there are, whether they were denied, the wait in a queue, the units that each of them took,
-- the time of a block, and how each quota stands after the first of them.
local others
local function operate(first, last)
    local reply = { struct.pack('>i8', now) }
    local at = first
    while at <= last do
        local op, cost, times = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
        at = at + 3
        local after = at
        while times > 0 do
            local blocked = decide(op, cost)
            if not blocked then
                others = others or corrections()
                blocked, after = others[op](cost, at)
            end
            local here, denied = alike(op, cost, times), result.denied and 1 or 0
            reply[#reply + 1] = struct.pack('>i8i8i8i8i8', here, denied, result.wait, result.charged, blocked)
            for _, q in ipairs(active) do reply[#reply + 1] = measure(q) end
            if here > 1 and result.charged > 0 then charge((here - 1) * cost) end
            times = times - here
        end
        at = after
    end
    return table.concat(reply)
end

-- How long there is something to remember, in whole milliseconds, at least 1.
local function lifetime()
    local u, n = sub(blocked_until.u, blocked_until.n, now, 0)
    for _, q in ipairs(slots) do
        for _, state in ipairs({ q.state, q.counted }) do
            local ru, rn = q.algorithm.reset_after(q, state)
            if less(u, n, ru, rn) then u, n = ru, rn end
        end
    end
    local milliseconds = max(math.ceil(micros_up(u, n) / 1000), 1)
    -- The time of a test may stand still while the server's goes on.
    if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
    return milliseconds
end

local function answer(key, first, last)
    local value = redis.pcall('GET', key)
    if value and value.err then return '-' .. value.err end
    forget()
    if value and not read(value) then return FOREIGN end
    local before = value or write()

    -- A clock that stepped back must not make the block of a denial longer than it lasts.
    if block_u and by_hand == '' and less(now + block_u, block_n, blocked_until.u, blocked_until.n) then
        start_block()
    end
    for _, q in ipairs(active) do q.algorithm.clamp(q, q.state) end
    local reply = operate(first, last)
    for _, q in ipairs(active) do
        if q.state.is_foreign then return FOREIGN end
    end

    -- A value that has not changed, as after a denial, is not written.
    local after = write()
    if after ~= before then
        local set = redis.pcall('SET', key, after, 'PX', lifetime())
        if set.err then return '-' .. set.err end
    end
    return reply
end

local replies, at, first, last = {}, first_op, nil, nil
for i, key in ipairs(KEYS) do
    if ARGV[at] ~= '=' then
        first, last = at + 1, at + ARGV[at]
        at = last
    end
    at = at + 1
    replies[i] = answer(key, first, last)
end
if #KEYS > 1 then return replies end
if replies[1]:byte() == 45 then return redis.error_reply(replies[1]:sub(2)) end
return replies[1]
