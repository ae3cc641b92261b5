-- The scripts of a lone quota decide about subjects that have one quota of one algorithm and no `block_for`, each
-- as if alone: what `decide.lua` does with them, in a fraction of the time. Each makes no table and hardly a
-- function for one key, and turns no argument into a number that it does not need.
--
-- ARGV: the time in microseconds (empty for the server's), and of the quota what the script reads. Then for
-- each key the number of arguments of its operations and the operations, or `=` for those of the key
-- before: letter (`a`, `v`, `p` or `d`, of a window also `n`), cost, and how many times it is done.
--
-- The reply is that of `decide.lua`; an empty text says that there is more to the value than the script knows,
-- and that nothing was done.

local ARGV, call, match, pack, format = ARGV, redis.pcall, string.match, struct.pack, string.format
local now = ARGV[1]
if now == '' then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
else
    now = now + 0
end
local replies = KEYS[2] and {}
