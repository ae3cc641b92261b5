//! Deadlines, which a clock that steps back does not move away.

use std::time::Duration;

use crate::clock::Timestamp;

/// An instant that lies ahead, and how far ahead it was when it was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deadline {
    at: Timestamp,
    length: Duration,
}

impl Deadline {
    pub(super) fn after(now: Timestamp, length: Duration) -> Self {
        Self {
            at: now.saturating_add(length),
            length,
        }
    }

    /// This much later.
    pub(super) fn later(self, by: Duration) -> Self {
        Self {
            at: self.at.saturating_add(by),
            length: self.length.saturating_add(by),
        }
    }

    pub(super) const fn at(self) -> Timestamp {
        self.at
    }

    /// The same where the clock shows this time: never further away than when it was set.
    pub(super) fn seen_at(self, now: Timestamp) -> Self {
        let at = self.at.min(now.saturating_add(self.length));
        Self { at, ..self }
    }
}
