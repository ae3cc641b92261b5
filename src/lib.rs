//! A rate limit for axum, tonic, hyper and any other service of tower: a client that sends too much
//! gets 429 Too Many Requests, and everybody else is served.
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};
//!
//! # #[tokio::main]
//! # async fn main() -> std::io::Result<()> {
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(Quota::per_second(10).burst(20), PeerIp));
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! // Gives `PeerIp` the address of the client.
//! let app = app.into_make_service_with_connect_info::<SocketAddr>();
//! axum::serve(listener, app).await
//! # }
//! ```
//!
//! Each address may send ten requests a second, and a burst of twenty after a pause. The layer denies
//! all requests beyond that with 429, `Retry-After`, `RateLimit` fields and a problem document; they
//! do not reach the router. The [quickstart](guide::quickstart) begins in an empty folder, and the
//! [cookbook](guide::cookbook) has API keys, logins, several routes, CORS, tests, Prometheus and more
//! in at most fifteen lines each.
//!
//! Not for Actix Web, whose services are not tower's, and not against a DDoS that fills the line: a denied
//! request has reached the server.
//!
//! # Guarantees
//!
//! - **Exact.** A key that was idle gets exactly its burst, never more. At exactly
//!   [`Decision::retry_after`] the denied request passes if nothing else came on its key, a
//!   microsecond earlier it does not.
//! - **Bounded.** The [local limiter](LocalLimiter)'s memory is at most 8 MB by default, however many
//!   keys arrive, and taken as they come. Nothing is swept, no task runs in the background.
//! - **Not to be bypassed.** A request without a key never passes silently: by default all requests
//!   whose client sent no key share one bucket. A server that is set up wrong sends 500 and logs
//!   the fix. If the limiter fails, the response is 503, never 429.
//! - **One limit for all nodes**, with the feature `redis`: what one process would decide, in at most
//!   one round trip, with a deadline, and a plan for when Redis is gone.
//! - The clock is read once per decision. One that steps back makes nobody wait for more than a full
//!   quota longer, or a second if that is more; for a window, two periods in all. Tests use
//!   [`ManualClock`] and never wait.
//!
//! # Five types
//!
//! ```text
//! request ─ key ─▶ Key ─ limiter ─▶ Decision ─┬─ allowed ─▶ inner service ─ fields ─▶ response
//!                                             └─ denied ──▶ reject (429, or gRPC status 8)
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Quota`] | what is allowed: rate, burst, name, and one of [five algorithms](guide) |
//! | [`PeerIp`] | whom it is counted for. Other keys: [`ClientIp`] behind proxies, [`Header`], a closure, a tuple of these, all in [`key`] |
//! | [`RateLimitLayer`] | the layer around a service: costs, tiers, lists, what counts, waiting, shadow mode |
//! | [`LocalLimiter`] | counts in this process, for a layer and for handlers that charge, look, refund, block. `RedisLimiter` does so for all nodes; your own is a [`Limiter`] |
//! | [`Decision`] | the outcome, as handlers, closures and observers get it |
//!
//! Around these: the fields of responses in [`headers`], the form of a denial in [`reject`], logs and
//! metrics in [`observe`], requests at the same time in [`concurrency`], costs that stand at the end of
//! a response in [`spend`]. Clients that stay under limits are the crate
//! [tower-ratelimit-client](https://docs.rs/tower-ratelimit-client).
//!
//! # Behind a proxy
//!
//! [`PeerIp`] is the other end of the connection. Behind a proxy that is the proxy, so all clients
//! share one bucket. [`ClientIp`] finds the client in the header that your proxies write, and
//! ignores the header of all other peers:
//!
//! ```
//! use tower_ratelimit::{ClientIp, Quota, RateLimitLayer, ClientAddressLayer};
//!
//! // The networks of your proxies, and `X-Forwarded-For`. `.forwarded()` and `.header(..)` choose
//! // another header.
//! let client_ip = ClientIp::behind(["10.0.0.0/8", "2001:db8:ffff::/48"]);
//! let limit = RateLimitLayer::new(Quota::per_second(10).burst(20), client_ip.clone());
//! // If handlers want the address as well: they take a `ClientAddress`.
//! let address = ClientAddressLayer::new(client_ip);
//! # let _ = (limit, address);
//! ```
//!
//! The [page on security](guide::security) has the lines for nginx, HAProxy, Envoy, Cloudflare,
//! AWS, Fly.io and Kubernetes, the order of layers, and the known ways around a limit.
//!
//! # When something is wrong
//!
//! Faults are never silent. Each is one line in the log, or on the standard error stream if no
//! subscriber exists, with a code that the page on [troubleshooting](guide::troubleshooting)
//! explains. The page also has the usual symptoms and the messages of the compiler.
//!
//! # Several nodes
//!
//! A limiter in this process counts requests of this process only. With the feature `redis`,
//! limiters of one name share their counts through Redis. If Redis does not respond, each node
//! decides by itself:
//!
//! ```
//! # #[cfg(feature = "redis")] {
//! use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, RedisLimiter};
//!
//! let limiter = RedisLimiter::builder(Quota::per_second(10).burst(20))
//!     .name("api")
//!     .build(&tower_ratelimit::RedisStore::connect("redis://10.0.0.7")?)?;
//! let limit = RateLimitLayer::new(limiter, PeerIp);
//! # let _ = limit;
//! # }
//! # Ok::<_, tower_ratelimit::ConfigError>(())
//! ```
//!
//! The guide has a page on running Redis for it.
//!
//! # Features
//!
//! | feature | default | gives | costs |
//! |---|---|---|---|
//! | `axum` | yes | [`PeerIp`] from `ConnectInfo`, matched routes, [`Decision`] and [`ClientAddress`] as extractors, rejections for axum's body | axum without its default features |
//! | `cpu-counter` | yes | [`OsClock`] reads the CPU's counter, and the operating system's clock every 50 ms | `tower-ratelimit-cpu-counter`, which is one function |
//! | `calendar` | no | quotas per week, month and year of the calendar, days and times of day in a time zone, also from a billing day: `Quota::per_month(1_000).in_zone("Europe/Berlin")` | jiff, with the system's zones |
//! | `governor` | no | [`GovernorLimiter`]: a `governor::RateLimiter` that you already have, behind this layer | governor without its default features |
//! | `tonic` | no | [`PeerIp`] from tonic's connection info, rejections for tonic's body, a `Status` from a [`Denial`](reject::Denial) | tonic without its default features |
//! | `tokio` | with `axum`, `tonic`, `rules`, `shared` and what brings these | delays: leaky buckets as queues, denied requests that wait | tokio's timer |
//! | `serde` | no | [`Quota`], [`OwnedQuota`] and [`QuotaList`] in configuration files, as `"100/minute burst 200"` or as a table | serde with derive |
//! | `llm` | no | [readers](spend) of the tokens that language models report | memchr |
//! | `mcp` | no | [limits](mcp) for servers of the Model Context Protocol, by tool | serde, serde_json |
//! | `tracing` | no | `TracingObserver`; [faults](guide::troubleshooting) are events where a subscriber listens, else they are printed | tracing |
//! | `metrics` | no | `MetricsObserver` | metrics |
//! | `shared` | no | `SharedLimiter`: one limit for all nodes, through a store of your own | futures-util, tokio |
//! | `redis` | no | `RedisLimiter`, `RedisStore`: one limit for all nodes, through a server, a cluster or sentinels | `shared`, redis without its default features |
//! | `redis-tls` | no | `rediss://` addresses | rustls with ring |
//! | `rules` | no | limits in files that operators write, in YAML, JSON or TOML, and a layer that keeps its counts when they are reloaded | granit-parser, toml, arc-swap, tokio, `llm`, `mcp` |
//! | `rules-watch` | no | rule files that are reloaded when they change | notify |
//!
//! gRPC responses need no feature, and without default features the crate serves plain tower and
//! hyper.
//!
//! [`GovernorLimiter`]: tower_ratelimit_core::limiter::GovernorLimiter
//! [`ManualClock`]: tower_ratelimit_core::clock::ManualClock
//! [`OsClock`]: tower_ratelimit_core::clock::OsClock
//! [`OwnedQuota`]: tower_ratelimit_core::quota::OwnedQuota
//! [`QuotaList`]: tower_ratelimit_core::quota::QuotaList

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "axum", feature = "governor")),
    allow(rustdoc::broken_intra_doc_links)
)]

