use std::sync::LazyLock;

use super::store::Script;

/// The script that decides: the same arithmetic as in [`crate::algorithm`], in plain Lua 5.1, so
/// that every server that speaks Redis' protocol can run it.
///
/// Its text is constant: a script made from what clients send would fill the server's script cache.
pub(super) static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include!("script/code.rs")));
