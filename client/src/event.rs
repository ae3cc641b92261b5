//! Events that the observer of a pacer receives.

use std::time::Duration;

use crate::{error::PacerErrorKind, response_signals::SignalSource};

/// Something that happened to a request, for [`observer`](crate::PacerBuilder::observer). No event
/// contains a host: labels of metrics stay few.
///
/// Each attempt of a call is `Sent` or `Refused`, the former after `Queued` if it had to wait. A response
/// may add `Throttled`, and a further attempt begins with `Retried`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacerEvent {
    /// The request has to wait: in the queue, for a pause, for the limiter or for a place among the requests
    /// in flight. Reported once for each attempt.
    Queued,
    /// The request has its turn, and is sent now.
    Sent {
        /// The time that the attempt waited for its turn; zero if it did not wait.
        waited: Duration,
    },
    /// The destination refused a request because of its limit.
    Throttled {
        /// The pause of the destination: the requested one, or a random one of at most 20 s if the response
        /// requested none.
        wait: Duration,
        /// The field that requested the pause.
        source: SignalSource,
    },
    /// A request will be sent again, after a refusal or a failure.
    Retried {
        /// The wait before the retry. The turn may come later.
        wait: Duration,
    },
    /// The limiter failed to settle the charge of a response, which stays as it was.
    Unsettled,
    /// The request was not sent, and its call fails with a [`PacerError`](crate::PacerError) of this kind.
    Refused {
        /// The reason.
        kind: PacerErrorKind,
    },
}