pub mod key;
pub mod rate_limit;
#[cfg(feature = "redis")]
pub mod redis;
pub mod spend;

#[doc(inline)]
pub use tower_ratelimit_concurrency as concurrency;
#[doc(inline)]
pub use tower_ratelimit_core::{clock, decision, headers, limiter, quota, reject};
#[cfg(feature = "mcp")]
#[doc(inline)]
pub use tower_ratelimit_layer::mcp;
#[doc(inline)]
pub use tower_ratelimit_layer::observe;
#[cfg(feature = "rules")]
#[doc(inline)]
pub use tower_ratelimit_rules as rules;
#[cfg(feature = "shared")]
#[doc(inline)]
pub use tower_ratelimit_shared as shared;
#[cfg(feature = "shared")]
#[doc(inline)]
pub use tower_ratelimit_store as store;

#[cfg(any(doc, doctest))]
pub mod guide;

pub use tower_ratelimit_client_ip::{ClientAddress, ClientAddressLayer, ClientIp};
pub use tower_ratelimit_concurrency::{concurrency_limit::Concurrency, layer::ConcurrencyLayer};
#[doc(inline)]
pub use tower_ratelimit_core::{
    AnyLimiter, AsyncLimiter, ConfigError, ConfigErrorKind, Decision, Headers, Key, KeyError,
    KeyErrorKind, KeyExtractor, Limiter, LimiterError, LimiterErrorKind, LocalLimiter, LocalStore,
    Priority, Quota,
};
pub use tower_ratelimit_layer::{
    key::{Global, PeerIp, request_value::Header},
    middleware::settings::MissingKey,
    rate_limit::{SpendLayer, layer::RateLimitLayer},
};
#[cfg(feature = "shared")]
pub use tower_ratelimit_shared::fallback::OnFailure;
#[cfg(feature = "redis")]
pub use tower_ratelimit_shared::limiter::RedisLimiter;
#[cfg(feature = "redis")]
pub use tower_ratelimit_store::redis::RedisStore;

/// The README's example compiles.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
