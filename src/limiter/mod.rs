//! What decides: one operation, [`Limiter::apply`], with a backend behind it.
//!
//! | limiter | state |
//! |---|---|
//! | [`LocalLimiter`] | a table of fixed size in this process; what a bare [`Quota`](crate::Quota) becomes |
//! | `GovernorLimiter` | a `governor::RateLimiter` that you already have (feature `governor`) |
//! | [`AsyncLimiter`] | whatever your `async fn` asks |
//! | [`AnyLimiter`] | that of any of these, behind one type |
//!
//! A layer takes any of them, and a clone of a limiter is a handle to the same state: handlers and
//! admin routes use it to look ([`peek`](Limiter::peek)), charge ([`hit`](Limiter::hit)), give
//! back ([`refund`](Limiter::refund)) and forget ([`reset`](Limiter::reset)). A handler hands a denial
//! on with [`Decision::into_result`](crate::Decision::into_result) and `?`.
//!
//! ```
//! use tower_ratelimit::{Key, LocalLimiter, Quota, RateLimitLayer, PeerIp};
//!
//! let limiter = LocalLimiter::new(Quota::per_day(100));
//! let layer = RateLimitLayer::new(limiter.clone(), PeerIp);
//!
//! let key = Key::from("alice");
//! assert_eq!(limiter.hit(&key, 30).remaining(), Some(70));
//! assert_eq!(limiter.peek(&key, 1).remaining(), Some(70));
//! assert_eq!(limiter.reset(&key).remaining(), Some(100));
//! # let _ = layer;
//! ```

mod any;
#[cfg(feature = "governor")]
mod governor;
mod handle;
mod into;
mod local;
mod pending;
mod quotas;
#[cfg(feature = "redis")]
mod redis;
mod tier;
mod traits;
mod user;

#[cfg(feature = "governor")]
pub use self::governor::{GovernorLimiter, GovernorMiddleware};
#[cfg(feature = "redis")]
pub(crate) use self::redis::{Action, Lease, Leases, accepted_name, checked_name};
#[cfg(feature = "redis")]
pub use self::redis::{
    OnFailure, RedisFuture, RedisLimiter, RedisLimiterBuilder, RedisStore, RedisStoreBuilder,
    StoreError, StoreErrorKind, StoreHealth, StoreStats,
};
pub use self::{
    any::AnyLimiter,
    into::{FromAsync, FromLimiter, FromQuota, IntoLimiter},
    local::{LocalLimiter, LocalLimiterBuilder},
    pending::{Never, Pending, PendingFuture},
    tier::Tier,
    traits::Limiter,
    user::{AsyncLimiter, BoxedLimiter},
};
