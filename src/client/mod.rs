//! Clients: outgoing requests that stay under the limits they know and the limits they are told.

mod budget;
mod builder;
mod call;
mod common;
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
mod service;
mod signal;
mod site;
mod turn;
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
