-- The server's clock, read once, in microseconds; a test gives its own. All scripts of limits begin with it.
--
-- Twins: none. Rust has a clock.

local ARGV, call, match, pack, format = ARGV, redis.pcall, string.match, struct.pack, string.format
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

