//! A limit on how many requests of one key are in flight at the same time.
//!
//! A rate says how often a client may ask; it does not stop one client from keeping every worker
//! busy with slow requests. [`ConcurrencyLayer`] does. The way of a request:
//!
//! 1. [`enabled`](ConcurrencyLayer::enabled), [`skip`](ConcurrencyLayer::skip) and
//!    [`deny`](ConcurrencyLayer::deny) say whether it is counted at all, the
//!    [`KeyExtractor`](crate::KeyExtractor) who it is counted against, and
//!    [`on_missing_key`](ConcurrencyLayer::on_missing_key) what happens if it says nobody.
//! 2. With fewer than the allowed number in flight it takes a permit, and the inner service is
//!    called at once. Its response gets [`headers`](crate::headers):
//!    `RateLimit-Policy: "concurrency";q=8;qu="concurrent-requests"` and `RateLimit: "concurrency";r=3`.
//! 3. Otherwise the [`Reject`](crate::reject::Reject) answers 429 at once, or in gRPC, without
//!    `Retry-After`: nobody knows when one of the others ends. Nothing queues.
//!
//! The permit comes back when the response's body has ended, or when whatever holds it is dropped:
//! the response future, running or not, or the body midway. So it comes back too when the service
//! fails or panics, when the client goes away, and when an inner layer denies.
//!
//! # Where the state lives
//!
//! In the layer, as a count for each key that has a request in flight; other keys take no memory.
//! Clones of a layer, all services made by it, and their clones share it. Another process counts
//! for itself.
//!
//! For several nodes there is `SharedConcurrency` (feature `redis`), which a layer takes as it takes
//! a [`Concurrency`]:
//!
//! ```
//! # #[cfg(feature = "redis")]
//! # fn f() -> Result<(), tower_ratelimit::ConfigError> {
//! use tower_ratelimit::{Concurrency, ConcurrencyLayer, PeerIp, RedisStore, SharedConcurrency};
//!
//! let store = RedisStore::connect("redis://localhost")?;
//! let shared = SharedConcurrency::new(&store, Concurrency::max(10));
//! let layer = ConcurrencyLayer::new(shared, PeerIp);
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! Its permits are leases in Redis. Taking one costs a round trip, none if this process holds all
//! there are. It is given back by a background task, so a permit can be dropped anywhere, and other
//! nodes hear of it a moment later. The same task renews the leases of requests that last, also of
//! those that Redis has lost. A node that crashes renews nothing: its permits come back by
//! themselves after the time of a lease, a minute by default. So do those that a process did not
//! give back before it ended.
//!
//! [`in_flight`](ConcurrencyLayer::in_flight) and [`tracked_keys`](ConcurrencyLayer::tracked_keys)
//! tell what this process holds, with either.
//!
//! The inner service has to be `Clone`, since a request may wait for Redis.
//!
//! # Deployment
//!
//! Put it outside a [`RateLimitLayer`](crate::RateLimitLayer): a request that the rate then denies
//! gives its permit back, while a request denied here would have been charged there.
//!
//! A response that is sent slowly holds its permit until it is sent: a streaming response as long as
//! it streams. An upgraded connection, a WebSocket, does not: its response has no body. Limits of
//! time belong to a timeout layer.
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
//! // Nobody has read the first response yet.
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
//! With more said, and around a rate:
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

mod admission;
mod body;
mod future;
mod grant;
mod in_flight;
mod layer;
mod limit;
mod permits;
mod service;
#[cfg(feature = "redis")]
mod shared;
#[cfg(feature = "redis")]
mod shared_permits;

#[cfg(feature = "redis")]
pub use self::shared::SharedConcurrency;
pub use self::{
    body::ConcurrencyBody,
    future::ResponseFuture,
    layer::ConcurrencyLayer,
    limit::{Concurrency, OwnedConcurrency},
    permits::IntoPermits,
    service::ConcurrencyLimit,
};
