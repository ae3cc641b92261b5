-- Decides about subjects, each as if alone: one key has the whole value of one subject.
--
-- ARGV: the time in microseconds (empty for the server's), the time of a block in two parts (empty
-- for none), the number of slots, and the fields of each of them. Then for each key the number of arguments
-- of its operations and the operations, or `=` for those of the previous key. Operations are done one after
-- another: letter, cost, how many times, and for some a receipt or a time, see `make_rare`.
-- A node's message may precede a key's operations: `c`, its name as two whole numbers, the number of the
-- message, units spent, returned, wanted, the demand, the length in microseconds, and a flag. With the flag `f`, of
-- eventual mode, spent and returned are the total and the counted units. The key's reply then ends with the reply to
-- the message: six more numbers.
--
-- The soft share of a slot may be below 0: then so many units of its capacity are kept from the class of these
-- operations.
--
-- A slot is a counter, shared by the quotas of all tiers that have the same place and count alike. Slots without
-- a quota in the current tier are kept and not read. The value has the slots' texts; the counts of responses, if
-- there are any; the end of a block if there is one, marked if it is by hand; and the bytes of logs:
-- `slot;slot|counted;counted!blocked\nbytes`. A lone token bucket is one whole number. `node_rows.lua` describes
-- the rows of nodes.
--
-- The reply is one text for each key, without an array for one key: whole numbers of eight bytes each, highest
-- byte first. They are the time, and then runs: equal operations that followed one another with one outcome. The node
-- computes all that follows from the numbers of a run: how many operations; flags, 1 if they were denied, 2 if only
-- for their class, 4 if the units that nodes hold come next (for each quota the units and their time in two parts, then
-- the end of the last lease); the units that each operation took; the time of a block; and the state of each quota that
-- the first operation was judged by, before its charge. The error of one of many keys is a text that begins with `-`.
--
-- Twins in crates/core/src/algorithm/decide.rs: charge, judge, spend, refund.
-- Twins in compiled_quota.rs: with_capacity = part.
-- Twins in apply_operation.rs: available = room, count = uses_up, blocked_for = left.
-- Twins in subject_value.rs: read_states, read, write_states.
-- Twins in wire.rs: read_receipt = push_receipt.

-- A call spends most of its time on making objects, above all functions. So the usual path of an operation is one
-- piece of code, rare code is made when it is needed, and a subject's state is in few tables.

local SLOT_FIELDS = 10
local FOREIGN = 'RATELIMIT the value of this key is not one of ours'
local APART = 'RATELIMIT_CLOCK the clock of the server is more than a window of the calendar away from that of the limiter'

local slots, active, made, new = {}, {}, {}, nil
local has_log, has_class = false, false

-- The quota with another capacity, of which nothing is kept.
local function with_capacity(q, capacity)
    local other = {}
    for name, value in pairs(q) do other[name] = value end
    other.capacity, other.extra = capacity, 0
    if q.full_u then
        other.full_u, other.full_n = mul(capacity, q.tu, q.tn)
        if less(q.most_u, q.most_n, other.full_u, other.full_n) then other.full_u, other.full_n = q.most_u, q.most_n end
    end
    return other
end

