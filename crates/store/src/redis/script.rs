//! The scripts that decide in Redis.
//!
//! In: the keys of up to 32 subjects, and the arguments that `crates/shared/src/wire/arguments.rs` writes: the quotas of a tier, and
//! the operations on each subject. Out: one text for each subject, which `crates/shared/src/wire/reply.rs` reads. The value of a
//! subject is one string, whose layout is in `crates/shared/src/wire/stored_value.rs`.
//!
//! `crates/shared/src/redis_backend.rs` chooses the script of a call. The general one decides everything; it is put together by
//! `script/general_script_text.rs` from a file for each algorithm, and begins in `script/decide.lua`. Three specialized
//! scripts decide frequent operations (acquire, reserve, peek, deny, and the count of fixed windows) by buckets and windows: a
//! script creates all its functions in every call, which is most of the time of the general one, and these create none.
//! One of them returns an empty text for a value that it cannot read, such as one with leases; that subject then goes to the
//! general script, now and for some time (`ComplexValues` there).
//!
//! A script and functions in Rust do the same to the same bytes: they clamp, judge, charge and refund alike, and write the
//! same values. Change both together: the head of each script names its twins. `tests/redis/lua_matches_rust.rs` and
//! `tests/redis/differential.rs` compare them, and `tests/redis/scripts/specialized.rs` the specialized scripts with the
//! general one. Only Rust explains: the units left, until when, and the wait of a denial.
//!
//! Example: one token bucket, and a request of one unit. The arguments have the nanoseconds of a unit and of a full bucket;
//! the time is the server's. `script/lone_bucket.lua` reads the instant at which the bucket is full again, moves it
//! by one unit if that fits, and has the value expire when the bucket is full.

use std::sync::LazyLock;

use super::store::script_by_digest::Script;

/// The general script: the arithmetic of [`tower_ratelimit_core::algorithm`] in Lua 5.1, with `struct` as the only
/// library. Redis has had `struct` as long as scripts, and so have its descendants.
///
/// Its text is constant: a script made from what clients send would fill the server's script cache.
pub static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/general_script_text.rs")));

/// For one even token bucket.
pub const LONE_BUCKET: &str = include_str!("script/lone_bucket.lua");

/// For one fixed window, or one sliding window of one slice.
pub const LONE_WINDOW: &str = include_str!("script/lone_window.lua");

/// For several even token buckets and windows, which are charged together or not at all, and for a window of several slices.
pub const SEVERAL_QUOTAS: &str = include_str!("script/several_quotas.lua");
