// An expression, for `include!`: the script's text for one sliding window of one slice, whose state is the number
// of the newest slice, its count, and that of the slice before. Its arguments are the slice in
// microseconds, the capacity, the part of that which is beyond the limit, the most that can count, and the
// nanoseconds of a unit. The most times the slice is below 2^53, and so is the capacity times a unit, so all
// products are exact.
concat!(
    include_str!("begin.lua"),
    "local at, pattern = 7, '^(%d+):(%d+):(%d+)$'\n",
    "local slice, capacity, extra, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5]\n",
    "local interval, passed = ARGV[6] + 0, now % slice\n",
    "local current = (now - passed) / slice\n",
    include_str!("sliding_window_time_to_weight.lua"),
    include_str!("sliding_window_time_to_fit.lua"),
    include_str!("key.lua"),
    include_str!("sliding_window_state.lua"),
    include_str!("sliding_window.lua"),
    include_str!("end.lua"),
)
