//! Observers: hooks that see every decision.
//!
//! An [`Observer`] gets the policy, the outcome, the cost, whether the limit is near, and the latency
//! of the check. `TracingObserver` (feature `tracing`) and `MetricsObserver` (feature `metrics`) are
//! ready to use; a closure serves other purposes.
//!
//! Observers run within the request and must not block: they count, or send the event elsewhere.
//!
//! # Keys
//!
//! Neither adapter records a key: a key in a metric's label would grow the registry with every
//! client, and in a log it would leak addresses and credentials. To see who is limited,
//! `TracingObserver::new().reveal_keys(true)` logs readable keys, such as `key=203.0.113.7`,
//! `key=2001:db8::/64` or `key=digest:8f860ac30f5b54c4`. Your own observer gets the
//! [key](Decided::key): its `Debug` hides the content, [`reveal`](tower_ratelimit_core::Key::reveal) shows it.
//! [`TopKeys`] reports the keys that are denied most often.
//!
//! # Examples
//!
//! A closure:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use http::{Request, Response};
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_ratelimit::{Global, Quota, RateLimitLayer, observe::Event};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let denials = Arc::new(AtomicU64::new(0));
//! let counter = Arc::clone(&denials);
//! let layer = RateLimitLayer::new(Quota::per_day(1), Global)
//!     .observer(move |event: &Event<'_>| {
//!         if let Event::Decided(decided) = event
//!             && decided.decision().is_denied()
//!         {
//!             counter.fetch_add(1, Ordering::Relaxed);
//!         }
//!     });
//!
//! let service = layer.layer(service_fn(async |_: Request<String>| {
//!     Ok::<_, std::io::Error>(Response::new(String::new()))
//! }));
//! for _ in 0..3 {
//!     service.clone().oneshot(Request::new(String::new())).await?;
//! }
//! assert_eq!(denials.load(Ordering::Relaxed), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Several observers
//!
//! A layer has one observer. A tuple of two or three, such as logs and metrics, is one observer:
//! `.observer((TracingObserver::new(), MetricsObserver::new()))`. Several layers can share an observer
//! in an [`Arc`], which the application can read.
//!
//! [`Arc`]: std::sync::Arc

#[doc(hidden)]
pub mod event;
#[cfg(feature = "metrics")]
mod metrics;
mod top_keys;
#[cfg(feature = "tracing")]
mod tracing;

pub use self::event::{Corrected, Decided, Event, Observer, SpendSource};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::top_keys::{TopKey, TopKeys, TopKeysReport};
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;
