//! Sent requests, until the head of the response arrives.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    destination::Destination,
    destination_state::DestinationState,
    event::PacerEvent,
    learned_limits::{Pause, Sent},
    pacer_state::PacerState,
    response_signals::{ServerHint, SignalSource},
};

/// A request in flight. Dropping it, as when the connection fails, ends that.
pub(crate) struct SentRequest {
    state: Arc<DestinationState>,
    sent: Sent,
    /// Whether the response arrived.
    has_response: bool,
    /// The permit of a request in flight.
    _permit: Option<OwnedSemaphorePermit>,
}

/// A refusal, with the values that a retry needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) pause: Pause,
    pub(crate) source: SignalSource,
}

/// The consequence of a response for its own call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    Refused(Refusal),
    Forbidden,
    Nothing,
}

impl SentRequest {
    pub(crate) const fn new(
        state: Arc<DestinationState>,
        sent: Sent,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            state,
            sent,
            has_response: false,
            _permit: permit,
        }
    }

    pub(crate) fn destination(&self) -> &Destination {
        &self.state.destination
    }

    /// Learns from the head of the response, which ends the flight of the request.
    pub(crate) fn on_response(
        &mut self,
        pacer: &PacerState,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Verdict {
        let now = pacer.clock.now();
        let hint = ServerHint::of(pacer.learn, status, headers, now);
        let mut memory = self.state.memory();
        let fraction = match hint {
            ServerHint::Throttled { .. } => pacer.jitter.fraction(),
            _ if memory.learned.is_spaced() => pacer.jitter.fraction(),
            _ => 1.0,
        };
        let pause = memory.learned.on_response(now, self.sent, &hint, fraction);
        memory.learned.end(self.sent);
        self.has_response = true;
        let head_waits = memory.head_waits;
        drop(memory);
        if head_waits {
            self.state.changed.notify_one();
        }
        match (&hint, pause) {
            (&ServerHint::Throttled { source, .. }, Some(pause)) => {
                let wait = pause.wait;
                pacer.report(PacerEvent::Throttled { wait, source });
                Verdict::Refused(Refusal { pause, source })
            }
            (ServerHint::DoNotRetry, _) => Verdict::Forbidden,
            _ => Verdict::Nothing,
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
        if !self.has_response {
            self.state.memory().learned.end(self.sent);
        }
    }
}
