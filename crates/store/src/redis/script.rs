//! The scripts that decide in Redis.
//!
//! In: the keys of up to 32 subjects, and the arguments that `crates/shared/src/wire.rs` writes: the quotas of a tier, and
//! the operations on each subject. Out: one text for each subject, which `crates/shared/src/wire/reply.rs` reads. The value of a
//! subject is one string, whose layout is in `crates/shared/src/wire/subject_value.rs`.
//!
//! `crates/shared/src/redis_backend.rs` chooses the script of a call. The general one decides everything; it is put together
//! from a file for each algorithm (`GENERAL`), and begins in `script/decide.lua`. Two specialized scripts decide frequent
//! operations (acquire, reserve, peek, deny, and the count of fixed windows) by buckets and windows: a script creates all its
//! functions in every call, which is most of the time of the general one, and these create none.
//! One of them returns an empty text for a value that it cannot read, such as one with leases; that subject then goes to the
//! general script, now and for some time (`ComplexValues` there).
//!
//! A script and functions in Rust do the same to the same bytes: they clamp, judge, charge and refund alike, and write the
//! same values. Change both together: the head of each script names its twins. `tests/redis/lua_matches_rust.rs` and
//! `tests/redis/differential.rs` compare them, and `tests/redis/scripts/specialized.rs` the specialized scripts with the
//! general one. Only Rust explains: the units left, until when, and the wait of a denial.
//!
//! Example: one token bucket, and a request of one unit. The arguments have the nanoseconds of a unit and of a full bucket;
//! the time is the server's. `script/lone_quota.lua` reads the instant at which the bucket is full again, moves it
//! by one unit if that fits, and has the value expire when the bucket is full.

use std::sync::{Arc, LazyLock};

use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, ToRedisArgs, Value};

use crate::error::{StoreError, StoreErrorKind};

/// Room for each part of a command, in bytes: most are numbers of a few digits.
const USUAL_PART: usize = 10;

/// A Lua script and its digest, which identifies it on the server.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Script {
    pub(super) code: Arc<str>,
    pub(super) digest: Arc<str>,
}

impl Script {
    pub fn new(code: &str) -> Self {
        Self {
            code: code.into(),
            digest: redis::Script::new(code).get_hash().into(),
        }
    }

    /// Creates the command that runs the script on the values of `keys`.
    pub(super) fn call<A: ToRedisArgs>(&self, keys: &[&[u8]], args: &[A]) -> Cmd {
        let parts = 3 + keys.len() + args.len();
        let names: usize = keys.iter().map(|key| key.len()).sum();
        let bytes = names + self.digest.len() + parts * USUAL_PART;
        let mut command = Cmd::with_capacity(parts, bytes);
        command.arg("EVALSHA").arg(&*self.digest).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for arg in args {
            command.arg(arg);
        }
        command
    }

    /// The command that does what `call` does on a server that does not know the script.
    pub(super) fn with_text(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&*self.code);
        for part in call.args_iter().skip(2) {
            if let Arg::Simple(part) = part {
                command.arg(part);
            }
        }
        command
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Whether the server does not know the script, after a restart or a flush of scripts. Then the
/// call has not run.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The first error in a reply about many subjects that concerns the server, such as one of a
/// replica. Errors of a subject's value concern that subject only.
pub(super) fn failure_within(reply: &Value) -> Option<StoreError> {
    let Value::Array(texts) = reply else {
        return None;
    };
    let errors = texts.iter().filter_map(|text| match text {
        Value::BulkString(text) => text.strip_prefix(b"-"),
        _ => None,
    });
    let mut errors = errors.map(|text| StoreError::of_subject(&String::from_utf8_lossy(text)));
    errors.find(|error| error.kind() != StoreErrorKind::ForeignData)
}

/// The general script: the arithmetic of [`tower_ratelimit_core::algorithm`] in Lua 5.1, with `struct` as the only
/// library. Redis has had `struct` as long as scripts, and so have its descendants.
///
/// Its text is constant: a script made from what clients send would fill the server's script cache.
pub static DECIDE: LazyLock<Script> = LazyLock::new(|| Script::new(GENERAL));

/// The text of [`DECIDE`]. A script creates its functions anew in every call, so this one creates those of the algorithms in
/// use only.
pub const GENERAL: &str = concat!(
    include_str!("script/server_clock.lua"),
    include_str!("script/constants.lua"),
    include_str!("script/time_arithmetic.lua"),
    "local function make(letter)\nif letter == 't' or letter == 'l' then\n",
    include_str!("script/token_bucket.lua"),
    "return TokenBucket\nelseif letter == 'f' or letter == 'c' then\n",
    include_str!("script/fixed_window.lua"),
    "return FixedWindow\nelseif letter == 's' then\n",
    include_str!("script/sliding_window.lua"),
    "return SlidingWindow\nelseif letter == 'h' then\n",
    include_str!("script/node_rows.lua"),
    "return NodeRows\nend\n",
    include_str!("script/sliding_log.lua"),
    "return SlidingLog\nend\n",
    include_str!("script/decide.lua"),
);

/// For one even token bucket, one fixed window, or one sliding window of one slice.
pub const LONE_QUOTA: &str = concat!(
    include_str!("script/server_clock.lua"),
    include_str!("script/lone_quota.lua"),
);

/// For several even token buckets and windows, which are charged together or not at all, and for a window of several slices.
pub const SEVERAL_QUOTAS: &str = concat!(
    include_str!("script/server_clock.lua"),
    include_str!("script/several_quotas.lua"),
);
