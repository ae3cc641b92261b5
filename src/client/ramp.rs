//! The ramp: how requests begin again after a pause, as a function of its state, the time and what
//! happens.

use std::time::Duration;

use super::dice::LONGEST_DRAW;
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
    /// When the newest request was sent.
    sent_at: Timestamp,
    /// When the first request may be sent.
    begins_at: Timestamp,
}

impl Ramp {
    /// A ramp whose first round is this large, and begins with the request of this number.
    pub(super) const fn new(size: u64, first: u64) -> Self {
        Self {
            size,
            left: size,
            first,
            sent_at: Timestamp::from_micros(0),
            begins_at: Timestamp::from_micros(0),
        }
    }

    /// The same, from this time on.
    pub(super) const fn begins(mut self, at: Timestamp) -> Self {
        self.begins_at = at;
        self
    }

    pub(super) const fn begins_at(&self) -> Timestamp {
        self.begins_at
    }

    /// Until when the next request is held back.
    pub(super) fn hold(&self, now: Timestamp) -> Option<Timestamp> {
        let (until, longest) = match self.left {
            0 => (self.sent_at.saturating_add(PATIENCE), PATIENCE),
            _ => (self.begins_at, LONGEST_DRAW),
        };
        // A clock that stepped back makes it no longer.
        (now < until).then(|| until.min(now.saturating_add(longest)))
    }

    pub(super) fn send(&mut self, now: Timestamp) {
        self.left = self.left.saturating_sub(1);
        self.sent_at = now;
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
