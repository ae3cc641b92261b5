//! Quotas, their arithmetic, and the limiter in this process.
//!
//! A key, an operation and a quota flow in, a [`Decision`] flows out. Key extractors read the head of
//! a request, and rejections make a response; nothing here knows tower's services, stores or connections.
//! `tower-ratelimit` hands all of it on; items that are hidden here serve its other packages of the same release.

#[doc(hidden)]
pub mod error;
mod little_endian;
/// Locks without poisoning: a panic leaves no value that they guard half changed.
#[doc(hidden)]
pub mod lock {
    use std::sync::LockResult;

    /// The guard of a lock, whether or not a thread panicked while it held the lock before.
    pub fn unpoisoned<G>(locked: LockResult<G>) -> G {
        locked.unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
#[allow(clippy::exhaustive_enums, reason = "hidden")]
#[doc(hidden)]
pub mod log;
#[allow(clippy::exhaustive_enums, reason = "hidden")]
#[doc(hidden)]
pub mod small_list;
#[doc(hidden)]
pub mod token_usage;

pub mod clock;
pub mod quota;

pub mod decision;
pub mod key;

#[doc(hidden)]
pub mod hash;

#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod algorithm;
pub mod limiter;

pub mod headers;
pub mod reject;

pub use self::{
    decision::decision::Decision,
    error::{ConfigError, ConfigErrorKind, KeyError, KeyErrorKind, LimiterError, LimiterErrorKind},
    headers::Headers,
    key::{Key, extract::KeyExtractor},
    limiter::{
        any::{AnyLimiter, AsyncLimiter},
        limiter::Limiter,
        local::{LocalLimiter, LocalStore},
    },
    quota::quota::{Priority, Quota},
};
