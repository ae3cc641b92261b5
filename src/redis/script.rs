//! The scripts that decide in Redis.

mod specialized;

use std::sync::LazyLock;

use super::store::script_by_digest::Script;

/// The general script: the arithmetic of [`crate::algorithm`] in Lua 5.1, with `struct` as the only
/// library. Redis has had `struct` as long as scripts, and so have its descendants.
///
/// Its text is constant: a script made from what clients send would fill the server's script cache.
pub(crate) static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/general_script_text.rs")));

/// The script for subjects with a single quota of this algorithm, several buckets, or a bucket and a
/// window, and no block other than by hand. A script creates all its functions in every call, which
/// is most of the time of [`DECIDE`]; these scripts create two at most.
///
/// They know the operations acquire, reserve, peek and deny, those of a window also count. They
/// return an empty text for a value that they cannot read, such as one that another configuration
/// wrote.
pub(crate) static DECIDE_LONE_BUCKET: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::LONE_BUCKET));

pub(crate) static DECIDE_LONE_FIXED_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::LONE_FIXED_WINDOW));

pub(crate) static DECIDE_LONE_SLIDING_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::LONE_SLIDING_WINDOW));

pub(crate) static DECIDE_LONE_SEVERAL_SLICES: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::LONE_SEVERAL_SLICES));

pub(crate) static DECIDE_LONE_SLIDING_LOG: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::LONE_SLIDING_LOG));

pub(crate) static DECIDE_BUCKETS: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::BUCKETS));

pub(crate) static DECIDE_BUCKET_FIXED_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::BUCKET_FIXED_WINDOW));

pub(crate) static DECIDE_BUCKET_SLIDING_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(specialized::BUCKET_SLIDING_WINDOW));
