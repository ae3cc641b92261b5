//! Slow start: rounds of requests after a pause, as a function of state, time and event; and the spacing of requests that
//! refusals in a row cause.

use std::time::Duration;

use tower_ratelimit::clock::Timestamp;

use crate::deadlines_and_jitter::Deadline;

/// A request without a response for this long lets the next one be sent.
const PATIENCE: Duration = Duration::from_secs(1);

/// The size of a round from which on slow start ends.
const TOP: u64 = 1_024;

/// Rounds of requests. Each has twice the size of the one before, and starts with a response to
/// that.
#[derive(Debug, Clone)]
pub(crate) struct SlowStart {
    /// The size of this round.
    size: u64,
    /// Requests of this round that are yet to be sent.
    left: u64,
    /// The number of this round's first request.
    first: u64,
    /// After a pause, when the first request may be sent.
    begins: Option<Deadline>,
    /// When the next request may be sent even if no response arrives.
    patience: Option<Deadline>,
}

impl SlowStart {
    /// A slow start whose first round has this size, and starts with the request of this number.
    pub(crate) const fn new(size: u64, first: u64) -> Self {
        Self {
            size,
            left: size,
            first,
            begins: None,
            patience: None,
        }
    }

    /// This slow start, whose first request waits until `at`.
    pub(crate) const fn begins(mut self, at: Deadline) -> Self {
        self.begins = Some(at);
        self
    }

    /// When the first request after a pause may be sent.
    pub(crate) const fn begins_at(&self) -> Option<Deadline> {
        self.begins
    }

    /// Limits the deadlines to their initial distance, if the clock stepped back.
    pub(crate) fn clamp_at(&mut self, now: Timestamp) {
        for deadline in [&mut self.begins, &mut self.patience].into_iter().flatten() {
            *deadline = deadline.clamped_at(now);
        }
    }

    /// When the next request may be sent; `None` for now.
    pub(crate) fn hold(&self, now: Timestamp) -> Option<Timestamp> {
        let until = match self.left {
            0 => self.patience,
            _ => self.begins,
        };
        until.map(Deadline::at).filter(|until| now < *until)
    }

    pub(crate) fn send(&mut self, now: Timestamp) {
        self.left = self.left.saturating_sub(1);
        self.patience = Some(Deadline::after(now, PATIENCE));
    }

    /// Whether the quotas in the response to this request end the slow start. After a pause,
    /// responses to requests from before it do not: the first request is sent alone, after its
    /// random time.
    pub(crate) fn is_replaced_by(&self, number: u64) -> bool {
        self.begins.is_none() || number >= self.first
    }

    /// The server accepted a request; `next` is the number of the next one. Returns whether slow
    /// start ends.
    pub(crate) fn pass(&mut self, number: u64, next: u64) -> bool {
        // One response starts the next round: the others of the round arrive at about the same
        // time.
        if number >= self.first {
            self.size = self.size.saturating_mul(2);
            self.left = self.size;
            self.first = next;
        }
        self.size > TOP
    }
}

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
