// An expression, for `include!`: the script's text for one even token bucket, whose state is the TAT, the
// instant at which it is full again. Its arguments are in nanoseconds, all below 2^52, so that the sum of two is
// exact: the time of a unit, of a full bucket, and of the most that can count.
concat!(
    include_str!("begin.lua"),
    "local at, pattern = 5, '^(%d+)(%d%d%d)$'\n",
    "local interval, full = ARGV[2] + 0, ARGV[3] + 0\n",
    include_str!("key.lua"),
    include_str!("bucket.lua"),
    include_str!("end.lua"),
)
