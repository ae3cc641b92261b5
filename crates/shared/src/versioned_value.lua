-- A value with a version in its first eight bytes: read with the time, or written if its version is
-- still the same.
--
-- ARGV: nothing to read. To write: the version, empty if the key has no value; the new value with
-- its version; and its time to live in milliseconds.
--
-- The reply is the time and the value, or 1 if the value was written, else 0.
--
-- Twins: none. The service computes what the value contains.

local VERSION = 8

local value = redis.call('GET', KEYS[1])
if #ARGV == 0 then
    local time = redis.call('TIME')
    return { time[1] * 1000000 + time[2], value }
end
if (value or ''):sub(1, VERSION) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
