//! Turns: a request may be sent, and its response is learned from.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};

use super::{
    Destination,
    common::Common,
    sent_request::{Heard, SentRequest},
};

/// The turn of one request: it is to be sent now.
///
/// A turn that is dropped, as when the connection fails, is not in flight any more. Its units stay
/// charged.
#[must_use = "the request should be sent, and its response handed to `learn`"]
pub struct Turn {
    common: Arc<Common>,
    sent: SentRequest,
}

/// What to do with a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// The response has nothing to do with limits.
    Done,
    /// The server refused the request for its limit, and may take it after this time. Turns to the
    /// destination wait for it by themselves.
    RetryAfter(Duration),
    /// The server forbids to send the request again.
    DoNotRetry,
}

impl Turn {
    pub(super) const fn new(common: Arc<Common>, sent: SentRequest) -> Self {
        Self { common, sent }
    }

    /// The destination that the request is for.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        self.sent.destination()
    }

    /// Learns from the head of the response, and says whether it was a refusal.
    #[allow(
        clippy::must_use_candidate,
        reason = "the response may be used as it is"
    )]
    pub fn learn(mut self, status: StatusCode, headers: &HeaderMap) -> Advice {
        match self.sent.hear(&self.common, status, headers) {
            Heard::Refused(refusal) => Advice::RetryAfter(refusal.pause.wait),
            Heard::Forbidden => Advice::DoNotRetry,
            Heard::Nothing => Advice::Done,
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("destination", self.destination())
            .finish_non_exhaustive()
    }
}
