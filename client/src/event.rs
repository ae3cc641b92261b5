//! Events that the observer of a pacer receives.

use std::time::Duration;

use crate::{error::PacerErrorKind, server_hint::SignalSource};

/// Something that happened to a request. No event contains a host: labels of metrics stay few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacerEvent {
    /// The request is queued.
    Queued,
    /// The request was sent.
    Sent {
        /// The time from the call to the turn.
        waited: Duration,
    },
    /// The destination refused a request because of its limit.
    Throttled {
        /// The pause: the requested one, or a random one.
        wait: Duration,
        /// The field that requested the pause.
        source: SignalSource,
    },
    /// A request will be sent again.
    Retried {
        /// The wait before the retry.
        wait: Duration,
    },
    /// The request was not sent.
    Refused {
        /// The reason.
        kind: PacerErrorKind,
    },
}
