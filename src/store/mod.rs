//! The common part of all stores: errors, a guard with a breaker, health, names of keys.

pub(crate) mod breaker;
pub(crate) mod breaker_guard;
pub(crate) mod call_size;
mod call_times;
pub(crate) mod error;
pub(crate) mod health;
mod health_listener_thread;
pub(crate) mod health_notifier;
pub(crate) mod key_name;
pub(crate) mod lua_number_limits;
#[cfg(feature = "redis")]
pub(crate) mod redirect;
pub(crate) mod runtime_thread;
pub(crate) mod stats;
