//! The scripts that decide in Redis.
//!
//! In: the keys of up to 32 subjects, and the arguments that `shared/wire/arguments.rs` writes: the quotas of a tier, and
//! the operations on each subject. Out: one text for each subject, which `shared/wire/reply.rs` reads. The value of a
//! subject is one string, whose layout is in `shared/wire/subject_value.rs`.
//!
//! `shared/store_backend/redis.rs` chooses the script of a call. The general one decides everything; it is put together by
//! `script/general_script_text.rs` from a file for each algorithm, and begins in `script/decide.lua`. The specialized ones
//! (`script/specialized.rs`) decide usual operations on usual limits. One of them returns an empty text for a value that it
//! cannot read, such as one with leases; that subject then goes to the general script, now and for some time
//! (`shared/script_choice.rs`).
//!
//! Each file of the general script does what a file of `algorithm/` or `shared/` does in Rust, to the same bytes. The table in
//! `docs/architecture.md` pairs their functions, and `tests/redis/lua_matches_rust.rs` compares them.
//!
//! Example: one token bucket, and a request of one unit. The arguments have the nanoseconds of a unit and of a full bucket;
//! the time is the server's. `script/specialized/bucket.lua` reads the instant at which the bucket is full again, moves it
//! by one unit if that fits, and has the value expire when the bucket is full.

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
