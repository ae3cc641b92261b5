// An expression, for `include!`: the script's text for an even token bucket and a sliding window of one slice,
// which are charged together or not at all. Its arguments are `b` or `w`, for the one that comes first in the
// value, and those of the scripts for each of them alone, the bucket's first.
concat!(
    include_str!("begin.lua"),
    "local at, shape = 11, '^(%d+):(%d+):(%d+)$'\n",
    "local bucket_window, window_bucket = '^(%d+)(%d%d%d);(%d+):(%d+):(%d+)$', '^(%d+):(%d+):(%d+);(%d+)(%d%d%d)$'\n",
    "local slice, capacity, extra, most = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9]\n",
    "local unit, passed = ARGV[10] + 0, now % slice\n",
    "local current = (now - passed) / slice\n",
    include_str!("sliding_window_time_to_weight.lua"),
    include_str!("sliding_window_time_to_fit.lua"),
    include_str!("bucket_and_window_state.lua"),
    include_str!("sliding_window_state.lua"),
    include_str!("bucket_sliding_window.lua"),
    include_str!("end.lua"),
)
