//! The texts of the scripts for usual limits, each put together from parts: for subjects with a single quota of one
//! algorithm, several buckets, or a bucket and a window, and no block other than by hand. A script creates all its functions
//! in every call, which is most of the time of the general one; these scripts create two at most.
//!
//! They know the operations acquire, reserve, peek and deny, those of a window also count. They return an empty text for a
//! value that they cannot read, such as one that another configuration wrote.

/// For one even token bucket, whose state is the TAT, the instant at which it is full again. Its
/// arguments are in nanoseconds, all below 2^52, so that the sum of two is exact: the time of a
/// unit, of a full bucket, and of the most that can count.
pub(crate) const LONE_BUCKET: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local at, pattern = 5, '^(%d+)(%d%d%d)$'\n",
    "local interval, full = ARGV[2] + 0, ARGV[3] + 0\n",
    include_str!("specialized/key.lua"),
    include_str!("specialized/bucket.lua"),
    include_str!("specialized/end.lua"),
);

/// For several even token buckets, which are charged together or not at all. Its arguments are how
/// many there are, and of each in nanoseconds, all below 2^52, so that the sum of two is exact: the
/// time of a unit, of a full bucket, and of the most that can count.
pub(crate) const BUCKETS: &str = concat!(
    include_str!("specialized/begin.lua"),
    include_str!("specialized/several_token_buckets.lua"),
    include_str!("specialized/end.lua"),
);

/// For one fixed window, whose state is its number and its count. Its arguments are the period in
/// microseconds, the capacity, the part of that which is beyond the limit, and the most that can
/// count.
pub(crate) const LONE_FIXED_WINDOW: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local at, pattern = 6, '^(%d+):(%d+)$'\n",
    "local period, capacity, extra, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5]\n",
    "local current = (now - now % period) / period\n",
    include_str!("specialized/key.lua"),
    include_str!("specialized/fixed_window_state.lua"),
    include_str!("specialized/fixed_window.lua"),
    include_str!("specialized/end.lua"),
);

/// For one sliding window of one slice, whose state is the number of the newest slice, its count,
/// and that of the slice before. Its arguments are the slice in microseconds, the capacity, the
/// part of that which is beyond the limit, the most that can count, and the nanoseconds of a unit.
/// The most times the slice is below 2^53, and so is the capacity times a unit, so all products are
/// exact.
pub(crate) const LONE_SLIDING_WINDOW: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local at, pattern = 7, '^(%d+):(%d+):(%d+)$'\n",
    "local slice, capacity, extra, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5]\n",
    "local interval, passed = ARGV[6] + 0, now % slice\n",
    "local current = (now - passed) / slice\n",
    include_str!("specialized/sliding_window_time_to_weight.lua"),
    include_str!("specialized/sliding_window_time_to_fit.lua"),
    include_str!("specialized/key.lua"),
    include_str!("specialized/sliding_window_state.lua"),
    include_str!("specialized/sliding_window.lua"),
    include_str!("specialized/end.lua"),
);

/// For one sliding window of several slices, whose state is the number of the newest slice, its
/// count, and those of the slices before. Its arguments are those of the script for one slice, and
/// the number of slices, at most 30.
pub(crate) const LONE_SEVERAL_SLICES: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local at = 8\n",
    "local slice, capacity, extra, most = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0\n",
    "local interval, slices, passed = ARGV[6] + 0, ARGV[7] + 0, now % slice\n",
    "local current = (now - passed) / slice\n",
    include_str!("specialized/sliding_window_time_to_weight.lua"),
    include_str!("specialized/sliding_window_several_slices.lua"),
    include_str!("specialized/end.lua"),
);

/// For an even token bucket and a fixed window, which are charged together or not at all. Its
/// arguments are `b` or `w`, for the one that comes first in the value, and those of the scripts
/// for each of them alone, the bucket's first. The third number of the window's pattern is empty.
pub(crate) const BUCKET_FIXED_WINDOW: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local at, shape = 10, '^(%d+):(%d+)(%d-)$'\n",
    "local bucket_window, window_bucket = '^(%d+)(%d%d%d);(%d+):(%d+)(%d-)$', '^(%d+):(%d+)(%d-);(%d+)(%d%d%d)$'\n",
    "local period, capacity, extra, most = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9]\n",
    "local current = (now - now % period) / period\n",
    include_str!("specialized/bucket_and_window_state.lua"),
    include_str!("specialized/fixed_window_state.lua"),
    include_str!("specialized/bucket_fixed_window.lua"),
    include_str!("specialized/end.lua"),
);

/// For an even token bucket and a sliding window of one slice, which are charged together or not at
/// all. Its arguments are `b` or `w`, for the one that comes first in the value, and those of the
/// scripts for each of them alone, the bucket's first.
pub(crate) const BUCKET_SLIDING_WINDOW: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local at, shape = 11, '^(%d+):(%d+):(%d+)$'\n",
    "local bucket_window, window_bucket = '^(%d+)(%d%d%d);(%d+):(%d+):(%d+)$', '^(%d+):(%d+):(%d+);(%d+)(%d%d%d)$'\n",
    "local slice, capacity, extra, most = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9]\n",
    "local unit, passed = ARGV[10] + 0, now % slice\n",
    "local current = (now - passed) / slice\n",
    include_str!("specialized/sliding_window_time_to_weight.lua"),
    include_str!("specialized/sliding_window_time_to_fit.lua"),
    include_str!("specialized/bucket_and_window_state.lua"),
    include_str!("specialized/sliding_window_state.lua"),
    include_str!("specialized/bucket_sliding_window.lua"),
    include_str!("specialized/end.lua"),
);

/// For one sliding log, whose state is the sum of all counts and the entries as bytes, oldest
/// first: seven for the microsecond, three for the count. Its arguments are the period in
/// microseconds, the capacity, the part of that which is beyond the limit, and the nanoseconds of a
/// unit. The capacity times a unit is below 2^53.
pub(crate) const LONE_SLIDING_LOG: &str = concat!(
    include_str!("specialized/begin.lua"),
    "local unpack, at = struct.unpack, 6\n",
    "local period, capacity, extra = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0\n",
    "local interval = ARGV[5] + 0\n",
    include_str!("specialized/sliding_log.lua"),
    include_str!("specialized/end.lua"),
);
