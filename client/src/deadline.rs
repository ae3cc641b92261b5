//! Deadlines that stay as near as they were when the clock steps back.

use std::time::Duration;

use tower_ratelimit::clock::Timestamp;

/// A future instant, with its distance when it was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    at: Timestamp,
    length: Duration,
}

impl Deadline {
    pub(crate) fn after(now: Timestamp, length: Duration) -> Self {
        Self {
            at: now.saturating_add(length),
            length,
        }
    }

    /// This deadline, `by` later.
    pub(crate) fn later(self, by: Duration) -> Self {
        Self {
            at: self.at.saturating_add(by),
            length: self.length.saturating_add(by),
        }
    }

    pub(crate) const fn at(self) -> Timestamp {
        self.at
    }

    /// This deadline at the time `now`: at most as far ahead as when it was set.
    pub(crate) fn clamped_at(self, now: Timestamp) -> Self {
        let at = self.at.min(now.saturating_add(self.length));
        Self { at, ..self }
    }
}
