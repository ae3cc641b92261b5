//! Limits of a rate: [`RateLimitLayer`], the service [`RateLimit`] that it makes, and its
//! [`ResponseFuture`].
//!
//! The steps of a request:
//!
//! 1. [`enabled`](crate::RateLimitLayer::enabled), [`skip`](crate::RateLimitLayer::skip) and
//!    [`deny`](crate::RateLimitLayer::deny) decide whether it is counted at all.
//! 2. The [`KeyExtractor`](tower_ratelimit_core::KeyExtractor) finds its key;
//!    [`on_missing_key`](crate::RateLimitLayer::on_missing_key) treats requests without one.
//! 3. [`tier`](crate::RateLimitLayer::tier) or [`quota`](crate::RateLimitLayer::quota) selects its quotas,
//!    [`priority`](crate::RateLimitLayer::priority) its class, and [`cost`](crate::RateLimitLayer::cost) its cost. The
//!    default is one unit of the default quotas, for a critical request.
//! 4. The [`Limiter`](tower_ratelimit_core::Limiter) decides. When it answers at once, as the local one does, the
//!    inner service is called at once, with no allocation and nothing awaited.
//! 5. Delayed by a leaky bucket: the request waits for its turn. Denied: it passes nevertheless if the
//!    layer is [`elastic`](crate::RateLimitLayer::elastic), or is queued if it may
//!    [`wait`](crate::RateLimitLayer::wait). If it stays denied, the layer's
//!    [`overflow`](crate::RateLimitLayer::overflow) passes it to the inner service, uncharged and with its denial.
//! 6. Allowed: the inner service responds. [`count_if`](crate::RateLimitLayer::count_if) and
//!    [`final_cost`](crate::RateLimitLayer::final_cost) correct its charge by the response, which gets rate limit
//!    headers. Denied: the [`Reject`](tower_ratelimit_core::reject::Reject) responds with 429, or in gRPC, and the inner
//!    service is not called.
//!
//! The service's error type is left alone: a rejection is a response, so there is no error to handle,
//! and no `HandleErrorLayer` belongs around this one.
//!
//! A layer whose costs stand in the bodies of responses is a [`SpendLayer`], made by
//! [`spending`](crate::RateLimitLayer::spending).
//!
//! # Where the state lives
//!
//! In the layer. Clones of a layer, all services made by it, and their clones share one budget; two
//! layers share one only when they were given clones of one limiter. If a limiter charges a request
//! twice for one key, because its layer wraps it twice, a line is logged when one of a layer's first 1,000
//! requests shows it.
//!
//! # Deployment
//!
//! The layer has to see what it keys on. Put it inside (in axum: add it before) whatever makes the
//! key, such as authentication, and inside CORS, or browsers hide the 429 from scripts. Around a
//! whole axum `Router` rather than through `Router::layer` it costs less.
//!
//! | from the outside in | why there |
//! |---|---|
//! | CORS, tracing, compression | they also see the responses of what follows |
//! | a limit by address | guards authentication itself, which is where passwords are guessed |
//! | authentication | verifies the credential and inserts what it found out into the extensions |
//! | a limit by [verified identity](crate::key#verified-identities) | a key that no client can make up |
//! | the handlers | |
//!
//! A request that an inner layer denies has been charged by the layers around it. So the limit for
//! each client belongs outside, and one for everybody ([`Global`](crate::Global)) inside: the other way
//! round one denied client uses up everybody's. Quotas of one key belong into one layer, which charges
//! all of them or none; so does a layer of several limits with a key each, [`RateLimitLayer::all`].
//!
//! If [`extension_fn`](tower_ratelimit_core::key::extract::extension_fn) makes the key, and the identity is not verified yet, the
//! response is 500 and the fix is logged.
//!
//! Where layers are stacked, each with [`expose_decision`](crate::RateLimitLayer::expose_decision) adds its
//! decision to [`Decisions`], where handlers find all of them.
//!
//! One HTTP request may hold many operations: batches, GraphQL aliases. A layer sees the head only,
//! so the cost of a batch is a header or parameter that the application checks, with
//! [`cost`](crate::RateLimitLayer::cost), or the handler that has read the body charges it, through a handle of
//! the [limiter](crate::RateLimitLayer::limiter). With
//! [`into_result`](tower_ratelimit_core::Decision::into_result) that handler responds to a denial as a layer does.
//!
//! # Examples
//!
//! ```
//! use http::{Request, Response};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_ratelimit::{Global, LocalLimiter, Quota, RateLimitLayer, clock::ManualClock};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A clock that stands still, for the sake of the assertions; `Quota::per_minute(1)` would do.
//! let limiter = LocalLimiter::builder(Quota::per_minute(1)).clock(ManualClock::new()).build()?;
//! let service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(limiter, Global))
//!     .service(service_fn(async |_: Request<String>| {
//!         Ok::<_, std::io::Error>(Response::new(String::from("hello")))
//!     }));
//!
//! let first = service.clone().oneshot(Request::new(String::new())).await?;
//! assert_eq!(first.status(), 200);
//! assert_eq!(first.headers()["ratelimit-policy"], r#""default";q=1;w=60"#);
//!
//! let second = service.clone().oneshot(Request::new(String::new())).await?;
//! assert_eq!(second.status(), 429);
//! assert_eq!(second.headers()["retry-after"], "60");
//! # Ok(())
//! # }
//! ```
//!
//! With more settings:
//!
//! ```
//! use tower_ratelimit::{
//!     Header, Headers, KeyErrorKind, KeyExtractor, MissingKey, PeerIp, Quota, RateLimitLayer,
//!     reject::PlainText,
//! };
//!
//! let layer = RateLimitLayer::new(
//!     Quota::per_minute(100).burst(20).named("api"),
//!     Header::new("x-api-key").or(PeerIp),
//! )
//! .skip(|parts| parts.uri.path() == "/health")
//! .cost(|parts| if parts.method == http::Method::POST { 5 } else { 1 })
//! .headers(Headers::new().retry_after(true))
//! .on_missing_key(KeyErrorKind::Absent, MissingKey::Reject)
//! .rejection(PlainText);
//! # let _ = layer;
//! ```
//!
//! [`RateLimitLayer::all`]: crate::RateLimitLayer::all
//! [`RateLimitLayer`]: crate::RateLimitLayer
//! [`SpendLayer`]: crate::SpendLayer

#[cfg(all(feature = "llm", feature = "tokio"))]
pub use tower_ratelimit_budgets::llm::declared_cost_layer::{
    DeclaredFuture, DeclaredLayer, WithDeclared,
};
pub use tower_ratelimit_layer::rate_limit::{
    Decisions, Exhausted, Exposed, Followed, Gate, GateFuture, Missing, RateLimit, ResponseFuture,
    SpendBody, SpendExhausted, SpendFuture, SpendLimit, Spent, UploadBody, UploadCount,
    UploadLayer,
};
#[cfg(feature = "tokio")]
pub use tower_ratelimit_layer::rate_limit::{DeclaredBody, settled};
