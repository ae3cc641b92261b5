//! Consecutive refusals, and the spacing of requests that they cause.

use std::time::Duration;

/// The spacing after successes, from the second refusal in a row on. Each further refusal doubles
/// it.
const FIRST_SPACING: Duration = Duration::from_millis(500);

/// The longest spacing: a client that is alone again has to detect it.
const LONGEST_SPACING: Duration = Duration::from_secs(5);

/// The part of the spacing that remains after a success.
const AFTER_SUCCESS: f64 = 0.84;

/// Consecutive refusals. Requests that were in flight together count as one.
#[derive(Debug, Default)]
pub(crate) struct RefusalStreak {
    refusals: u32,
    /// The number of the first request after the newest refusal.
    since: u64,
    /// Half the longest time between a success and the next request. Without it a client that just
    /// succeeded would continue at once, while refused ones wait ever longer.
    spacing: Duration,
}

impl RefusalStreak {
    /// Half the longest time between a success and the next request; zero without a streak.
    pub(crate) const fn spacing(&self) -> Duration {
        self.spacing
    }

    /// Counts a refusal of the request of this number; `next` is that of the first request after it.
    /// Returns the number of refusals before it.
    pub(crate) fn refuse(&mut self, number: u64, next: u64) -> u32 {
        if number >= self.since {
            self.since = next;
            self.refusals += 1;
            // A client that is alone is refused once and accepted after the wait.
            if self.refusals > 1 || !self.spacing.is_zero() {
                self.spacing = (self.spacing * 2).clamp(FIRST_SPACING, LONGEST_SPACING);
            }
        }
        self.refusals.saturating_sub(1)
    }

    /// Ends the streak, unless the accepted request was sent before the newest refusal.
    pub(crate) fn end(&mut self, number: u64) {
        if number >= self.since {
            self.refusals = 0;
            let spacing = self.spacing.mul_f64(AFTER_SUCCESS);
            self.spacing = if spacing < FIRST_SPACING / 2 {
                Duration::ZERO
            } else {
                spacing
            };
        }
    }
}
