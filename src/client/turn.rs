//! Turns: a request may be sent, and its response is learned from.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Destination, PacerEvent, SignalSource,
    common::Common,
    learned::{Pause, Sent},
    signal::Signal,
    site::Site,
};

/// The turn of one request: it is to be sent now.
///
/// A turn that is dropped, as when the connection fails, is not in flight any more. Its units stay
/// charged.
#[must_use = "the request should be sent, and its response handed to `learn`"]
pub struct Turn {
    common: Arc<Common>,
    site: Arc<Site>,
    sent: Sent,
    /// The room of a request in flight.
    _room: Option<OwnedSemaphorePermit>,
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

/// A refusal, as a retry needs to know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) pause: Pause,
    pub(super) source: SignalSource,
}

/// What a response says to the call that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Heard {
    Refused(Refusal),
    Forbidden,
    Nothing,
}

impl Turn {
    pub(super) const fn new(
        common: Arc<Common>,
        site: Arc<Site>,
        sent: Sent,
        room: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            common,
            site,
            sent,
            _room: room,
        }
    }

    /// The destination that the request is for.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.site.destination
    }

    /// Learns from the head of the response, and says whether it was a refusal.
    #[allow(
        clippy::must_use_candidate,
        reason = "the response may be used as it is"
    )]
    pub fn learn(self, status: StatusCode, headers: &HeaderMap) -> Advice {
        match self.hear(status, headers) {
            Heard::Refused(refusal) => Advice::RetryAfter(refusal.pause.wait),
            Heard::Forbidden => Advice::DoNotRetry,
            Heard::Nothing => Advice::Done,
        }
    }

    pub(super) fn hear(&self, status: StatusCode, headers: &HeaderMap) -> Heard {
        let now = self.common.clock.now();
        let signal = Signal::of(self.common.learn, status, headers, now);
        let fraction = match signal {
            Signal::Throttled { hint: None, .. } => self.common.dice.fraction(),
            _ => 1.0,
        };
        let mut memory = self.site.memory();
        let pause = memory.learned.hear(now, self.sent, &signal, fraction);
        drop(memory);
        self.site.news.notify_one();
        match (signal, pause) {
            (Signal::Throttled { source, .. }, Some(pause)) => {
                let wait = pause.wait;
                self.common.tell(PacerEvent::Throttled { wait, source });
                Heard::Refused(Refusal { pause, source })
            }
            (Signal::DoNotRetry, _) => Heard::Forbidden,
            _ => Heard::Nothing,
        }
    }

    /// Takes a retry from the destination's budget, if one is left.
    pub(super) fn may_retry(&self) -> bool {
        let now = self.common.clock.now();
        self.site.memory().budget.withdraw(now)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.site.memory().learned.end(self.sent);
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("destination", &self.site.destination)
            .finish_non_exhaustive()
    }
}
