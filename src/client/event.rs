//! Events: what an observer of a pacer hears.

use std::time::Duration;

use super::{PacerErrorKind, SignalSource};

/// Something that happened to a request. No event names a host, so that metrics need no label that
/// grows with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacerEvent {
    /// The request has to wait.
    Queued,
    /// The request was sent.
    Sent {
        /// The time that it waited for its turn.
        waited: Duration,
    },
    /// The destination refused a request for its limit.
    Throttled {
        /// The pause that it asked for, or that was drawn.
        wait: Duration,
        /// The field that asked.
        source: SignalSource,
    },
    /// A request is sent once more.
    Retried {
        /// The time to wait until then.
        wait: Duration,
    },
    /// The request was not sent.
    Refused {
        /// Why it was not.
        kind: PacerErrorKind,
    },
}
