//! The distance of a server: its response time without a queue.

use std::time::Duration;

/// The response time of a call that finds no queue.
#[derive(Debug, Clone, Copy)]
pub(super) enum Distance {
    Guessed(Duration),
    Measured(Duration),
}

impl Distance {
    pub(super) const fn get(self) -> Duration {
        match self {
            Self::Guessed(distance) | Self::Measured(distance) => distance,
        }
    }

    /// Falls soon and rises slowly. A call that was expected to find a queue does not raise it.
    pub(super) fn learn(self, took: Duration, queue: Duration, found_none: bool) -> Self {
        Self::Measured(match self {
            Self::Guessed(_) => took.saturating_sub(queue).max(took / 2),
            Self::Measured(distance) if took < distance => distance - (distance - took) / 4,
            Self::Measured(distance) if found_none => distance + (took - distance) / 32,
            Self::Measured(distance) => distance,
        })
    }
}
