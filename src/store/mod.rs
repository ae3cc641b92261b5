//! The common part of all stores: errors, the breaker, health, names of keys.

pub(crate) mod breaker;
pub(crate) mod error;
pub(crate) mod health;
pub(crate) mod key_name;
pub(crate) mod runtime_thread;
pub(crate) mod stats;

pub use self::{
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
    stats::StoreStats,
};

/// The largest whole number that a Lua number holds exactly, with all smaller ones. All stores hold
/// values with such numbers.
pub(crate) const LUA_MAX_INT: u64 = (1 << 53) - 1;
