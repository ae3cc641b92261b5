//! Who is told of every decision.
//!
//! An [`Observer`] hears the policy, the outcome, the cost, whether the limit is near, and how long
//! the check took. `TracingObserver` (feature `tracing`) and `MetricsObserver` (feature `metrics`)
//! are ready to use; a closure will do for the rest.
//!
//! Observers run within the request, so they should only count or hand on. None of the two adapters
//! ever records a key: a key in a metric's label would grow the registry with every client, and in
//! a log it would leak addresses and credentials.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use tower_ratelimit::{Global, Quota, RateLimitLayer, observe::Event};
//!
//! let denials = Arc::new(AtomicU64::new(0));
//! let counter = Arc::clone(&denials);
//! let layer = RateLimitLayer::new(Quota::per_second(10), Global)
//!     .observer(move |event: &Event<'_>| {
//!         if let Event::Decided(decided) = event
//!             && decided.decision().is_denied()
//!         {
//!             counter.fetch_add(1, Ordering::Relaxed);
//!         }
//!     });
//! # let _ = layer;
//! ```

mod event;
pub(crate) mod log;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

pub use self::event::{Decided, Event, Observer};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;
