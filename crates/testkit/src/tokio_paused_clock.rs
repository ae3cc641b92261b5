//! A clock for tests in tokio's paused time.

use tokio::time::Instant;
use tower_ratelimit::clock::{Clock, Timestamp};

/// Starts at a time that is always the same and continues with tokio's, so that a test whose time is
/// paused can be repeated.
#[derive(Debug, Clone, Copy)]
pub struct PausedClock {
    since: Instant,
}

impl PausedClock {
    /// The start of 2026, now. Within the runtime that paused its time.
    #[allow(clippy::new_without_default, reason = "it reads a clock")]
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
        }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.since.elapsed();
        Timestamp::from_secs(START).saturating_add(elapsed)
    }
}

/// The start of 2026.
pub const START: u64 = 1_767_225_600;
