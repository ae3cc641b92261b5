//! Turns: permissions to send one request, whose response is learned from; and sent requests, until the head of the
//! response arrives.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tower_ratelimit::{limiter::Pending, spend::Tokens};

use crate::{
    destination::Destination,
    destination_state::DestinationState,
    learned_limits::Pause,
    learned_limits::SentUnits,
    pacer_state::{PacerEvent, PacerState, is_settled},
    request_cost::Cost,
    response_signals::{self, ServerHint, SignalSource},
    unsettled_units::OpenUnits,
};

/// A request in flight. Dropping it, as when the connection fails, ends that.
pub(crate) struct SentRequest {
    state: Arc<DestinationState>,
    sent: SentUnits,
    /// The cost in requests.
    cost: u64,
    /// The other units, while their charges may change.
    units: Option<Box<OpenUnits>>,
    /// Whether the response arrived.
    has_response: bool,
    /// The permit of a request in flight.
    permit: Option<OwnedSemaphorePermit>,
}

/// The consequence of a response for its own call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    /// With whether the server permits to send the request again, whatever its method.
    Refused(Pause, bool),
    Forbidden,
    /// The server failed, and wants the request again.
    Permitted,
    Nothing,
}

impl SentRequest {
    pub(crate) const fn new(
        state: Arc<DestinationState>,
        sent: SentUnits,
        cost: u64,
        units: Option<Box<OpenUnits>>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            state,
            sent,
            cost,
            units,
            has_response: false,
            permit,
        }
    }

    /// Whether it has other units than requests, whose charge may change.
    pub(crate) const fn has_units(&self) -> bool {
        self.units.is_some()
    }

    pub(crate) fn destination(&self) -> &Destination {
        &self.state.destination
    }

    /// Learns from the head of the response, which ends the flight of the request. Only the first head
    /// counts.
    pub(crate) fn on_response(
        &mut self,
        pacer: &PacerState,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Verdict {
        if self.has_response {
            return Verdict::Nothing;
        }
        let now = pacer.clock.now();
        let units = self.units.as_deref();
        let cost = Cost {
            requests: self.cost,
            others: units.map_or(&[], OpenUnits::units),
        };
        let hint = ServerHint::of(pacer.learn, status, headers, pacer.clock.wall(now), cost);
        let reported = units.map(|units| units.reported(pacer, status, headers));
        let mut memory = self.state.memory();
        let fraction = match hint {
            ServerHint::Throttled { .. } => pacer.jitter.fraction(),
            _ if memory.learned.is_spaced() => pacer.jitter.fraction(),
            _ => 1.0,
        };
        let pause = memory.learned.on_response(now, self.sent, &hint, fraction);
        let refused = pause.map(|_| self.cost);
        memory.learned.end(self.sent, refused);
        if let Some((units, reported)) = units.zip(reported) {
            let is_refused = refused.is_some();
            units.on_response(&mut memory.learned, now, &reported, is_refused);
        }
        self.state.wake_head(memory);
        self.has_response = true;
        self.permit = None;
        self.verdict(pacer, status, headers, &hint, pause)
    }

    /// The consequence of the response for its own call.
    fn verdict(
        &self,
        pacer: &PacerState,
        status: StatusCode,
        headers: &HeaderMap,
        hint: &ServerHint,
        pause: Option<Pause>,
    ) -> Verdict {
        let should_retry = response_signals::should_retry(pacer.learn, status, headers);
        let verdict = match (hint, pause) {
            (&ServerHint::Throttled { source, .. }, Some(pause)) => {
                let wait = pause.wait;
                pacer.report(PacerEvent::Throttled { wait, source });
                let is_permitted = source == SignalSource::Grpc || should_retry == Some(true);
                Verdict::Refused(pause, is_permitted)
            }
            (ServerHint::DoNotRetry, _) => Verdict::Forbidden,
            _ if should_retry == Some(true) => Verdict::Permitted,
            _ => Verdict::Nothing,
        };
        if should_retry == Some(false) {
            return Verdict::Forbidden;
        }
        verdict
    }

    /// Settles the charges by what the response has used.
    pub(crate) fn settle(&mut self, pacer: &PacerState, tokens: &Tokens) {
        let Some(units) = self.units.take() else {
            return;
        };
        let mut memory = self.state.memory();
        units.settle(&mut memory.learned, tokens);
        units.end(&mut memory.learned);
        self.state.wake_head(memory);
        let limits = pacer.units_of_limits.as_deref().unwrap_or_default();
        match units.settle_declared(&self.state.key, limits, tokens) {
            Some(Pending::Ready(answer)) if !is_settled(&answer) => {
                pacer.report(PacerEvent::Unsettled);
            }
            None | Some(Pending::Ready(_)) => {}
            Some(Pending::Later(settlement)) => pacer.settle_later(settlement),
        }
    }

    /// Takes a retry from the destination's budget. Returns whether one was left.
    pub(crate) fn may_retry(&self, pacer: &PacerState) -> bool {
        let now = pacer.clock.now();
        self.state.budget().withdraw(now)
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        if self.has_response && self.units.is_none() {
            return;
        }
        let mut memory = self.state.memory();
        memory.learned.end(self.sent, None);
        if let Some(units) = &self.units {
            units.end(&mut memory.learned);
        }
    }
}

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
            Verdict::Refused(pause, _) => Advice::RetryAfter(pause.wait),
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
