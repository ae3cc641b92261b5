// An expression, for `include!`: the script's text for an even token bucket and a fixed window, which are charged
// together or not at all. Its arguments are `b` or `w`, for the one that comes first in the value, and those of
// the scripts for each of them alone, the bucket's first. The third number of the window's pattern is empty.
concat!(
    include_str!("begin.lua"),
    "local at, shape = 10, '^(%d+):(%d+)(%d-)$'\n",
    "local bucket_window, window_bucket = '^(%d+)(%d%d%d);(%d+):(%d+)(%d-)$', '^(%d+):(%d+)(%d-);(%d+)(%d%d%d)$'\n",
    "local period, capacity, extra, most = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9]\n",
    "local current = (now - now % period) / period\n",
    include_str!("bucket_and_window_state.lua"),
    include_str!("fixed_window_state.lua"),
    include_str!("bucket_fixed_window.lua"),
    include_str!("end.lua"),
)
