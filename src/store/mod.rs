//! The common part of all stores: errors, a guard with a breaker, health, names of keys.

pub(crate) mod breaker;
pub(crate) mod call_size;
pub(crate) mod error;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod health_notifier;
pub(crate) mod key_name;
mod listener_thread;
pub(crate) mod lua;
#[cfg(feature = "redis")]
pub(crate) mod redirect;
pub(crate) mod runtime_thread;
pub(crate) mod stats;
