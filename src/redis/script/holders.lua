-- The leases of a subject: units that nodes hold, each to spend them by itself, and that are charged when it says
-- so or when the lease ends. Made only for a subject that has some, or whose caller asks for one.
--
-- The value's head ends with `&demand;mask:held:interval,...`: the sum of all demands, and for the slots of each
-- mask the units that are held there, with the time of a unit in nanoseconds of each slot that is a bucket.
-- Its bytes end with the rows, those that end soonest first: eight bytes for the name, four for the number of the
-- last message, whose lowest bit says whether that made the row, one for the mask, four each for the units and the
-- demand, seven for the microsecond of the end. They stay bytes, since a call looks at one or two of many.
--
-- Read beside `leasing.rs` and `holders.rs`, which do the same.

local function Holders(slots, active, it)
    local ROW, MOST_ROWS, MOST_SLOTS, LONGEST = 28, 1024, 8, 60000000
    local MOST_UNITS, MOST_ENTRY = 4294967295, 16777215
    local NEW, KNOWN, STALE = 0, 1, 2
    local sub_text, unpack_text = string.sub, struct.unpack

    -- The subject's: the sum of demands, the units held on each mask, and the rows.
    local demand, groups, rows
    -- The place of the clause in the arguments, and what it is about: the row of its name is taken out until the
    -- operations are done.
    local clause, mine, status, is_repeat, length
    local plain, levels = {}, {}
    for k = 1, #slots do plain[k], levels[k] = slots[k].algorithm, slots[k].level end

    -- The algorithm's letter.
    local function letter_of(k)
        return ARGV[5 + (k - 1) * 10]
    end

    local function has_slot(mask, k)
        return k <= MOST_SLOTS and fmod(floor(mask / 2 ^ (k - 1)), 2) == 1
    end

    local function last_step(q, at)
        if q.step == 0 then return at end
        return at - fmod(at, q.step)
    end

    -- Charges units whether or not there is room, at `at` microseconds, which is not later than now. Units of a window
    -- count in the one that was in force at `within`.
    local settle = {}

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

    function settle.f(q, window, _, within, units)
        local index = div(within, 0, q.period_u, q.period_n)
        if window.index < index or window.count == 0 then window.index, window.count = index, 0 end
        window.count = max(min(window.count + units, q.most_u), window.count)
    end

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

    function settle.g(q, log, at, _, units, _, _, algorithm)
        -- Forgets what is gone, and moves entries of now to those that are noted now.
        algorithm.charge(q, log, 0)
        local bytes, newest, count = log.bytes, nil, 0
        if bytes ~= '' then newest, count = unpack_text('>I7I3', bytes, #bytes - 9) end
        if log.noted > 0 then newest, count = now, log.noted end
        if newest and newest > at then at = newest end
        local u, n = add(at, 0, q.period_u, q.period_n)
        if not less(now, 0, u, n) then return end
        if at ~= newest then count = 0 end
        units = min(units, MOST_ENTRY - min(count, MOST_ENTRY))
        log.total = log.total + units
        if at == now then
            log.noted = log.noted + units
        else
            if at == newest then bytes = sub_text(bytes, 1, #bytes - 10) end
            log.bytes = bytes .. pack('>I7I3', at, count + units)
        end
    end

    -- What is held on a slot stands beside its state: all is as if it had been charged. How long a denial lasts is
    -- measured on a state in which it is charged when the last lease ends.
    local beside = {}

    function beside.t(q)
        local function charged(bucket, from)
            local u, n = bucket.u, bucket.n
            if less(u, n, from, 0) then u, n = from, 0 end
            u, n = add(u, n, q.held_u, q.held_n)
            return { u = u, n = n }
        end

        local function as_now(bucket)
            return charged(bucket, 0)
        end

        local function later(bucket)
            return charged(bucket, max(last_step(q, q.held_until) - last_step(q, now), 0))
        end

        q.level = function(bucket)
            local with = as_now(bucket)
            if less(q.most_u, q.most_n, with.u, with.n) then return q.most_u, q.most_n end
            return with.u, with.n
        end
        return as_now, later, 0
    end

    function beside.f(q)
        local function with(window)
            local copy = { index = window.index, count = window.count }
            settle.f(q, copy, now, now, q.held)
            return copy
        end
        return with, with, 0
    end

    function beside.s(q)
        local function with(slices)
            local copy = { newest = slices.newest }
            for at, count in ipairs(slices) do copy[at] = count end
            settle.s(q, copy, now, now, q.held)
            return copy
        end
        return with, with, 0
    end

    function beside.g(q, algorithm)
        local function with(log)
            local copy = { total = log.total, bytes = log.bytes, noted = log.noted }
            settle.g(q, copy, now, now, q.held, 0, 0, algorithm)
            log.is_foreign = log.is_foreign or copy.is_foreign
            return copy
        end
        return with, with, max(q.held_until - now, 0)
    end

    -- The algorithm of a slot on which units are held.
    local function besides(k)
        local q, algorithm = slots[k], plain[k]
        local as_now, later, delay = beside[letter_of(k)](q, algorithm)
        local B = {}
        for name, value in pairs(algorithm) do B[name] = value end

        function B.verdict(_, state, cost)
            if state ~= q.state then return algorithm.verdict(q, state, cost) end
            local verdict, u, n = algorithm.verdict(q, as_now(state), cost)
            if verdict ~= AFTER then return verdict, u, n end
            verdict, u, n = algorithm.verdict(q, later(state), cost)
            return verdict, u + delay, n
        end

        function B.available(_, state)
            return algorithm.available(q, as_now(state))
        end

        function B.reset_after(_, state)
            if state ~= q.state then return algorithm.reset_after(q, state) end
            local u, n = algorithm.reset_after(q, later(state))
            return u + delay, n
        end

        function B.charge(_, state, cost)
            if state ~= q.state then return algorithm.charge(q, state, cost) end
            cost = min(cost, B.available(q, state))
            if cost > 0 then algorithm.charge(q, state, cost) end
        end

        if algorithm.window_end then
            function B.window_end(_, state)
                return algorithm.window_end(q, as_now(state))
            end
        end
        return B
    end

    -- Sets the slots' algorithms by what is held, and says when the last lease ends.
    local function hold()
        local last = now
        if rows ~= '' then last = min(max(last, (unpack_text('>I7', rows, #rows - 6))), now + LONGEST) end
        local till = last
        if mine then till = max(till, mine.ends) end
        if length and status ~= STALE and not is_repeat then till = max(till, now + length) end
        for k = 1, #slots do
            local q = slots[k]
            local held, u, n = 0, 0, 0
            for g = 1, #groups do
                local group = groups[g]
                if has_slot(group.mask, k) then
                    held = held + group.held
                    if group.u[k] then u, n = add(u, n, mul(group.held, group.u[k], group.n[k])) end
                end
            end
            q.algorithm, q.level = plain[k], levels[k]
            q.held, q.held_u, q.held_n, q.held_until = held, u, n, till
            if held > 0 then q.algorithm = besides(k) end
        end
        return last
    end

    local function group_of(mask)
        for g = 1, #groups do
            if groups[g].mask == mask then return groups[g] end
        end
    end

    local function free(mask, units)
        for g = #groups, 1, -1 do
            if groups[g].mask == mask then
                groups[g].held = max(groups[g].held - units, 0)
                if groups[g].held == 0 then table.remove(groups, g) end
                return
            end
        end
    end

    -- Charges units of a lease that ends at this microsecond, and frees them.
    local function release(mask, units, ends)
        local group = group_of(mask)
        if not group then return end
        units = min(units, group.held)
        for k = 1, units > 0 and #slots or 0 do
            if has_slot(mask, k) then
                local q = slots[k]
                settle[letter_of(k)](q, q.state, min(ends, now), min(max(ends - 1, 0), now), units, group.u[k], group.n[k], plain[k])
            end
        end
        free(mask, units)
    end

    -- Reads `mask:held` and the intervals; nothing if it is foreign.
    local function read_group(text)
        local mask, held, rest = match(text, '^(%d+):(%d+)(.*)$')
        if not mask or #mask > 3 or #held > 15 then return nil end
        mask, held = mask + 0, held + 0
        if mask < 1 or mask > 255 then return nil end
        local group = { mask = mask, held = held, u = {}, n = {} }
        for k = 1, MOST_SLOTS do
            if has_slot(mask, k) then
                local letter = k <= #slots and letter_of(k)
                if not settle[letter] then return nil end
                if letter == 't' then
                    local u, n, after = match(rest, '^:(%d+)(%d%d%d)(.*)$')
                    if not u or #u > 15 or held * (u + 1) > 1125899906842624 then return nil end
                    group.u[k], group.n[k], rest = u + 0, n + 0, after
                end
            end
        end
        return rest == '' and group or nil
    end

    -- Whether the part of the head and the rows could be read.
    local function read(head, bytes)
        demand, groups, rows = 0, {}, ''
        if not head then return true end
        local sum, texts = match(head, '^(%d+);(.*)$')
        if not sum or #sum > 15 then return false end
        for text in string.gmatch(texts, '[^,]+') do
            local group = read_group(text)
            if not group then return false end
            if group.held > 0 then groups[#groups + 1] = group end
        end
        if bytes == '' or fmod(#bytes, ROW) > 0 or #bytes > MOST_ROWS * ROW then return false end
        demand, rows = sum + 0, bytes
        return true
    end

    local function end_at(at)
        return (unpack_text('>I7', rows, at + 21))
    end

    local function row_at(at)
        local word, mask, units, wanted, ends = unpack_text('>I4BI4I4I7', rows, at + 8)
        local born = fmod(word, 2)
        local name = sub_text(rows, at, at + 7)
        return { name = name, seq = (word - born) / 2, born = born, mask = mask, units = units, demand = wanted, ends = ends }
    end

    -- After a step of the clock backwards no row lasts longer than the longest lease.
    local function heal(latest)
        local last, healed = #rows - ROW + 1, {}
        while last > 0 and end_at(last) > latest do
            healed[#healed + 1] = sub_text(rows, last, last + 20) .. pack('>I7', latest)
            last = last - ROW
        end
        if not healed[1] then return end
        local texts = { sub_text(rows, 1, last + ROW - 1) }
        for at = #healed, 1, -1 do texts[#texts + 1] = healed[at] end
        rows = table.concat(texts)
    end

    local function settle_ended()
        local first = 1
        while first < #rows and end_at(first) <= now do
            local row = row_at(first)
            demand = max(demand - row.demand, 0)
            release(row.mask, row.units, row.ends)
            first = first + ROW
        end
        if first > 1 then rows = sub_text(rows, first) end
    end

    -- Takes out the row of this name.
    local function take(name)
        local from = 1
        while true do
            local at = string.find(rows, name, from, true)
            if not at then return nil end
            if fmod(at, ROW) == 1 then
                local row = row_at(at)
                rows = sub_text(rows, 1, at - 1) .. sub_text(rows, at + ROW)
                demand = max(demand - row.demand, 0)
                return row
            end
            from = at + 1
        end
    end

    local function put(row)
        local last = #rows - ROW + 1
        while last > 0 and end_at(last) > row.ends do last = last - ROW end
        local text = row.name .. pack('>I4BI4I4I7', row.seq * 2 + row.born, row.mask, row.units, row.demand, row.ends)
        rows = sub_text(rows, 1, last + ROW - 1) .. text .. sub_text(rows, last + ROW)
        demand = demand + row.demand
    end

    local function argument(at)
        return ARGV[clause + at] + 0
    end

    -- The mask that a lease of this tier has, with the time of a unit of each bucket; nothing where there is none.
    local function own_group()
        if #slots > MOST_SLOTS then return nil end
        local group = { mask = 0, held = 0, u = {}, n = {} }
        for k = 1, #slots do
            if ARGV[5 + (k - 1) * 10 + 1] == '1' then
                if letter_of(k) == 'l' then return nil end
                group.mask = group.mask + 2 ^ (k - 1)
                if letter_of(k) == 't' then group.u[k], group.n[k] = slots[k].tu, slots[k].tn end
            end
        end
        return group
    end

    -- Reserves the caller's share, and moves the row's end on. A row whose units are of other slots or another
    -- rate runs to its end. Says what is granted, and whether there is less than all want.
    local function grant(row, is_blocked)
        local group = own_group()
        if not group then return 0, false end
        local known, alike = group_of(group.mask), true
        for k = 1, known and #slots or 0 do
            if known.u[k] ~= group.u[k] or known.n[k] ~= group.n[k] then alike = false end
        end
        if row.units > 0 and not (alike and row.mask == group.mask) then return 0, false end
        -- A holder that has not heard of a shorter length spends on until the end that it knows.
        row.mask, row.ends = group.mask, max(row.units > 0 and row.ends or now, now + length)
        for k = 1, #slots do
            local q = slots[k]
            if has_slot(group.mask, k) and letter_of(k) == 'f' then
                row.ends = min(row.ends, now + (plain[k].window_end(q, q.state)))
            elseif has_slot(group.mask, k) and letter_of(k) == 's' then
                local index = quotient(now, q.slice)
                if q.state.newest == index + 1 then index = index + 1 end
                row.ends = min(row.ends, (index + 1) * q.slice)
            end
        end
        local want, wanted = argument(5), argument(6)
        if want == 0 or is_blocked then return 0, false end
        local left = MOST_UNITS - row.units
        for k = 1, #active do left = min(left, active[k].algorithm.available(active[k], active[k].state)) end
        local all, share = demand + wanted, 0
        if alike and row.ends > now and all > 0 then
            -- As if one more like the caller were coming: alone it gets half.
            share = min((mul_div(wanted, left, all + wanted)), want)
            if share < 2 then share = 0 end
        end
        if share > 0 then
            if not known then groups[#groups + 1] = group end
            known = known or group
            known.held = known.held + share
        end
        return share, all > left and share < want
    end

    local api = {}

    -- Settles what has ended and what the clause says was spent; false if the part is foreign.
    function api.begin(head, bytes, at)
        clause, mine, status, is_repeat, length = at, nil, NEW, false, nil
        if not read(head, bytes) then return false end
        for k = 1, #slots do plain[k].clamp(slots[k], slots[k].state) end
        heal(now + LONGEST)
        settle_ended()
        if clause then
            length = min(argument(7), LONGEST)
            mine = take(pack('>I4I4', argument(0), argument(1)))
        end
        if mine then
            mine.ends = min(mine.ends, now + LONGEST)
            local seq = argument(2)
            is_repeat = mine.seq == seq
            if is_repeat then
                status = mine.born == 1 and NEW or KNOWN
            else
                status = mine.seq + 1 == seq and KNOWN or STALE
            end
            if status == KNOWN and not is_repeat then
                local spent = min(argument(3), mine.units)
                mine.units = mine.units - spent
                -- It ends later than now, so all of it counts now.
                release(mine.mask, spent, now + 1)
                local back = min(argument(4), mine.units)
                mine.units = mine.units - back
                free(mine.mask, back)
            end
        end
        hold()
        return true
    end

    -- After a reset nothing is left of what the caller had.
    function api.reset()
        if mine and status ~= STALE and not is_repeat then
            free(mine.mask, mine.units)
            mine.units = 0
        end
        hold()
    end

    -- Grants, and adds the answer to the clause to the reply.
    function api.finish(reply)
        if not clause then return reply end
        local count = #rows / ROW
        local pause, longest = 0, min((count + 1) * 1000, floor(length / 4))
        longest = max(longest, floor(length / 50))
        if status ~= STALE and not is_repeat then
            if not mine and count < MOST_ROWS and own_group() then
                mine = { name = pack('>I4I4', argument(0), argument(1)), mask = 0, units = 0, ends = now }
            end
            if mine then
                local units, is_scarce = grant(mine, less(now, 0, it.end_u, it.end_n))
                if is_scarce then pause = longest end
                mine.units, mine.seq, mine.demand = mine.units + units, argument(2), argument(6)
                mine.born = status == NEW and 1 or 0
            end
        end
        local units, ttl, others = 0, 0, 0
        for g = 1, #groups do others = others + groups[g].held end
        if mine then
            others = max(others - mine.units, 0)
            if status ~= STALE then units, ttl = mine.units, max(mine.ends - now, 0) end
            put(mine)
            mine = nil
        end
        clause, length = nil, nil
        return reply .. pack('>i8i8i8i8i8i8', status, units, ttl, pause, others, longest)
    end

    -- The part of the head and the bytes of the rows, and for how long there are some.
    function api.text()
        local ends = hold() - now
        if rows == '' then return '', '', 0 end
        local texts = {}
        for g = 1, #groups do
            local group = groups[g]
            local text = format('%d:%d', group.mask, group.held)
            for k = 1, #slots do
                if group.u[k] then text = text .. format(':%d%03d', group.u[k], group.n[k]) end
            end
            texts[g] = text
        end
        return format('&%d;', demand) .. table.concat(texts, ','), rows, ends
    end

    function api.close()
        for k = 1, #slots do slots[k].algorithm, slots[k].level = plain[k], levels[k] end
    end

    return api
end
