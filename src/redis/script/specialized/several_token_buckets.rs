// An expression, for `include!`: the script's text for several even token buckets, which are charged together or
// not at all. Its arguments are how many there are, and of each in nanoseconds, all below 2^52, so that the sum
// of two is exact: the time of a unit, of a full bucket, and of the most that can count.
concat!(
    include_str!("begin.lua"),
    include_str!("several_token_buckets.lua"),
    include_str!("end.lua"),
)
