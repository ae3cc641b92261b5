//! Numbers of Lua. All stores hold values with these numbers.

/// The largest whole number that a Lua number holds exactly, with all smaller ones.
pub(crate) const LUA_MAX_INT: u64 = (1 << 53) - 1;
