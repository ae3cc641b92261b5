-- An instant. Its text is its nanoseconds, one whole number, which Redis keeps in the least memory.

local Instant = {}

function Instant.fresh()
    return { u = 0, n = 0 }
end

function Instant.parse(text)
    if text == '0' then return Instant.fresh() end
    local u, n = text:match('^(%d+)(%d%d%d)$')
    if not u or #u > 16 then return nil end
    return { u = tonumber(u), n = tonumber(n) }
end

function Instant.text(tat)
    if tat.u == 0 and tat.n == 0 then return '0' end
    return string.format('%.0f%03d', tat.u, tat.n)
end
