//! The scripts that decide, and what their numbers can hold.

use std::sync::LazyLock;

use super::store::script::Script;

/// The largest whole number up to which a Lua number counts exactly.
pub(crate) const LUA_MAX_INT: u64 = (1 << 53) - 1;

/// The script that decides: the same arithmetic as in [`crate::algorithm`], in Lua 5.1 and with no
/// library but `struct`, which Redis has had since scripts were new and its descendants have, too.
///
/// Its text is constant: a script made from what clients send would fill the server's script cache.
pub(crate) static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/code.rs")));

/// The script for subjects that one quota of this algorithm counts, or several buckets, and nothing blocks but by hand. A script
/// makes all its functions anew in every call, which is most of what [`DECIDE`] takes; these have two at most.
///
/// They know nothing but acquire, reserve, peek and deny, that of a window also count, and answer with an empty text if there is more to the
/// value than they know: one that another configuration wrote, say.
pub(crate) static DECIDE_LONE_BUCKET: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/lone/bucket.rs")));

pub(crate) static DECIDE_LONE_FIXED_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/lone/fixed_window.rs")));

pub(crate) static DECIDE_LONE_SLIDING_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/lone/sliding_window.rs")));

pub(crate) static DECIDE_LONE_SLIDING_LOG: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/lone/sliding_log.rs")));

pub(crate) static DECIDE_BUCKETS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/lone/buckets.rs")));
