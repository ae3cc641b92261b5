//! Quotas, their arithmetic, and the limiter in this process.
//!
//! A key, an operation and a quota flow in, a [`Decision`] flows out. Key extractors read the head of
//! a request, and rejections make a response; nothing here knows tower's services, stores or connections.
//! `tower-ratelimit` hands all of it on; items that are hidden here serve its other packages of the same release.

mod byte_buffers;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod hash_seed;
#[doc(hidden)]
pub mod lock;
#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod log;
#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod small_list;
#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod timer;
#[doc(hidden)]
pub mod tokens;

pub mod clock;
pub mod quota;

pub mod decision;
pub mod key;

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
    key::{extract::KeyExtractor, value::Key},
    limiter::{
        any::AnyLimiter,
        async_limiter::AsyncLimiter,
        limiter::Limiter,
        local::{LocalLimiter, LocalStore},
    },
    quota::{priority::Priority, value::Quota},
};
