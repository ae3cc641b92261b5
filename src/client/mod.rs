//! Clients: outgoing requests that stay under the limits they know and the limits they are told.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use http::{Request, Response};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//! use tower_ratelimit::{Quota, client::{Pacer, PacerLayer}};
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
//! | item | for |
//! |---|---|
//! | [`Pacer`] | the limits: a declared one, in this process or through Redis, and what each destination tells |
//! | [`PacerLayer`] | a client that is a tower service of `http::Request`: hyper-util, a channel of tonic; with the feature `reqwest` a `reqwest::Client` |
//! | `PacerMiddleware` | reqwest-middleware, with the feature of that name |
//! | [`Pacer::turn`] | any other client |
//! | [`Retry`], [`Replay`] | what is sent again |
//! | [`PacerError`] | why a request was not sent |
//!
//! Nothing here is a type of tonic or hyper, so any version works; errors of hyper 1 are known, for
//! [`Retry`]. The [guide](crate::guide::clients)
//! says which limit to declare, what is believed, and what surprises.

mod budget;
mod builder;
mod call;
mod common;
mod connection;
mod deadline;
mod destination;
mod dice;
mod error;
mod event;
mod layer;
mod learned;
#[cfg(feature = "reqwest-middleware")]
mod middleware;
mod pacer;
mod ramp;
mod replay;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry;
mod sent_request;
mod service;
mod signal;
mod site;
mod turn;
mod unanswered;
mod waiting;

#[cfg(feature = "reqwest-middleware")]
pub use self::middleware::PacerMiddleware;
pub use self::{
    builder::PacerBuilder,
    destination::Destination,
    error::{PacerError, PacerErrorKind},
    event::PacerEvent,
    layer::PacerLayer,
    pacer::{Pacer, PacerStats},
    replay::{BufferedBodies, ByReplay, CopyBody, Replay, ReplayFn, WithoutReplay},
    retry::{Failure, Retry},
    service::{Paced, PacedFuture},
    signal::{Learn, SignalSource},
    turn::{Advice, Turn},
};
