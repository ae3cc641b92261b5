//! Turns: permissions to send one request, whose response is learned from.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};
use tower_ratelimit::spend::Tokens;

use crate::{
    destination::Destination,
    pacer_state::PacerState,
    sent_request::{SentRequest, Verdict},
};

/// The turn of one request, which should be sent now.
///
/// A dropped turn, as when the connection fails, ends the request's flight. Its units stay charged.
#[must_use = "the request should be sent, and its response handed to `learn`"]
pub struct Turn {
    pacer: Arc<PacerState>,
    sent: SentRequest,
}

/// The use that a caller should make of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// The response has no consequence for the request, which may be used as it is. The pacer may have
    /// learned units from it.
    Done,
    /// The server refused the request because of its limit, and may accept it after this time.
    /// Turns for the destination wait for it.
    RetryAfter(Duration),
    /// The server forbids to send the request again.
    DoNotRetry,
}

impl Turn {
    pub(crate) const fn new(pacer: Arc<PacerState>, sent: SentRequest) -> Self {
        Self { pacer, sent }
    }

    /// The destination that the turn was granted for, with its key.
    pub fn destination(&self) -> &Destination {
        self.sent.destination()
    }

    /// Learns from the head of the response, and returns what it means for the request. The request is no
    /// longer in flight afterwards, and a second head means nothing.
    ///
    /// For gRPC `headers` are those of the response's head, which has the status if there is no message
    /// (trailers only).
    pub fn learn(&mut self, status: StatusCode, headers: &HeaderMap) -> Advice {
        match self.sent.on_response(&self.pacer, status, headers) {
            Verdict::Refused(refusal) => Advice::RetryAfter(refusal.pause.wait),
            Verdict::Forbidden => Advice::DoNotRetry,
            Verdict::Nothing | Verdict::Permitted => Advice::Done,
        }
    }

    /// Settles the units by the tokens that the response has used, once it has ended: those of
    /// [`Units::input_tokens`](crate::Units::input_tokens),
    /// [`Units::output_tokens`](crate::Units::output_tokens) and
    /// [`Units::settled`](crate::Units::settled). All others stay charged as they are.
    ///
    /// Pass the head of the response to [`learn`](Self::learn) first, and keep the turn while the body
    /// comes. A turn that is dropped stays charged with its whole amount. A limit in Redis is settled on the
    /// current runtime; if that fails the observer receives
    /// [`Unsettled`](crate::PacerEvent::Unsettled).
    pub fn spend(mut self, used: &Tokens) {
        self.sent.settle(&self.pacer, used);
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("destination", self.destination())
            .finish_non_exhaustive()
    }
}
