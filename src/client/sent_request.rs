//! Requests that were sent, until the head of the response is there.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Destination, PacerEvent, SignalSource,
    common::Common,
    learned::{Pause, Sent},
    signal::Signal,
    site::Site,
};

/// A request on its way. One that is dropped is so no more, as when the connection fails.
pub(super) struct SentRequest {
    site: Arc<Site>,
    sent: Sent,
    /// Whether its response was heard.
    has_ended: bool,
    /// The room of a request in flight.
    _room: Option<OwnedSemaphorePermit>,
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

impl SentRequest {
    pub(super) const fn new(
        site: Arc<Site>,
        sent: Sent,
        room: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            site,
            sent,
            has_ended: false,
            _room: room,
        }
    }

    pub(super) fn destination(&self) -> &Destination {
        &self.site.destination
    }

    /// Learns from the head of the response, after which it is in flight no more.
    pub(super) fn hear(
        &mut self,
        common: &Common,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Heard {
        let now = common.clock.now();
        let signal = Signal::of(common.learn, status, headers, now);
        let mut memory = self.site.memory();
        let fraction = match signal {
            Signal::Throttled { .. } => common.dice.fraction(),
            _ if memory.learned.is_spaced() => common.dice.fraction(),
            _ => 1.0,
        };
        let pause = memory.learned.hear(now, self.sent, &signal, fraction);
        memory.learned.end(self.sent);
        self.has_ended = true;
        let somebody_waits = memory.head_waits;
        drop(memory);
        if somebody_waits {
            self.site.news.notify_one();
        }
        match (signal, pause) {
            (Signal::Throttled { source, .. }, Some(pause)) => {
                let wait = pause.wait;
                common.tell(PacerEvent::Throttled { wait, source });
                Heard::Refused(Refusal { pause, source })
            }
            (Signal::DoNotRetry, _) => Heard::Forbidden,
            _ => Heard::Nothing,
        }
    }

    /// Takes a retry from the destination's budget, if one is left.
    pub(super) fn may_retry(&self, common: &Common) -> bool {
        let now = common.clock.now();
        self.site.budget().withdraw(now)
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        if !self.has_ended {
            self.site.memory().learned.end(self.sent);
        }
    }
}
