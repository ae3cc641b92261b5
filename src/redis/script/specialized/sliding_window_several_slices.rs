// An expression, for `include!`: the script's text for one sliding window of several slices, whose state is the
// number of the newest slice, its count, and those of the slices before. Its arguments are those of the script
// for one slice, and the number of slices, at most 30.
concat!(
    include_str!("begin.lua"),
    "local at = 8\n",
    "local slice, capacity, extra, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0\n",
    "local interval, slices, passed = ARGV[6] + 0, ARGV[7] + 0, now % slice\n",
    "local current = (now - passed) / slice\n",
    include_str!("sliding_window_time_to_weight.lua"),
    include_str!("sliding_window_several_slices.lua"),
    include_str!("end.lua"),
)
