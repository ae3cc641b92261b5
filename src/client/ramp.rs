//! The ramp: how requests begin again after a pause, as a function of its state, the time and what
//! happens.

use std::time::Duration;

use super::deadline::Deadline;
use crate::clock::Timestamp;

/// A request that is not answered for this long lets the next one go.
const PATIENCE: Duration = Duration::from_secs(1);

/// A ramp that has come this far holds nothing back any more.
const TOP: u64 = 1_024;

/// Requests in rounds, each twice as large as the one before, once an answer to that has come.
#[derive(Debug, Clone)]
pub(super) struct Ramp {
    /// Requests of this round.
    size: u64,
    /// Those of them that were not sent yet.
    left: u64,
    /// The number of its first request.
    first: u64,
    /// After a pause, when the first request may be sent.
    begins: Option<Deadline>,
    /// When the next one may, even if no answer has come.
    patience: Option<Deadline>,
}

impl Ramp {
    /// A ramp whose first round is this large, and begins with the request of this number.
    pub(super) const fn new(size: u64, first: u64) -> Self {
        Self {
            size,
            left: size,
            first,
            begins: None,
            patience: None,
        }
    }

    /// The same, from the end of a pause on.
    pub(super) const fn begins(mut self, at: Deadline) -> Self {
        self.begins = Some(at);
        self
    }

    /// When the first request after a pause may be sent.
    pub(super) const fn begins_at(&self) -> Option<Deadline> {
        self.begins
    }

    /// The clock shows this time, and may have stepped back.
    pub(super) fn see(&mut self, now: Timestamp) {
        for deadline in [&mut self.begins, &mut self.patience].into_iter().flatten() {
            *deadline = deadline.seen_at(now);
        }
    }

    /// Until when the next request is held back.
    pub(super) fn hold(&self, now: Timestamp) -> Option<Timestamp> {
        let until = match self.left {
            0 => self.patience,
            _ => self.begins,
        };
        until.map(Deadline::at).filter(|until| now < *until)
    }

    pub(super) fn send(&mut self, now: Timestamp) {
        self.left = self.left.saturating_sub(1);
        self.patience = Some(Deadline::after(now, PATIENCE));
    }

    /// Whether quotas that the answer to this request tells take the ramp's place. After a pause those
    /// do not that were sent before: the first one goes alone, and at a time of its own.
    pub(super) fn gives_way(&self, number: u64) -> bool {
        self.begins.is_none() || number >= self.first
    }

    /// A request was taken; `next` is the number of the next one. Whether the ramp ends here.
    pub(super) fn pass(&mut self, number: u64, next: u64) -> bool {
        // One answer for each round: the others of it come about the same time.
        if number >= self.first {
            self.size = self.size.saturating_mul(2);
            self.left = self.size;
            self.first = next;
        }
        self.size > TOP
    }
}
