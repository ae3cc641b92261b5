-- Rows of a subject: units that nodes have leased and spend by themselves, and counts of eventual mode. Leased units
-- are charged when the node reports them or when the lease ends. Made only for a value with rows, or for a call with a
-- message.
--
-- The value's head ends with `&demand;mask:held:interval,...`: the sum of all demands, and for the slots of each
-- mask the units reserved there, with the time of a unit in nanoseconds for each slot that is a bucket.
-- Its bytes end with the rows, sorted by their end: eight bytes for the name, four for the number of the last
-- message (its lowest bit is 1 if that message made the row), one for the mask, four each for the units and the
-- demand, seven for the microsecond of the end. They stay bytes because a call reads one or two of many. They are expensive
-- to copy and to collect: they stay in the text that was read, and are cut and joined once.
--
-- Twins in apply_store_call.rs: begin, hold = held, reset, finish, settle, grant = reserve.
-- Twins in subject_value.rs: last_end, free = settle, read, settle_ended = end, take_mine = take, own_group = group_of.
-- Twins in subject_value.rs: text = write.
-- Twins in compiled_quota.rs: with = with_held.
--
-- `available` are the units that fit all quotas.
local function NodeRows(slots, active, it, available)
    local NEW, KNOWN, STALE = 0, 1, 2
    local cut, unpack_text = string.sub, struct.unpack

    -- The subject: the sum of demands, the units reserved on each mask, and the rows, which are the rest of a text from
    -- the byte `first` on.
    local demand, groups, rows, first
    -- The message: in eventual mode `spent` are all units of the name, and `back` those that the node knows to be
    -- counted. Its row, and the place of it, which counts as taken out until the value is written.
    local name, seq, spent, back, want, wanted, length, is_eventual
    local mine, mine_at, status, is_new

    -- Whether units of a slot can be leased: not those of queues, nor of windows of the calendar.
    local function is_leased(q)
        return q.algorithm.settle and not q.index
    end

    -- The end of the row that begins at this byte.
    local function end_at(at)
        return (unpack_text('>I7', rows, at + 21))
    end

    -- The end of the last of the other rows, or now.
    local function last_end()
        local at = #rows - ROW + 1
        if at == mine_at then at = at - ROW end
        if at < first then return now end
        return min(max(now, end_at(at)), now + LONGEST_LEASE)
    end

    -- Sets the reserved units of each slot, which end at `till`; without it when the last row does.
    local function hold(till)
        if not till then
            till = last_end()
            if mine then till = max(till, mine.ends) end
            if is_new then till = max(till, now + length) end
        end
        for k = 1, #slots do
            local q, held, u, n = slots[k], 0, 0, 0
            for g = 1, #groups do
                local group = groups[g]
                if group.u[k] then
                    held = held + group.held
                    u, n = add(u, n, mul(group.held, group.u[k], group.n[k]))
                end
            end
            q.held, q.held_u, q.held_n, q.held_until = held, u, n, till
            -- Units of a log that are spent later stay for the period from then on.
            q.delay = held > 0 and q.algorithm.wait and till - now or 0
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

    -- Frees reserved units, and charges them whether or not there is room, if they are those of a lease that ends at this
    -- microsecond.
    local function free(mask, units, ends)
        local group, g = group_of(mask)
        if not group then return end
        units = min(units, group.held)
        for k, u in pairs(ends and units > 0 and group.u or {}) do
            slots[k].algorithm.settle(slots[k], slots[k].state, ends, units, u, group.n[k])
        end
        group.held = group.held - units
        if group.held == 0 then table.remove(groups, g) end
    end

    -- Reads the part of the head, and the rows. Returns whether they are valid.
    local function read(head)
        local sum, texts = match(head, '^(%d+);(.*)$')
        if not sum or #sum > 15 then return false end
        for part in string.gmatch(texts, '[^,]+') do
            local mask, held, rest = match(part, '^(%d+):(%d+)(.*)$')
            if not mask or #mask > 3 or #held > 15 then return false end
            -- The time of a unit by slot, zero unless that is a bucket; and as text.
            local group, k = { mask = mask + 0, held = held + 0, u = {}, n = {}, times = '' }, 0
            if group.mask < 1 or group.mask > 255 then return false end
            mask = group.mask
            while mask > 0 do
                local bit = fmod(mask, 2)
                k, mask = k + 1, (mask - bit) / 2
                if bit == 1 then
                    local q, u, n = slots[k], 0, 0
                    if not q or not is_leased(q) then return false end
                    if q.full_u then
                        u, n, rest = match(rest, '^:(%d+)(%d%d%d)(.*)$')
                        if not u or #u > 15 or held * (u + 1) > MOST_RESERVED then return false end
                        group.times = group.times .. format(':%d%03d', u, n)
                    end
                    group.u[k], group.n[k] = u + 0, n + 0
                end
            end
            if rest ~= '' then return false end
            if group.held > 0 then groups[#groups + 1] = group end
        end
        demand = sum + 0
        local size = #rows - first + 1
        return size > 0 and fmod(size, ROW) == 0 and size <= MOST_ROWS * ROW
    end

    -- Charges rows that have ended: the node may have spent all of their units. After a step of the clock backwards no
    -- row lasts longer than the longest lease.
    local function settle_ended()
        local latest, last = now + LONGEST_LEASE, #rows + 1
        while last > first and end_at(last - ROW) > latest do last = last - ROW end
        if last <= #rows then
            local texts = { cut(rows, 1, last - 1) }
            for at = last, #rows, ROW do texts[#texts + 1] = cut(rows, at, at + 20) .. pack('>I7', latest) end
            rows = table.concat(texts)
        end
        while first < #rows and end_at(first) <= now do
            local mask, units, wants, ends = unpack_text('>BI4I4I7', rows, first + 12)
            demand = max(demand - wants, 0)
            free(mask, units, ends)
            first = first + ROW
        end
    end

    -- Takes the message's row out of the others.
    local function take_mine()
        mine_at = string.find(rows, name, first, true)
        while mine_at and fmod(mine_at - first, ROW) > 0 do mine_at = string.find(rows, name, mine_at + 1, true) end
        if not mine_at then return end
        local word, mask, units, wants, ends = unpack_text('>I4BI4I4I7', rows, mine_at + 8)
        local born = fmod(word, 2)
        mine = {
            seq = (word - born) / 2, born = born, mask = mask, units = units, demand = wants,
            ends = min(ends, now + LONGEST_LEASE),
        }
        demand = max(demand - wants, 0)
    end

    -- Charges the units that the message reports: those of a lease, which its row reserves, if the message is the next one
    -- of the row; those of eventual mode, whose row reserves nothing, as far as the row does not count them yet,
    -- whether or not there is room.
    local function settle()
        if is_eventual then
            if mine then status = mine.mask == 0 and KNOWN or STALE end
            is_new = status ~= STALE
            local units = is_new and spent - (mine and mine.units or back) or 0
            for k = 1, units > 0 and #active or 0 do
                local q = active[k]
                if is_leased(q) then q.algorithm.settle(q, q.state, now + 1, units, q.tu, q.tn) end
            end
        elseif mine then
            is_new = mine.seq + 1 == seq
            status = is_new and KNOWN or mine.seq ~= seq and STALE or mine.born == 1 and NEW or KNOWN
            if not is_new then return end
            spent = min(spent, mine.units)
            back = min(back, mine.units - spent)
            mine.units = mine.units - spent - back
            -- The lease ends later than now, so all of it counts now.
            free(mine.mask, spent, now + 1)
            free(mine.mask, back)
        end
    end

    -- The units of a lease of this tier, none so far; nil if it cannot be leased.
    local function own_group()
        local group, bit = { mask = 0, held = 0, u = {}, n = {}, times = '' }, 1
        for k = 1, #slots do
            local q = slots[k]
            if k > MOST_SLOTS or q.is_active and not is_leased(q) then return nil end
            if q.is_active then
                local u, n = q.full_u and q.tu or 0, q.full_u and q.tn or 0
                group.mask, group.u[k], group.n[k] = group.mask + bit, u, n
                if q.full_u then group.times = group.times .. format(':%d%03d', u, n) end
            end
            bit = bit * 2
        end
        return group
    end

    -- Extends the row and reserves the node's share. Returns whether units are scarce: the nodes want more than there is,
    -- and this one gets less than it wants. A row whose units are of other slots or of another rate runs to its end.
    local function grant(row, own)
        local known = group_of(own.mask)
        local alike = not known or known.times == own.times
        if row.units > 0 and not (alike and row.mask == own.mask) then return false end
        -- A node that has not learned a shorter length yet spends until the end that it knows.
        row.mask, row.ends = own.mask, max(row.units > 0 and row.ends or now, now + length)
        local left = available(4294967295 - row.units)
        for k = 1, #active do
            local q = active[k]
            -- No later than the end of a window or slice.
            if q.algorithm.until_end then row.ends = min(row.ends, now + (q.algorithm.until_end(q, q.state))) end
        end
        if want == 0 or less(now, 0, it.end_u, it.end_n) then return false end
        -- Unused units of a row that ends soon, with a window or slice, would count as spent then.
        local soon = max(4 * (row.ends - now), 0)
        if soon < length then want = min(want, max((mul_div(soon, wanted, length)) - row.units, 0)) end
        local all, share = demand + wanted, 0
        if alike and row.ends > now and all > 0 then
            -- As if one more node with the same demand were coming: a node that is alone gets half.
            share = min((mul_div(wanted, left, all + wanted)), want)
        end
        if share < 2 then return all > left and want > 0 end
        if not known then groups[#groups + 1], known = own, own end
        known.held, row.units = known.held + share, row.units + share
        return all > left and share < want
    end

    local api = {}

    -- Charges the units of rows that have ended, and those that the message at this argument reports. Returns false for
    -- a foreign value.
    function api.begin(head, text, from, at)
        demand, groups, rows, first = 0, {}, text, from
        name, mine, mine_at, status, is_new = nil, nil, nil, NEW, false
        if head and not read(head) then return false end
        for k = 1, #slots do slots[k].algorithm.clamp(slots[k], slots[k].state) end
        settle_ended()
        if at then
            name, seq, is_new = pack('>I4I4', ARGV[at], ARGV[at + 1]), ARGV[at + 2] + 0, true
            spent, back, want, wanted = ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
            length, is_eventual = min(ARGV[at + 7] + 0, LONGEST_LEASE), ARGV[at + 8] == 'f'
            -- More than there ever is at once would only take from the shares of others.
            for k = 1, #active do wanted = min(wanted, active[k].part.capacity) end
            take_mine()
            settle()
        end
        hold()
        if #groups > 0 then tell_held() end
        return true
    end

    -- The state of a slot with the reserved units charged now; those of a bucket `later`, when the last lease ends.
    function api.with(q, later)
        if q.full_u then
            local u, n = q.state.u, q.state.n
            local from = later and last_step(q, q.held_until) - last_step(q, now) or 0
            if less(u, n, from, 0) then u, n = from, 0 end
            u, n = add(u, n, q.held_u, q.held_n)
            return { u = u, n = n }
        end
        local copy = {}
        for field, value in pairs(q.state) do copy[field] = value end
        q.algorithm.settle(q, copy, now + 1, q.held)
        if copy.is_foreign then q.state.is_foreign = true end
        return copy
    end

    -- Drops the units of the caller's lease: the operation is a reset.
    function api.reset()
        if mine and is_new and not is_eventual then
            free(mine.mask, mine.units)
            mine.units = 0
        end
        hold()
        tell_held()
    end

    -- Grants or counts units, and adds the reply to the message. Without a message, while nodes hold units, adds how long a
    -- node caches a denial at most: they may return units before its time is over.
    function api.finish(reply)
        local count = (#rows - first + 1) / ROW - (mine_at and 1 or 0)
        if not name then
            if #groups == 0 then return reply end
            local span = last_end() - now
            return reply .. pack('>i8', max(min(count * 1000, floor(span / 4)), floor(span / 50), 1))
        end
        local pause, longest = 0, max(min((count + 1) * 1000, floor(length / 4)), floor(length / 50))
        if is_new then
            local own = not is_eventual and own_group()
            if not mine and count < MOST_ROWS and (own or is_eventual) then mine = { mask = 0, units = 0, ends = now } end
            if mine then
                mine.seq, mine.born, mine.demand = seq, status == NEW and 1 or 0, is_eventual and 0 or wanted
                if is_eventual then
                    mine.units, mine.ends = max(mine.units, spent), now + length
                elseif own and grant(mine, own) then
                    pause = longest
                end
            end
        end
        local units, ttl, others = is_eventual and spent or 0, 0, 0
        for g = 1, #groups do others = others + groups[g].held end
        if mine then
            if not is_eventual then others = max(others - mine.units, 0) end
            units, ttl = max(units, mine.units), max(mine.ends - now, 0)
        end
        if status == STALE then units, ttl = 0, 0 end
        return reply .. pack('>i8i8i8i8i8i8', status, units, ttl, pause, others, longest)
    end

    -- The value with this head and these bytes before the rows, and the time until the last row ends.
    function api.text(head, bytes)
        local ends, row, at = last_end(), '', #rows + 1
        if mine then
            ends, demand = max(ends, mine.ends), demand + mine.demand
            while at > first and (at - ROW == mine_at or end_at(at - ROW) > mine.ends) do at = at - ROW end
            row = name .. pack('>I4BI4I4I7', mine.seq * 2 + mine.born, mine.mask, mine.units, mine.demand, mine.ends)
        end
        hold(ends)
        if first > #rows and row == '' then return bytes == '' and head or head .. '\n' .. bytes, 0 end
        local texts = {}
        for g = 1, #groups do texts[g] = format('%d:%d', groups[g].mask, groups[g].held) .. groups[g].times end
        head = head .. format('&%d;', demand) .. table.concat(texts, ',') .. '\n' .. bytes
        -- The row moves from `here` to `at`.
        local here, rest = mine_at or at, mine_at and mine_at + ROW or at
        return head .. cut(rows, first, min(here, at) - 1) .. cut(rows, rest, at - 1) .. row
            .. cut(rows, at, here - 1) .. cut(rows, max(rest, at)), ends - now
    end

    return api
end
