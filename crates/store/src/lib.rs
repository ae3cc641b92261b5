//! Calls to a store of limits: what all stores have in common, and Redis.
//!
//! A call flows in, with a deadline. What flows out is the store's reply, or a [`StoreError`] at the deadline at the latest:
//! `breaker` rejects calls at once while the store fails, except for trials; `health` logs the change and shows it as
//! [`StoreHealth`]; `stats` counts. With the feature `redis`, `redis` opens connections to one server, a cluster or
//! sentinels, sends calls in pipelines, and has the scripts in Lua that decide there.
//!
//! Example: a server hangs. Three calls fail at their deadlines, the breaker opens, and one line is logged. Later calls
//! fail at once, and a trial every 250 milliseconds finds out when the server responds again.
//!
//! `tower-ratelimit` hands it on; items that are hidden here serve its other packages of the same release.

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