local block_u, block_n = tonumber(ARGV[2]), tonumber(ARGV[3])
local first_op = 5 + ARGV[4] * SLOT_FIELDS
for at = 5, first_op - 1, SLOT_FIELDS do
    local letter = ARGV[at]
    local algorithm = made[letter]
    if not algorithm then
        algorithm = make(letter)
        made[letter] = algorithm
    end
    -- The windows of a calendar are a list of instants.
    local one, two = tonumber(ARGV[at + 6]) or 0, tonumber(ARGV[at + 7]) or ARGV[at + 7]
    local capacity, tu, tn, full_u, full_n = ARGV[at + 2] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, nil, nil
    if letter == 't' or letter == 'l' then full_u, full_n = mul(capacity, tu, tn) end
    -- An argument has the most that can count if that is more than the quota's own capacity.
    local most_u, most_n = full_u or capacity, full_n
    if ARGV[at + 8] ~= '' then most_u, most_n = ARGV[at + 8] + 0, tonumber(ARGV[at + 9]) end
    local kept, is_active = ARGV[at + 3] + 0, ARGV[at + 1] == '1'
    -- All fields from the start: adding one later can take as long as making the table.
    local q = {
        algorithm = algorithm, capacity = capacity, extra = max(kept, 0), part = false, tu = tu, tn = tn,
        step = one, slice = one, slices = two, period_u = one, period_n = two,
        most_u = most_u, most_n = most_n, full_u = full_u, full_n = full_n,
        index = false, ends = false, next_ends = false,
        state = false, counted = false, shown = false, wait = 0, is_active = is_active,
        -- Units that nodes hold, and how long after now those of a log may be spent.
        held = 0, delay = 0,
    }
    if letter == 'c' and not algorithm.place(q, one, two) then return redis.error_reply(APART) end
    -- The part that a class of requests may use. The state is that of the whole quota.
    q.part = kept < 0 and with_capacity(q, capacity + kept) or q
    if kept < 0 then has_class = true end
    if letter == 'g' then has_log = true end
    slots[#slots + 1] = q
    new = new and new .. ';' .. algorithm.new or algorithm.new
    if is_active then active[#active + 1] = q end
end

-- The subject: the end of a block in two parts, and whether it is by hand; the outcome of the last operation;
-- for a value with rows, or a call with a message, the object that handles them; and the units that nodes hold as the reply
-- has them.
local it = {
    end_u = 0, end_n = 0, by_hand = '', denied = 0, breached = false, charged = 0, nodes = false, held = false,
}

-- How long the subject stays blocked.
local function blocked_for()
    if it.end_u == 0 and it.end_n == 0 then return 0 end
    return micros_up(sub(it.end_u, it.end_n, now, 0))
end

-- The state as if the units that nodes hold were charged: now, or those of a bucket `later`, when the last lease ends.
local function seen(q, later)
    return q.held > 0 and it.nodes.with(q, later) or q.state
end

-- The units, at most this many, that fit all quotas, or the same quotas with other capacities.
local function available(most, others)
    for i = 1, #active do
        local q = active[i]
        most = min(most, q.algorithm.available(others and others[i] or q.part, seen(q)))
    end
    return most
end

-- Charges units that nodes do not hold.
local function charge(units, others)
    for i = 1, #active do
        local q, own = active[i], units
        local part = others and others[i] or q.part
        if q.held > 0 then own = min(own, q.algorithm.available(part, seen(q))) end
        if own > 0 then q.algorithm.charge(part, q.state, own) end
    end
end

-- Checks the cost against all quotas, and notes the state of each for the reply. A log notes its numbers after the
-- operation, but how long its denial lasts.
local function judge(cost)
    local denied, breached = 0, true
    for i = 1, #active do
        local q = active[i]
        local algorithm, part, state = q.algorithm, q.part, q.state
        q.shown, q.wait = not algorithm.wait and algorithm.shown(q, state), 0
        if q.held > 0 then state = seen(q) end
        if cost > 0 and cost > algorithm.available(part, state) then
            denied = 1
            if cost > part.capacity then
                breached, q.wait = false, -1
            elseif algorithm.wait then
                q.wait = micros_up(algorithm.wait(part, state, cost)) + q.delay
            end
        end
    end
    it.denied, it.breached, it.charged = denied, denied == 1 and breached, 0
    -- If critical requests fit, a denial of the class alone starts no block.
    if denied == 1 and has_class and available(cost, active) == cost then it.denied, it.breached = 3, false end
end

-- Reads a state of each slot. Returns the remaining bytes, nil for a foreign value.
local function read_states(heads, field, bytes)
    local count = 0
    for text in string.gmatch(heads, '[^;]+') do
        count = count + 1
        local q = slots[count]
        if not q then return nil end
        local state, rest = q.algorithm.parse(text, q, bytes)
        if not state then return nil end
        q[field], bytes = state, rest or bytes
    end
    return count == #slots and bytes or nil
end

local function fresh(q)
    return (q.algorithm.parse(q.algorithm.new, q, ''))
end

-- The texts of a state of each slot, and the bytes of logs.
local function write_states(field)
    local heads, tails = '', ''
    for k = 1, #slots do
        local q = slots[k]
        local head, tail = q.algorithm.text(q[field] or fresh(q), q)
        heads = k == 1 and head or heads .. ';' .. head
        if tail then tails = tails .. tail end
    end
    return heads, tails
end

-- The rare operations, made when the first of them comes. Each returns how long the subject stays blocked, as far as
-- the reply has it, and the place of the next operation's arguments.
local function make_rare()
    local rare = {}

    -- Reads a value that has more than states. Returns the remaining bytes, nil for a foreign value; and of a value with
    -- rows the part of the head about them.
    function rare.read(head, bytes)
        local before, held = match(head, '^(.-)&(.*)$')
        head = before or head
        local unblocked, ends, by_hand = match(head, '^(.-)!(.-)(h?)$')
        if unblocked then
            local u, n = instant(ends)
            if not u then return nil end
            head, it.end_u, it.end_n, it.by_hand = unblocked, u, n, by_hand
        end
        local bar = string.find(head, '|', 1, true)
        bytes = read_states(string.sub(head, 1, (bar or 0) - 1), 'state', bytes)
        if bar and bytes then bytes = read_states(string.sub(head, bar + 1), 'counted', bytes) end
        return bytes, held
    end

    -- Charges units that were used already, whatever the class. The arguments have what each quota may owe, beyond the
    -- units that it holds. Returns the units charged.
    local function spend(cost, at)
        if cost == 0 then return 0 end
        local wide = {}
        for i, q in ipairs(active) do wide[i] = with_capacity(q, q.capacity + ARGV[at + i - 1]) end
        local taken = available(cost, wide)
        charge(cost, wide)
        return taken
    end

    -- Reads a receipt: the time of the charge, empty for the newest charge; then for each quota the end of the charge
    -- and the time of a unit, in two parts each, empty for a quota that was not charged.
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

    -- Counts the cost that a response reports, and blocks a subject that has no unit left then, unless it is blocked
    -- already.
    local function count(cost)
        local is_used_up = false
        for _, q in ipairs(active) do
            q.counted = q.counted or fresh(q)
            q.algorithm.clamp(q, q.counted)
            q.algorithm.charge(q, q.counted, cost)
            if q.algorithm.available(q, q.counted) < 1 then is_used_up = true end
        end
        if is_used_up and blocked_for() == 0 then
            it.end_u, it.end_n, it.by_hand = now + block_u, block_n, ''
        end
    end

    -- A hit: takes the units that are left.
    function rare.h(cost, at)
        judge(cost)
        it.charged = available(cost)
        if cost > 0 then charge(cost) end
        return blocked_for(), at
    end

    -- Units that were used already. What each quota may owe follows.
    function rare.o(cost, at)
        judge(cost)
        it.charged = spend(cost, at)
        return blocked_for(), at + #active
    end

    -- Counts regardless of the limits, which are fixed windows, and denies if the count is above one of them.
    function rare.n(cost, at)
        it.denied, it.breached, it.charged = 0, false, cost
        for _, q in ipairs(active) do
            if cost > 0 then q.algorithm.settle(q, q.state, now + 1, cost) end
            -- Not even a limit of one more has a unit left.
            if q.algorithm.available(with_capacity(q, q.capacity + 1), seen(q)) < 1 then it.denied = 1 end
            q.shown = q.algorithm.shown(q, q.state)
        end
        return blocked_for(), at
    end

    function rare.r(cost, at)
        local charges, after = read_receipt(at)
        refund(cost, charges)
        judge(0)
        return 0, after
    end

    -- `cost` is the missing part. The excess and the units that count follow the receipt, and for a missing part what
    -- each quota may owe.
    function rare.s(cost, at)
        local charges, after = read_receipt(at)
        local counts, next_at = tonumber(ARGV[after + 1]), after + 2
        local taken = spend(cost, next_at)
        if cost > 0 then next_at = next_at + #active end
        refund(tonumber(ARGV[after]), charges)
        if counts > 0 and block_u then count(counts) end
        judge(0)
        it.charged = taken
        return 0, next_at
    end

    -- The length of a block follows, in two parts; zero ends a block.
    function rare.b(_, at)
        local u, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
        it.end_u, it.end_n, it.by_hand = 0, 0, ''
        if u + n > 0 then it.end_u, it.end_n, it.by_hand = now + u, n, 'h' end
        judge(0)
        return blocked_for(), at + 2
    end

    function rare.x(_, at)
        for _, q in ipairs(slots) do q.state, q.counted = fresh(q), nil end
        it.end_u, it.end_n, it.by_hand = 0, 0, ''
        if it.nodes then it.nodes.reset() end
        judge(0)
        return 0, at
    end

    return rare
end

local replies, rare, nodes = KEYS[2] and {}, nil, nil
local packed_now = pack('>i8', now)
local at, first, last = first_op, nil, nil
for i = 1, #KEYS do
    local message
    if ARGV[at] == 'c' then message, at = at + 1, at + 10 end
    if ARGV[at] ~= '=' then first, last = at + 1, at + ARGV[at] end
    at = (ARGV[at] == '=' and at or last) + 1

    -- The value.
    local value = call('GET', KEYS[i])
    local failure = value and value.err
    -- The rest of the value from the byte `from` on: the rows if there are any, with the part of the head about them.
    local left, from, held = '', 1, nil
    for k = 1, #slots do
        local q = slots[k]
        q.counted, q.held, q.delay = nil, 0, 0
        if not value or failure then q.state = fresh(q) end
    end
    it.end_u, it.end_n, it.by_hand, it.held, it.nodes = 0, 0, '', false, false
    if value and not failure then
        local head, bytes = value, ''
        local line = string.find(value, '\n', 1, true)
        if line then head = string.sub(value, 1, line - 1) end
        if line and has_log then bytes = string.sub(value, line + 1) end
        left = read_states(head, 'state', bytes)
        if not left then
            rare = rare or make_rare()
            left, held = rare.read(head, bytes)
        end
        -- Rows are expensive to copy.
        if left and line and not has_log then left, from = value, line + 1 end
        if not left or left ~= '' and not held then failure = FOREIGN end
    end

    -- A clock that stepped back must not lengthen the block of a denial. No limiter starts a block of more than 2^59 ns.
    local longest_u, longest_n = LONGEST_BLOCK_U, LONGEST_BLOCK_N
    if block_u and it.by_hand == '' then longest_u, longest_n = block_u, block_n end
    if less(now + longest_u, longest_n, it.end_u, it.end_n) then it.end_u, it.end_n = now + longest_u, longest_n end
    if not failure then
        for k = 1, #active do active[k].algorithm.clamp(active[k], active[k].state) end
        if message or held then
            nodes = nodes or make('h')(slots, active, it, available)
            it.nodes = nodes
            if not nodes.begin(held, left, from, message) then failure = FOREIGN end
        end
    end

    local reply, more
    local run = failure and last + 1 or first
    while run <= last do
        local op, cost, times = ARGV[run], ARGV[run + 1] + 0, ARGV[run + 2] + 0
        run = run + 3
        local after = run
        while times > 0 do
            local blocked, here, units = blocked_for(), 1, cost
            local takes = op == 'a' or op == 'v' or op == 'u'
            if takes or op == 'p' or op == 'd' then
                -- Takes the units that are left. If none are left, it is denied as one unit is.
                if op == 'u' then units = min(cost, blocked > 0 and 1 or max(available(cost), 1)) end
                judge(units)
                -- A blocked subject takes nothing.
                if takes and blocked == 0 and it.denied == 0 then it.charged = units end
                -- How many operations in a row have the same outcome. A peek or a denial changes nothing except that it
                -- starts a block. The numbers of a log change with each charge.
                if times > 1 and op ~= 'u' then
                    if it.charged == 0 then
                        here = times
                    elseif not has_log then
                        here = quotient(available(times * cost), cost)
                    end
                end
                if it.charged > 0 then charge(here * units) end
                -- The first denial of a cost that could fit starts a block. Not for a peek, nor for a reservation: the
                -- limiter sends another operation then.
                if block_u and it.breached and blocked == 0 and op ~= 'v' and op ~= 'p' then
                    it.end_u, it.end_n, it.by_hand = now + block_u, block_n, ''
                    blocked = micros_up(block_u, block_n)
                end
            else
                rare = rare or make_rare()
                blocked, after = rare[op](cost, run)
            end

            local text = pack('>i8i8i8i8', here, it.held and it.denied + 4 or it.denied, it.charged, blocked)
            if it.held then text, it.held = text .. it.held, false end
            for k = 1, #active do
                local q = active[k]
                text = text .. (q.shown or q.algorithm.shown(q.part, seen(q), q.wait, q.delay))
            end
            if reply then
                more = more or {}
                more[#more + 1] = text
            else
                reply = packed_now .. text
            end
            times = times - here
        end
        run = after
    end
    if more then reply = reply .. table.concat(more) end
    for k = 1, has_log and not failure and #active or 0 do
        if active[k].state.is_foreign then failure = FOREIGN end
    end
    if it.nodes and not failure then reply = nodes.finish(reply or packed_now) end

    if not failure then
        local after, bytes = write_states('state')
        for k = 1, #slots do
            if slots[k].counted then
                local heads, tails = write_states('counted')
                after, bytes = after .. '|' .. heads, bytes .. tails
                break
            end
        end
        if it.end_u > 0 or it.end_n > 0 then
            after = after .. format('!%d%03d', it.end_u, it.end_n) .. it.by_hand
        end
        local last_end = 0
        if it.nodes then
            after, last_end = nodes.text(after, bytes)
        elseif bytes ~= '' then
            after = after .. '\n' .. bytes
        end

        -- Writes only a value that has changed: a denial changes nothing. It expires when all of it is as good as new, in
        -- whole milliseconds, at least 1.
        if after ~= (value or new) then
            local u, n = sub(it.end_u, it.end_n, now, 0)
            if u < last_end then u, n = last_end, 0 end
            for k = 1, #slots do
                local q = slots[k]
                local ru, rn = q.algorithm.lasts(q, seen(q, true))
                ru = ru + q.delay
                if less(u, n, ru, rn) then u, n = ru, rn end
                if q.counted then
                    ru, rn = q.algorithm.lasts(q, q.counted)
                    if less(u, n, ru, rn) then u, n = ru, rn end
                end
            end
            local milliseconds = max(math.ceil(micros_up(u, n) / 1000), 1)
            -- The clock of a test may stand still while the server's runs.
            if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
            failure = call('SET', KEYS[i], after, 'PX', format('%d', milliseconds)).err
        end
    end
    if not replies then return failure and redis.error_reply(failure) or reply end
    replies[i] = failure and '-' .. failure or reply
end
return replies
