-- A fixed window whose limit is the one in force when it begins. The state is a fixed window's.

local VaryingFixedWindow = {}
for name, action in pairs(FixedWindow) do VaryingFixedWindow[name] = action end
VaryingFixedWindow.vary = read_limits

function VaryingFixedWindow.verdict(q, window, cost)
    local index, count = current(q, window)
    if cost == 0 or cost <= limit_at(q, q.limits, index) - count then return FITS, 0, 0 end
    if cost > most_of(q.limits) then return NEVER end
    return AFTER, max(first_with(q, cost, index) * q.period_u - now, 0), 0
end

function VaryingFixedWindow.available(q, window)
    local index, count = current(q, window)
    return max(limit_at(q, q.limits, index) - count, 0)
end

function VaryingFixedWindow.charge(q, window, cost)
    local index, count = current(q, window)
    window.index, window.count = index, count + min(cost, VaryingFixedWindow.available(q, window))
end

function VaryingFixedWindow.standing(q, window)
    local index, count = current(q, window)
    local left = limit_at(q, reported_limits(q), index) - count
    local is_excess = q.extra > 0 and left < 0
    local reset_after = VaryingFixedWindow.reset_after(q, window)
    return packed_standing(q, limit_at(q, q.nominal, index), is_excess, max(left, 0), reset_after, (until_end(q, index)))
end
