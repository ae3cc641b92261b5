//! A limit as a rate and a burst, to be divided into token buckets.

use std::time::Duration;

use tower_ratelimit::{Quota, quota::Algorithm};

/// Tokens a second. From this rate on, the interval of buckets is a second. Buckets of smaller rates have a
/// minute, so that shares are exact to a fraction of a token a second.
const FAST: u128 = 1_000;

/// The period from which on a window or log is lent as units: Envoy reports every 5 seconds, so units of shorter ones
/// would be used up, or over, before it gets others.
const LONG: Duration = Duration::from_secs(60);

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
    /// The rate of a window or log: no period has more than its requests. `None` for a minute or longer, whose requests
    /// are lent as units, and for less than a request a second beside the burst.
    pub(super) fn of_window(requests: u64, period: Duration) -> Option<Self> {
        let burst = (requests / 10).max(1);
        let rate = requests.checked_sub(burst)?;
        (period < LONG).then(|| Self::new(rate, period, burst))?
    }

    /// The rate of a quota. `None` for rates below a token a second, long periods, and limits by the time of day.
    pub(super) fn of_quota(quota: &Quota) -> Option<Self> {
        if quota.varying_limits().is_some() {
            return None;
        }
        let (limit, period) = (quota.limit(), quota.period());
        match quota.algorithm() {
            // Stepwise refills pass no less in any time.
            Algorithm::TokenBucket => Self::new(limit, period, quota.capacity()),
            // Without a queue at this service.
            Algorithm::LeakyBucket { .. } => Self::new(limit, period, 1),
            _ => Self::of_window(limit, period),
        }
    }

    #[cfg(test)]
    pub(super) fn of_second(requests: u64) -> Option<Self> {
        Self::of_window(requests, Duration::from_secs(1))
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
    fn a_short_window_has_a_tenth_as_burst() {
        let of_second = DivisibleRate::of_second;
        assert_eq!(of_second(100), rate(90 * 60, 60, 10));
        assert_eq!(of_second(10_000), rate(9_000, 1, 1_000));
        assert_eq!(of_second(2), rate(60, 60, 1));
        assert_eq!(of_second(1), None);
        assert_eq!(of_second(0), None);
        let of_ten = |requests| DivisibleRate::of_window(requests, Duration::from_secs(10));
        assert_eq!(of_ten(1_000), rate(90 * 60, 60, 100));
        assert_eq!(of_ten(10), None);
    }

    #[test]
    fn quotas_of_a_token_a_second_and_short_periods_are_rates() {
        let of = |quota: &str| DivisibleRate::of_quota(&quota.parse().expect("a quota"));
        assert_eq!(of("600/minute burst 50"), rate(600, 60, 50));
        assert_eq!(of("600/minute refill_every 10s"), rate(600, 60, 600));
        assert_eq!(of("1000/second"), rate(1_000, 1, 1_000));
        assert_eq!(of("600/minute leaky_bucket queue 20"), rate(600, 60, 1));
        assert_eq!(of("100/second sliding_log"), rate(90 * 60, 60, 10));
        assert_eq!(of("100/second sliding_window"), rate(90 * 60, 60, 10));
        assert_eq!(of("59/minute"), None);
        assert_eq!(of("600/minute fixed_window"), None);
        assert_eq!(of("600/minute sliding_log"), None);
    }

    #[test]
    fn the_interval_can_be_that_of_another_rate() {
        let fast = DivisibleRate::of_second(10_000).expect("a rate");
        assert_eq!(Some(fast.with_interval(60)), rate(540_000, 60, 1_000));
        let slow = DivisibleRate::of_second(100).expect("a rate");
        assert_eq!(Some(slow.with_interval(1)), rate(90, 1, 10));
    }
}
