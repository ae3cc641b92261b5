// An expression, for `include!`: the script's text for one fixed window, whose state is its number and its
// count. Its arguments are the period in microseconds, the capacity, the part of that which is beyond the
// limit, and the most that can count.
concat!(
    include_str!("begin.lua"),
    "local at, pattern = 6, '^(%d+):(%d+)$'\n",
    "local period, capacity, extra, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5]\n",
    "local current = (now - now % period) / period\n",
    include_str!("key.lua"),
    include_str!("fixed_window_state.lua"),
    include_str!("fixed_window.lua"),
    include_str!("end.lua"),
)
