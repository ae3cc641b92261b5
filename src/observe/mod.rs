//! Observers: hooks that see every decision.
//!
//! An [`Observer`] hears the policy, the outcome, the cost, whether the limit is near, and how long
//! the check took. `TracingObserver` (feature `tracing`) and `MetricsObserver` (feature `metrics`)
//! are ready to use; a closure will do for the rest.
//!
//! Observers run within the request, so they should only count or hand on.
//!
//! # Keys
//!
//! Neither of the two adapters records a key: a key in a metric's label would grow the registry
//! with every client, and in a log it would leak addresses and credentials. To find out who is
//! limited, `TracingObserver::new().reveal_keys(true)` logs keys readably, such as
//! `key=203.0.113.7`, `key=2001:db8::/64` or `key=digest:8f860ac30f5b54c4`. An observer of one's
//! own sees the [key](Decided::key), whose `Debug` hides its content and whose
//! [`reveal`](crate::Key::reveal) shows it. [`TopKeys`] knows those that are denied most often.
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
//! A layer has one observer; a tuple makes one of two or three, such as logs and metrics:
//! `.observer((TracingObserver::new(), MetricsObserver::new()))`. An observer in an [`Arc`] can be
//! given to several layers, and read from outside.
//!
//! [`Arc`]: std::sync::Arc

mod event;
#[cfg(feature = "metrics")]
mod metrics;
mod top_keys;
#[cfg(feature = "tracing")]
mod tracing;

pub use self::event::{Corrected, Decided, Event, Observer};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::top_keys::{TopKey, TopKeys, TopKeysReport};
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;
