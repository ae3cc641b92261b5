//! Clients that stay under rate limits: each request waits for its turn, the pacer learns from
//! responses, and sends again what may be sent again.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use http::{Request, Response};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//! use tower_ratelimit::Quota;
//! use tower_ratelimit_client::{Pacer, PacerLayer};
//!
//! # let http_client = service_fn(async |_: Request<String>| {
//! #     Ok::<_, std::convert::Infallible>(Response::new(()))
//! # });
//! let pacer = Pacer::new(Quota::per_second(10).burst(5));
//! let mut client = PacerLayer::new(pacer).layer(http_client);
//!
//! let request = Request::get("https://api.example.com/things").body(String::new())?;
//! let response = client.ready().await?.call(request).await?;
//! # assert_eq!(response.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! | item | purpose |
//! |---|---|
//! | [`Pacer`] | the limits: a declared one, in this process or through Redis, and those that each destination reports |
//! | [`PacerLayer`] | wraps a tower service of `http::Request`: hyper-util, a channel of tonic; with the feature `reqwest` a `reqwest::Client` |
//! | `PacerMiddleware` | wraps reqwest-middleware, with the feature of that name |
//! | [`Pacer::turn`] | serves any other client |
//! | [`Pacer::turn_of`], [`Units`] | turns that cost several units, such as requests and tokens |
//! | [`Retry`], [`Replay`] | select the requests that are sent again |
//! | [`PacerError`] | the reason why a request was not sent |
//!
//! | feature | gives | costs |
//! |---|---|---|
//! | `reqwest` | the layer around a `reqwest::Client`, 0.13 | reqwest without its default features |
//! | `reqwest-middleware` | a middleware of reqwest-middleware, 0.5 | that crate without its default features |
//! | `axum`, `tonic` | requests with the `Body` of each | that crate without its default features |
//!
//! Nothing here is a type of tonic or hyper, so any version works; [`Retry`] recognizes errors of
//! hyper 1. The [guide] covers which limit to declare, what a pacer learns, and what
//! surprises.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod request_cost;

mod response_headers;

mod error;
mod response_signals;

mod destination;

mod deadlines_and_jitter;

mod reported_windows;
mod slow_start;

mod learned_limits;

mod destination_state;

mod pacer_state;

mod unsettled_units;

mod permission_to_send;

mod wait_for_permission;

mod pacer;

mod declared_limit;

mod builder;

mod retry;

mod request_with_retries;

mod replayable_body;

mod service;

mod spend_from_bodies;

mod layer;

#[cfg(feature = "reqwest")]
mod reqwest_service;

#[cfg(feature = "reqwest-middleware")]
mod reqwest_middleware;

#[cfg(any(doc, doctest))]
pub mod guide {
    //! [cookbook-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/cookbook_setup/index.html#another-http-client
    // The page is also read on GitHub, where the links at its end apply. Of two definitions of a link
    // the first one counts: here links lead to these, and pictures are embedded.
    #![doc = include_str!("../docs/plots/links.md")]
    #![doc = include_str!("../docs/clients.md")]
}

#[cfg(feature = "reqwest-middleware")]
pub use self::reqwest_middleware::PacerMiddleware;
pub use self::{
    builder::PacerBuilder,
    declared_limit::{DeclaredLimit, IntoDeclaredLimit, UnitLimit},
    destination::Destination,
    error::{PacerError, PacerErrorKind},
    layer::{PacerLayer, SpendingPacerLayer},
    pacer::{Pacer, PacerStats},
    pacer_state::PacerEvent,
    permission_to_send::{Advice, Turn},
    replayable_body::{BufferedBodies, ByReplay, CopyBody, Replay, ReplayFn, WithoutReplay},
    request_cost::Units,
    response_signals::{Learn, SignalSource},
    retry::{Failure, Retry},
    service::{Paced, PacedFuture},
    spend_from_bodies::{SpendingBody, SpendingPaced},
};
