-- Rows of a subject: units that nodes have leased and spend by themselves, and counts of eventual mode. Leased units
-- are charged when the node reports them or when the lease ends. Made only for a value with rows, or for a call with a
-- message.
--
-- The value's head ends with `&demand;mask:held:interval,...`: the sum of all demands, and for the slots of each
-- mask the units reserved there, with the time of a unit in nanoseconds for each slot that is a bucket.
-- Its bytes end with the rows, sorted by their end: eight bytes for the name, four for the number of the last
-- message (its lowest bit is 1 if that message made the row), one for the mask, four each for the units and the
-- demand, seven for the microsecond of the end. They stay bytes because a call reads one or two of many.
--
-- `src/shared/subject_settlement.rs` and `src/shared/wire/node_rows.rs` do the same; docs/architecture.md has the table of twins.
--
-- Lua takes longer to make a function than most of them take to run. So there are few, and rare ones are made by
-- another function. Rows are expensive to copy and to collect: they stay in the value that was read, and are cut and
-- joined once.
local function Holders(slots, active, it)
    local NEW, KNOWN, STALE = 0, 1, 2
    local cut, unpack_text = string.sub, struct.unpack
    -- The slots that nodes lease nothing of: queues and windows of the calendar.
    local UNLEASED = { l = true, c = true, v = true, w = true }

    -- The subject: the sum of demands, the units reserved on each mask, and the rows, which are the rest of a text from
    -- the byte `first` on.
    local demand, groups, rows, first
    -- The message: its place in the arguments, its row, and the place of the row. The row counts as taken out until
    -- the value is written.
    local message, mine, mine_at, status, is_repeat, length, wanted, is_eventual
    local plain, letters, made, by = {}, {}, {}, {}
    -- A bit for each slot of a lease of this tier; nil where the tier cannot be leased.
    local own_mask, bit = 0, 1
    for k = 1, #slots do
        plain[k], letters[k] = slots[k].algorithm, ARGV[5 + (k - 1) * 10]
        if ARGV[6 + (k - 1) * 10] == '1' then
            if k > MOST_SLOTS or UNLEASED[letters[k]] then own_mask = nil end
            own_mask = own_mask and own_mask + bit
        end
        bit = bit * 2
    end
    if #slots > MOST_SLOTS then own_mask = nil end

    -- The units reserved on the slots of a mask: which slots it has, and the time of a unit of each bucket.
    local function new_group(mask)
        local group = { mask = mask, held = 0, has = {}, u = {}, n = {} }
        for k = 1, MOST_SLOTS do
            local bit = fmod(mask, 2)
            group.has[k], mask = bit == 1, (mask - bit) / 2
            if mask == 0 then break end
        end
        return group
    end

    local function last_step(q, at)
        if q.step == 0 then return at end
        return at - fmod(at, q.step)
    end

    -- Charges units whether or not there is room, at `at` microseconds, which is not later than now. Units of a window
    -- count in the window that was in force at `within`.
    local function settler(letter)
        if made[letter] then return made[letter] end
        local settle = {}
        if letter == 't' then
            function settle.t(q, bucket, at, _, units, tu, tn)
                local base, step = last_step(q, now), last_step(q, at)
                local u, n = base + bucket.u, bucket.n
                if bucket.u == 0 and bucket.n == 0 then
                    local tat = Instant.parse(bucket.tat or '0')
                    u, n = tat.u, tat.n
                end
                local cu, cn = u, n
                if less(cu, cn, step, 0) then cu, cn = step, 0 end
                cu, cn = add(cu, cn, mul(units, tu, tn))
                local most_u, most_n = add(step, 0, q.most_u, q.most_n)
                if less(most_u, most_n, cu, cn) then cu, cn = most_u, most_n end
                if less(u, n, cu, cn) then
                    bucket.tat = format('%d%03d', cu, cn)
                    bucket.u, bucket.n = sub(cu, cn, base, 0)
                end
            end
        elseif letter == 'f' then
            function settle.f(q, window, _, within, units)
                local index = div(within, 0, q.period_u, q.period_n)
                if window.index < index or window.count == 0 then window.index, window.count = index, 0 end
                window.count = max(min(window.count + units, q.most_u), window.count)
            end
        elseif letter == 's' then
            function settle.s(q, slices, _, within, units)
                local index = quotient(within, q.slice)
                if slices.newest == index + 1 then index = index + 1 end
                if not slices[1] or slices.newest < index then
                    local counts, passed = {}, max(index - slices.newest, 0)
                    for age = 0, q.slices do counts[age + 1] = age >= passed and slices[age - passed + 1] or 0 end
                    for at = 1, q.slices + 1 do slices[at] = counts[at] end
                    slices.newest = index
                end
                local place = slices.newest - index + 1
                if slices[place] then slices[place] = max(min(slices[place] + units, q.most_u), slices[place]) end
            end
        else
            function settle.g(q, log, at, _, units, _, _, algorithm)
                -- Drops entries that have left the window, and moves entries of now to those noted now.
                algorithm.charge(q, log, 0)
                local bytes, newest, count = log.bytes, nil, 0
                if bytes ~= '' then newest, count = unpack_text('>I7I3', bytes, #bytes - 9) end
                if log.noted > 0 then newest, count = now, log.noted end
                if newest and newest > at then at = newest end
                local u, n = add(at, 0, q.period_u, q.period_n)
                if not less(now, 0, u, n) then return end
                if at ~= newest then count = 0 end
                units = min(units, 16777215 - min(count, 16777215))
                log.total = log.total + units
                if at == now then
                    log.noted = log.noted + units
                else
                    if at == newest then bytes = cut(bytes, 1, #bytes - 10) end
                    log.bytes = bytes .. pack('>I7I3', at, count + units)
                end
            end
        end
        made[letter] = settle[letter]
        return made[letter]
    end

    -- The algorithm of a slot with reserved units: it decides as if they were charged.
    local function beside(k)
        local q, algorithm, letter = slots[k], plain[k], letters[k]

        -- The state now, or when the last lease ends. Valid until the next call of `with`.
        local bucket = { u = 0, n = 0 }
        local function with(state, is_later)
            if letter == 't' then
                local u, n = state.u, state.n
                if is_later then
                    local from = max(last_step(q, q.held_until) - last_step(q, now), 0)
                    if less(u, n, from, 0) then u, n = from, 0 end
                end
                bucket.u, bucket.n = add(u, n, q.held_u, q.held_n)
                return bucket
            end
            local copy
            if letter == 'f' then
                copy = { index = state.index, count = state.count }
            elseif letter == 's' then
                copy = { newest = state.newest }
                for at, count in ipairs(state) do copy[at] = count end
            else
                copy = { total = state.total, bytes = state.bytes, noted = state.noted }
            end
            settler(letter)(q, copy, now, now, q.held, 0, 0, algorithm)
            if copy.is_foreign then state.is_foreign = true end
            return copy
        end

        -- The quota `of` is the slot's, or the whole quota if the slot's is a part.
        local function available(of, state)
            return algorithm.available(of, state == q.state and with(state) or state)
        end

        return {
            new = algorithm.new, refund = algorithm.refund, clamp = algorithm.clamp, fresh = algorithm.fresh,
            parse = algorithm.parse, text = algorithm.text, told = algorithm.told, available = available,
            count = algorithm.count,

            is_over = algorithm.is_over and function(of, state)
                return algorithm.is_over(of, with(state))
            end,

            used = algorithm.used and function(of, state)
                return algorithm.used(of, with(state))
            end,

            -- Units of a log that are spent later stay for the period from then on.
            wait = algorithm.wait and function(of, state, cost)
                local u, n = algorithm.wait(of, with(state), cost)
                return u + max(q.held_until - now, 0), n
            end,

            lasts = function(_, state)
                if state ~= q.state then return algorithm.lasts(q, state) end
                local u, n = algorithm.lasts(q, with(state, true))
                return letter == 'g' and u + max(q.held_until - now, 0) or u, n
            end,

            charge = function(of, state, cost)
                if state ~= q.state then return algorithm.charge(of, state, cost) end
                cost = min(cost, available(of, state))
                if cost > 0 then algorithm.charge(of, state, cost) end
            end,
        }
    end

    -- The end of the last of the other rows, or now.
    local function last_end()
        local at = #rows - ROW + 1
        if at == mine_at then at = at - ROW end
        if at < first then return now end
        return min(max(now, (unpack_text('>I7', rows, at + 21))), now + LONGEST_LEASE)
    end

    -- Sets the slots' algorithms by the reserved units, which end at `till`; without it when the last row does.
    local function hold(till)
        if not till then
            till = last_end()
            if mine then till = max(till, mine.ends) end
            if length and status ~= STALE and not is_repeat then till = max(till, now + length) end
        end
        for k = 1, #slots do
            local q = slots[k]
            local held, u, n = 0, 0, 0
            for g = 1, k <= MOST_SLOTS and #groups or 0 do
                local group = groups[g]
                if group.has[k] then
                    held = held + group.held
                    if group.u[k] then u, n = add(u, n, mul(group.held, group.u[k], group.n[k])) end
                end
            end
            q.held, q.held_u, q.held_n, q.held_until = held, u, n, till
            if held > 0 then
                by[k] = by[k] or beside(k)
                q.algorithm = by[k]
            else
                q.algorithm = plain[k]
            end
        end
    end

    -- Adds the units of nodes to the reply.
    local function tell_held()
        local text = ''
        for k = 1, #active do text = text .. pack('>i8i8i8', active[k].held, active[k].held_u, active[k].held_n) end
        it.held = text .. pack('>i8', slots[1].held_until)
    end

    -- The units reserved on a mask, and their place among the groups.
    local function group_of(mask)
        for g = 1, #groups do
            if groups[g].mask == mask then return groups[g], g end
        end
    end

    local function free(mask, units)
        local group, g = group_of(mask)
        if group then
            group.held = max(group.held - units, 0)
            if group.held == 0 then table.remove(groups, g) end
        end
    end

    -- Charges units of a lease that ends at this microsecond, and frees them.
    local function release(mask, units, ends)
        local group = group_of(mask)
        if not group then return end
        units = min(units, group.held)
        for k = 1, units > 0 and min(#slots, MOST_SLOTS) or 0 do
            if group.has[k] then
                local q, at, within = slots[k], min(ends, now), min(max(ends - 1, 0), now)
                settler(letters[k])(q, q.state, at, within, units, group.u[k], group.n[k], plain[k])
            end
        end
        free(mask, units)
    end

    -- Reads the part of the head, and the rows from a byte of the text on. Returns whether they are valid.
    local function read(head, text, from)
        local sum, texts = match(head, '^(%d+);(.*)$')
        if not sum or #sum > 15 then return false end
        for part in string.gmatch(texts, '[^,]+') do
            local mask, held, rest = match(part, '^(%d+):(%d+)(.*)$')
            if not mask or #mask > 3 or #held > 15 then return false end
            mask, held = mask + 0, held + 0
            if mask < 1 or mask > 255 then return false end
            local group = new_group(mask)
            group.held = held
            for k = 1, #group.has do
                if group.has[k] then
                    if k > #slots or UNLEASED[letters[k]] then return false end
                    if letters[k] == 't' then
                        local u, n, after = match(rest, '^:(%d+)(%d%d%d)(.*)$')
                        if not u or #u > 15 or held * (u + 1) > MOST_RESERVED then return false end
                        group.u[k], group.n[k], rest = u + 0, n + 0, after
                    end
                end
            end
            if rest ~= '' then return false end
            if held > 0 then groups[#groups + 1] = group end
        end
        local size = #text - from + 1
        if size < ROW or fmod(size, ROW) > 0 or size > MOST_ROWS * ROW then return false end
        demand, rows, first = sum + 0, text, from
        return true
    end

    -- Charges rows that have ended: the node may have spent all of their units. After a step of the clock backwards no
    -- row lasts longer than the longest lease.
    local function settle_ended()
        local latest, last, healed = now + LONGEST_LEASE, #rows - ROW + 1, nil
        while last >= first and unpack_text('>I7', rows, last + 21) > latest do
            healed = healed or {}
            healed[#healed + 1] = cut(rows, last, last + 20) .. pack('>I7', latest)
            last = last - ROW
        end
        if healed then
            local texts = { cut(rows, 1, last + ROW - 1) }
            for at = #healed, 1, -1 do texts[#texts + 1] = healed[at] end
            rows = table.concat(texts)
        end
        while first < #rows and unpack_text('>I7', rows, first + 21) <= now do
            local mask, units, wants, ends = unpack_text('>BI4I4I7', rows, first + 12)
            demand = max(demand - wants, 0)
            release(mask, units, ends)
            first = first + ROW
        end
    end

    -- Eventual mode: charges the units that are not counted yet, whether or not there is room.
    local function charge_unreported(counted)
        local units = max(ARGV[message + 3] - counted, 0)
        for k = 1, units > 0 and #slots or 0 do
            local q = slots[k]
            if ARGV[6 + (k - 1) * 10] == '1' and not UNLEASED[letters[k]] then
                settler(letters[k])(q, q.state, now, now, units, q.tu, q.tn, plain[k])
            end
        end
    end

    -- Finds the message's row, and charges the units that the message reports.
    local function settle_mine()
        local from, name = first, pack('>I4I4', ARGV[message] + 0, ARGV[message + 1] + 0)
        repeat
            mine_at = string.find(rows, name, from, true)
            from = mine_at and mine_at + 1
        until not mine_at or fmod(mine_at - first, ROW) == 0
        if not mine_at then return is_eventual and charge_unreported(ARGV[message + 4]) end
        local word, mask, units, wants, ends = unpack_text('>I4BI4I4I7', rows, mine_at + 8)
        local born = fmod(word, 2)
        mine = { seq = (word - born) / 2, born = born, mask = mask, units = units, demand = wants, ends = ends }
        demand = max(demand - mine.demand, 0)
        mine.ends = min(mine.ends, now + LONGEST_LEASE)
        if is_eventual then
            status = mine.mask == 0 and KNOWN or STALE
            return status == KNOWN and charge_unreported(mine.units)
        end
        local seq = ARGV[message + 2] + 0
        is_repeat = mine.seq == seq
        if is_repeat then
            status = mine.born == 1 and NEW or KNOWN
        else
            status = mine.seq + 1 == seq and KNOWN or STALE
        end
        if status == KNOWN and not is_repeat then
            local spent = min(ARGV[message + 3] + 0, mine.units)
            mine.units = mine.units - spent
            -- The lease ends later than now, so all of it counts now.
            if spent > 0 then release(mine.mask, spent, now + 1) end
            local back = min(ARGV[message + 4] + 0, mine.units)
            mine.units = mine.units - back
            if back > 0 then free(mine.mask, back) end
        end
    end

    -- Extends the row and reserves the node's share. Returns the granted units, and whether units are scarce. A row
    -- whose units are of other slots or of another rate runs to its end. `mask` has the slots of a lease of this tier.
    local function grant(row, mask)
        local known, alike = group_of(mask), true
        local group = known or new_group(mask)
        for k = 1, #group.has do
            if group.has[k] and letters[k] == 't' then
                local q = slots[k]
                if not known then group.u[k], group.n[k] = q.tu, q.tn end
                if group.u[k] ~= q.tu or group.n[k] ~= q.tn then alike = false end
            end
        end
        if row.units > 0 and not (alike and row.mask == mask) then return 0, false end
        -- A node that has not learned a shorter length yet spends until the end that it knows.
        row.mask, row.ends = mask, max(row.units > 0 and row.ends or now, now + length)
        for k = 1, #slots do
            local q = slots[k]
            if group.has[k] and letters[k] == 'f' then
                row.ends = min(row.ends, now + (plain[k].until_end(q, q.state)))
            elseif group.has[k] and letters[k] == 's' then
                local index = quotient(now, q.slice)
                if q.state.newest == index + 1 then index = index + 1 end
                row.ends = min(row.ends, (index + 1) * q.slice)
            end
        end
        local want = ARGV[message + 5] + 0
        if want == 0 or less(now, 0, it.end_u, it.end_n) then return 0, false end
        -- Unused units of a row that ends soon, with a window or slice, would count as spent then.
        local soon = 4 * (row.ends - now)
        if soon < length then want = min(want, max((mul_div(max(soon, 0), wanted, length)) - row.units, 0)) end
        local left = 4294967295 - row.units
        for k = 1, #active do left = min(left, active[k].algorithm.available(active[k], active[k].state)) end
        local all, share = demand + wanted, 0
        if alike and row.ends > now and all > 0 then
            -- As if one more node with the same demand were coming: a node that is alone gets half.
            share = min((mul_div(wanted, left, all + wanted)), want)
            if share < 2 then share = 0 end
        end
        if share > 0 then
            if not known then groups[#groups + 1] = group end
            group.held = group.held + share
        end
        return share, all > left and share < want
    end

    local api = {}

    -- Charges the units of rows that have ended, and those that the message reports. Returns false for a foreign value.
    function api.begin(head, text, from, at)
        message, mine, mine_at, status, is_repeat, length, is_eventual = at, nil, nil, NEW, false, nil, false
        demand, groups, rows, first = 0, {}, '', 1
        if head and not read(head, text, from) then return false end
        for k = 1, #slots do plain[k].clamp(slots[k], slots[k].state) end
        settle_ended()
        if message then
            length, is_eventual = min(ARGV[message + 7] + 0, LONGEST_LEASE), ARGV[message + 8] == 'f'
            -- More than there ever is at once would only take from the shares of others.
            wanted = ARGV[message + 6] + 0
            for k = 1, #active do wanted = min(wanted, active[k].capacity) end
            settle_mine()
        end
        hold()
        if #groups > 0 then tell_held() end
        return true
    end

    -- Drops the units of the caller's lease: the operation is a reset.
    function api.reset()
        if mine and status ~= STALE and not is_repeat and not is_eventual then
            free(mine.mask, mine.units)
            mine.units = 0
        end
        hold()
        tell_held()
    end

    -- Grants units, and adds the reply to the message. Without a message, while nodes hold units, adds how long a node
    -- caches a denial at most: they may return units before its time is over.
    function api.finish(reply)
        if not message then
            if #groups == 0 then return reply end
            local span = last_end() - now
            return reply .. pack('>i8', max(min((#rows - first + 1) / ROW * 1000, floor(span / 4)), floor(span / 50), 1))
        end
        local count = (#rows - first + 1) / ROW - (mine_at and 1 or 0)
        local pause, longest = 0, min((count + 1) * 1000, floor(length / 4))
        longest = max(longest, floor(length / 50))
        if is_eventual and status ~= STALE then
            -- The row keeps how much of the name's units is counted.
            if not mine and count < MOST_ROWS then mine = { mask = 0, units = 0 } end
            if mine then
                mine.units, mine.seq, mine.demand = max(mine.units, ARGV[message + 3] + 0), ARGV[message + 2] + 0, 0
                mine.born, mine.ends = status == NEW and 1 or 0, now + length
            end
        elseif status ~= STALE and not is_repeat then
            if not mine and count < MOST_ROWS and own_mask then mine = { mask = 0, units = 0, ends = now } end
            if mine then
                local units, is_scarce = 0, false
                if own_mask then units, is_scarce = grant(mine, own_mask) end
                if is_scarce then pause = longest end
                mine.units, mine.seq, mine.demand = mine.units + units, ARGV[message + 2] + 0, wanted
                mine.born = status == NEW and 1 or 0
            end
        end
        local units, ttl, others = 0, 0, 0
        for g = 1, #groups do others = others + groups[g].held end
        if mine then
            if not is_eventual then others = max(others - mine.units, 0) end
            if status ~= STALE then units, ttl = mine.units, max(mine.ends - now, 0) end
        end
        if is_eventual and status ~= STALE then units = max(units, ARGV[message + 3] + 0) end
        return reply .. pack('>i8i8i8i8i8i8', status, units, ttl, pause, others, longest)
    end

    -- The value with this head and these bytes before the rows, and the time until the last row ends.
    function api.text(after, bytes)
        local ends = last_end()
        if mine then ends = max(ends, mine.ends) end
        hold(ends)
        if first > #rows and not mine then
            return bytes == '' and after or after .. '\n' .. bytes, 0
        end
        local texts = {}
        for g = 1, #groups do
            local group = groups[g]
            local text = format('%d:%d', group.mask, group.held)
            for k = 1, #slots do
                if group.u[k] then text = text .. format(':%d%03d', group.u[k], group.n[k]) end
            end
            texts[g] = text
        end
        if mine then demand = demand + mine.demand end
        after = after .. format('&%d;', demand) .. table.concat(texts, ',') .. '\n' .. bytes
        if not mine then return after .. cut(rows, first), ends - now end

        local last = #rows - ROW + 1
        while last >= first and (last == mine_at or unpack_text('>I7', rows, last + 21) > mine.ends) do last = last - ROW end
        local name = pack('>I4I4', ARGV[message] + 0, ARGV[message + 1] + 0)
        local row = name .. pack('>I4BI4I4I7', mine.seq * 2 + mine.born, mine.mask, mine.units, mine.demand, mine.ends)
        local place = last + ROW - 1
        if not mine_at then return after .. cut(rows, first, place) .. row .. cut(rows, place + 1), ends - now end
        if mine_at <= place then
            return after .. cut(rows, first, mine_at - 1) .. cut(rows, mine_at + ROW, place) .. row .. cut(rows, place + 1), ends - now
        end
        return after .. cut(rows, first, place) .. row .. cut(rows, place + 1, mine_at - 1) .. cut(rows, mine_at + ROW), ends - now
    end

    function api.close()
        for k = 1, #slots do slots[k].algorithm = plain[k] end
    end

    return api
end
