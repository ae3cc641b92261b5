//! Limiters decide operations on keys, by [`Limiter::call`].
//!
//! | limiter | state |
//! |---|---|
//! | [`LocalLimiter`] | a table of fixed size in this process; what a bare [`Quota`](crate::Quota) becomes |
//! | `GovernorLimiter` | a `governor::RateLimiter` that you already have (feature `governor`) |
//! | [`JointLimiter`] | several of these, each with a key of its own, charged together or not at all |
//! | [`AsyncLimiter`] | the state of your `async fn` |
//! | [`AnyLimiter`] | the state of any of these, behind one type |
//!
//! A layer takes any of them. A clone of a limiter is a handle to the same state: with it handlers and
//! admin routes [`peek`](Limiter::peek), charge by [`hit`](Limiter::hit),
//! [`refund`](Limiter::refund) and [`reset`](Limiter::reset). A handler returns a denial by
//! [`Decision::into_result`](crate::Decision::into_result) and `?`.
//!
//! ```
//! use tower_ratelimit::{Key, LocalLimiter, PeerIp, Quota, RateLimitLayer, clock::ManualClock};
//!
//! // A clock that stands still, for the assertions.
//! let limiter = LocalLimiter::builder(Quota::per_day(100)).clock(ManualClock::new()).build()?;
//! let layer = RateLimitLayer::new(limiter.clone(), PeerIp);
//!
//! let key = Key::from("alice");
//! assert_eq!(limiter.hit(&key, 30).remaining(), Some(70));
//! assert_eq!(limiter.peek(&key, 1).remaining(), Some(70));
//! assert_eq!(limiter.reset(&key).remaining(), Some(100));
//!
//! // Block a client for an hour, whatever its quota holds, and end the block.
//! let hour = std::time::Duration::from_secs(3_600);
//! assert!(limiter.block(&key, hour)?.is_blocked());
//! assert_eq!(limiter.acquire(&key, 1).retry_after(), Some(hour));
//! assert!(!limiter.block(&key, std::time::Duration::ZERO)?.is_blocked());
//! # let _ = layer;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Every limiter of this crate has these methods, with equal names and arguments, except a
//! `GovernorLimiter`, which has only [`acquire`](Limiter::acquire), and a [`JointLimiter`] of several limits, which is
//! [called](Limiter::call) with a charge for each. Limiters that may wait, such as a
//! `RedisLimiter` or an [`AnyLimiter`], need `.await?` after the call.

#[doc(hidden)]
pub mod any;
#[allow(clippy::exhaustive_structs, reason = "hidden")]
#[doc(hidden)]
pub mod apply_operation;
#[doc(hidden)]
pub mod call;
#[cfg(feature = "governor")]
mod governor;
#[doc(hidden)]
pub mod joint;
#[allow(clippy::module_inception, reason = "files are named by their role")]
#[doc(hidden)]
pub mod limiter;
#[allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "hidden"
)]
#[doc(hidden)]
pub mod limits_in_force;
#[doc(hidden)]
pub mod local;
mod quota_change;
#[allow(clippy::exhaustive_structs, reason = "hidden")]
#[doc(hidden)]
pub mod tier;

#[cfg(feature = "governor")]
pub use self::governor::{GovernorLimiter, GovernorMiddleware};
#[doc(hidden)]
pub use self::{
    any::{AnyLimiter, AsyncLimiter},
    limiter::{BoxedFuture, Limiter},
    local::{LocalLimiter, LocalStore},
};
pub use self::{
    any::{BoxedLimiter, FromAsync},
    call::{Call, Charge, Numbers, OpRef, OwnedCharge},
    joint::{IntoMembers, JointLimiter, KeyedLimit, Member},
    limiter::{Facts, FromLimiter, IntoLimiter, Never, Pending, PendingFuture},
    local::{
        FromQuota, LocalLimiterBuilder, LocalStoreBuilder,
        state_file::{RestoreError, RestoreErrorKind, SaveError, SaveErrorKind, Saved},
    },
    quota_change::QuotaChange,
    tier::{OnChange, RequestQuota, Tier},
};
