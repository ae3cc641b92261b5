//! The common part of all stores: errors, the breaker, health, names of keys.

#![cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]

#[doc(hidden)]
pub mod error;

#[doc(hidden)]
pub mod stats;

#[doc(hidden)]
pub mod health;

#[doc(hidden)]
pub mod runtime_thread;

#[doc(hidden)]
pub mod single_background_task;

#[doc(hidden)]
pub mod breaker;

#[doc(hidden)]
pub mod key_name;

#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod redis;

pub use self::{
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
    stats::StoreStats,
};

/// The largest whole number that a Lua number holds exactly, with all smaller ones. All stores hold
/// values with such numbers.
#[doc(hidden)]
pub const LUA_MAX_INT: u64 = (1 << 53) - 1;
