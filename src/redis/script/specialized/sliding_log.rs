// An expression, for `include!`: the script's text for one sliding log, whose state is the sum of all counts and
// the entries as bytes, oldest first: seven for the microsecond, three for the count. Its arguments are the
// period in microseconds, the capacity, the part of that which is beyond the limit, and the nanoseconds of a
// unit. The capacity times a unit is below 2^53.
concat!(
    include_str!("begin.lua"),
    "local unpack, at = struct.unpack, 6\n",
    "local period, capacity, extra = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0\n",
    "local interval = ARGV[5] + 0\n",
    include_str!("sliding_log.lua"),
    include_str!("end.lua"),
)
