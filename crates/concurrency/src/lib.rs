//! A limit on how many requests of one key are in flight at the same time.
//!
//! A rate limits how often a client sends requests, but one client may still keep every worker busy with
//! slow ones. [`ConcurrencyLayer`] prevents that. The steps of a request:
//!
//! 1. [`enabled`](crate::layer::ConcurrencyLayer::enabled), [`skip`](crate::layer::ConcurrencyLayer::skip) and
//!    [`deny`](crate::layer::ConcurrencyLayer::deny) decide whether it is counted at all. The
//!    [`KeyExtractor`](tower_ratelimit_core::KeyExtractor) finds its key, and
//!    [`on_missing_key`](crate::layer::ConcurrencyLayer::on_missing_key) treats requests without one.
//! 2. With fewer than the allowed number in flight it takes a permit, and the inner service is
//!    called at once. Its response gets [`headers`](tower_ratelimit_core::headers):
//!    `RateLimit-Policy: "concurrency";q=8;qu="concurrent-requests"` and `RateLimit: "concurrency";r=3`.
//! 3. Otherwise the [`Reject`](tower_ratelimit_core::reject::Reject) responds with 429 at once, or in gRPC, without
//!    `Retry-After`, since the end of the other requests is unknown. Nothing is queued.
//!
//! The permit is released when the response's body ends, or when its holder is dropped: the response
//! future, running or not, or an unfinished body. It is therefore released as well when the service fails
//! or panics, when the client disconnects, and when an inner layer denies.
//!
//! # Where the state lives
//!
//! In the layer, as a count for each key that has a request in flight; other keys take no memory.
//! Clones of a layer, all services made by it, and their clones share it. Another process has counts
//! of its own.
//!
//! `SharedConcurrency` (feature `redis`) limits several nodes together. A layer takes it like a
//! [`Concurrency`]:
//!
//! ```
//! # #[cfg(feature = "redis")]
//! # fn f() -> Result<(), tower_ratelimit::ConfigError> {
//! use tower_ratelimit::{
//!     Concurrency, ConcurrencyLayer, PeerIp, RedisStore, concurrency::SharedConcurrency,
//! };
//!
//! let store = RedisStore::connect("redis://localhost")?;
//! let shared = SharedConcurrency::new(&store, Concurrency::max(10));
//! let layer = ConcurrencyLayer::new(shared, PeerIp);
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! Its permits are leases in Redis. A permit costs a round trip, or none if this process holds all of
//! them. A background task releases it, so a permit can be dropped anywhere, and other nodes can use it a
//! moment later. The task also renews the leases of long requests, even if Redis has lost them. A node
//! that crashes renews nothing: its leases expire, by default after a minute. The leases of a process that
//! ended before it released them expire as well.
//!
//! [`in_flight`](crate::layer::ConcurrencyLayer::in_flight) and [`tracked_keys`](crate::layer::ConcurrencyLayer::tracked_keys)
//! report what this process holds, with either kind of limit.
//!
//! The inner service must be `Clone`, since a request may wait for Redis.
//!
//! # Deployment
//!
//! Put it outside a [`RateLimitLayer`](tower_ratelimit_layer::rate_limit::layer::RateLimitLayer): a request that the rate denies releases
//! its permit, while the rate would have charged a request that this layer denies.
//!
//! A slow response holds its permit until it is sent, and a streaming one as long as it streams. An
//! upgraded connection, such as a WebSocket, holds none: its response has no body. Limit times by a
//! timeout layer.
//!
//! The response's body has a type of its own, [`ConcurrencyBody`]. In axum `Router::layer` boxes it,
//! which costs an allocation for each response.
//!
//! # Examples
//!
//! ```
//! use http::{Request, Response};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_ratelimit::{Concurrency, ConcurrencyLayer, Global};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = ServiceBuilder::new()
//!     .layer(ConcurrencyLayer::new(Concurrency::max(1), Global))
//!     .service(service_fn(async |_: Request<String>| {
//!         Ok::<_, std::io::Error>(Response::new(String::from("hello")))
//!     }));
//!
//! let first = service.clone().oneshot(Request::new(String::new())).await?;
//! assert_eq!(first.status(), 200);
//! assert_eq!(first.headers()["ratelimit"], r#""concurrency";r=0"#);
//!
//! // The first response is not read yet.
//! let second = service.clone().oneshot(Request::new(String::new())).await?;
//! assert_eq!(second.status(), 429);
//! assert!(!second.headers().contains_key("retry-after"));
//!
//! drop(first);
//! let third = service.clone().oneshot(Request::new(String::new())).await?;
//! assert_eq!(third.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! With more settings, and around a rate:
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_ratelimit::{
//!     Concurrency, ConcurrencyLayer, Header, KeyExtractor, PeerIp, Quota, RateLimitLayer,
//!     reject::PlainText,
//! };
//!
//! const EXPORTS: Concurrency = Concurrency::max(2).named("exports");
//!
//! let layers = ServiceBuilder::new()
//!     .layer(
//!         ConcurrencyLayer::new(EXPORTS, Header::new("x-api-key").or(PeerIp))
//!             .skip(|parts| parts.uri.path() == "/health")
//!             .rejection(PlainText),
//!     )
//!     .layer(RateLimitLayer::new(Quota::per_minute(100), PeerIp));
//! # let _ = layers;
//! ```
//!
//! [`ConcurrencyLayer`]: crate::layer::ConcurrencyLayer
//! [`Concurrency`]: crate::concurrency_limit::Concurrency

mod in_flight;

#[doc(hidden)]
pub mod concurrency_limit;

#[cfg(feature = "redis")]
mod leases;

mod permits;

#[doc(hidden)]
pub mod layer;

#[cfg(feature = "redis")]
mod shared_concurrency;

#[cfg(feature = "redis")]
pub use self::shared_concurrency::SharedConcurrency;
pub use self::{
    concurrency_limit::OwnedConcurrency,
    in_flight::{ConcurrencyBody, RequestPermits},
    layer::{ConcurrencyLimit, ResponseFuture},
    permits::IntoPermits,
};
#[doc(hidden)]
pub use self::{
    in_flight::{HeldPermits, InFlight, Permit},
    permits::{Grant, PendingGrant, PermitSource, Permits},
};
