-- The specialized scripts decide about subjects with few quotas and no `block_for`, each as if alone. They do the same as
-- `decide.lua` in a fraction of the time: for one key they make hardly a table or a function, and convert only the
-- arguments that they need.
--
-- ARGV: the time in microseconds (empty for the server's), and the numbers of the quotas. Then for each key the
-- number of arguments of its operations and the operations, or `=` for those of the previous key: letter (`a`, `v`,
-- `p` or `d`, for a window also `n`), cost, and how many times.
--
-- The reply is that of `decide.lua`. An empty text means that the value has more than the script knows, and that
-- nothing was done.

local ARGV, call, match, pack, format = ARGV, redis.pcall, string.match, struct.pack, string.format
local now = ARGV[1]
if now == '' then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
else
    now = now + 0
end
local replies = KEYS[2] and {}
