//! A limit as a rate and a burst, to be divided into token buckets.

use std::time::Duration;

use tower_ratelimit::{Algorithm, Quota};

/// Tokens a second. From this rate on, the interval of buckets is a second. Buckets of smaller rates have a
/// minute, so that shares are exact to a fraction of a token a second.
const FAST: u128 = 1_000;

/// A rate and a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DivisibleRate {
    /// Tokens in each interval.
    pub(super) tokens: u64,
    /// Seconds: Envoy ignores fractions of them.
    pub(super) interval: u64,
    /// The tokens that may pass at once.
    pub(super) burst: u64,
}

impl DivisibleRate {
    /// The rate of a fixed window of a second: no second has more than its requests. `None` below 2.
    pub(super) fn of_second(requests: u32) -> Option<Self> {
        let requests = u64::from(requests);
        let burst = (requests / 10).max(1);
        Self::new(requests.checked_sub(burst)?, Duration::from_secs(1), burst)
    }

    /// The rate of a quota. `None` for all but token buckets of at least a token a second that refill evenly, at all
    /// times of the day.
    pub(super) fn of_quota(quota: &Quota) -> Option<Self> {
        let is_even = quota.algorithm() == Algorithm::TokenBucket
            && quota.refill_step().is_none()
            && quota.varying_limits().is_none();
        let rate = || Self::new(quota.limit(), quota.period(), quota.capacity());
        is_even.then(rate).flatten()
    }

    fn new(limit: u64, period: Duration, burst: u64) -> Option<Self> {
        let in_seconds =
            |seconds: u128| u128::from(limit) * seconds * 1_000_000_000 / period.as_nanos().max(1);
        if in_seconds(1) == 0 || burst == 0 {
            return None;
        }
        let interval = if in_seconds(1) >= FAST { 1 } else { 60 };
        let most = u64::from(u32::MAX);
        Some(Self {
            tokens: u64::try_from(in_seconds(interval)).map_or(most, |tokens| tokens.min(most)),
            interval: interval as u64,
            burst: burst.min(most),
        })
    }

    /// This rate with the interval of another one.
    pub(super) fn with_interval(self, interval: u64) -> Self {
        let tokens = self.tokens * interval / self.interval;
        Self {
            tokens: tokens.min(u64::from(u32::MAX)),
            interval,
            ..self
        }
    }

    /// The tokens of an interval that make this many in a time.
    pub(super) fn in_interval(&self, tokens: u64, time: Duration) -> u64 {
        let nanos = u128::from(self.interval) * 1_000_000_000;
        let tokens = u128::from(tokens) * nanos / time.as_nanos().max(1);
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(tokens: u64, interval: u64, burst: u64) -> Option<DivisibleRate> {
        Some(DivisibleRate {
            tokens,
            interval,
            burst,
        })
    }

    #[test]
    fn a_window_of_a_second_has_a_tenth_as_burst() {
        assert_eq!(DivisibleRate::of_second(100), rate(90 * 60, 60, 10));
        assert_eq!(DivisibleRate::of_second(10_000), rate(9_000, 1, 1_000));
        assert_eq!(DivisibleRate::of_second(2), rate(60, 60, 1));
        assert_eq!(DivisibleRate::of_second(1), None);
        assert_eq!(DivisibleRate::of_second(0), None);
    }

    #[test]
    fn only_even_token_buckets_of_a_token_a_second_are_rates() {
        let of = |quota: &str| DivisibleRate::of_quota(&quota.parse().expect("a quota"));
        assert_eq!(of("600/minute burst 50"), rate(600, 60, 50));
        assert_eq!(of("1000/second"), rate(1_000, 1, 1_000));
        assert_eq!(of("59/minute"), None);
        assert_eq!(of("600/minute fixed_window"), None);
        assert_eq!(of("600/minute sliding_log"), None);
        assert_eq!(of("600/minute refill_every 10s"), None);
    }

    #[test]
    fn the_interval_can_be_that_of_another_rate() {
        let fast = DivisibleRate::of_second(10_000).expect("a rate");
        assert_eq!(Some(fast.with_interval(60)), rate(540_000, 60, 1_000));
        let slow = DivisibleRate::of_second(100).expect("a rate");
        assert_eq!(Some(slow.with_interval(1)), rate(90, 1, 10));
    }
}
