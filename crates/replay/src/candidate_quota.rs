//! A quota under trial.

use std::time::Duration;

use tower_ratelimit::{LocalLimiter, Quota, clock::ManualClock};

use crate::{filters::StatusSet, log_entry::Attempt};

/// A quota, and its effects.
pub(crate) struct Candidate {
    pub(crate) quota: Quota,
    limiter: LocalLimiter,
    pub(crate) limited: Limited,
    pub(crate) delayed: Delayed,
}

/// Requests that were delayed before they passed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delayed {
    pub(crate) requests: u64,
    pub(crate) longest: Duration,
}

impl Delayed {
    /// Adds a request that passes after this delay, which may be zero.
    pub(crate) fn note(&mut self, delay: Duration) {
        self.requests += u64::from(!delay.is_zero());
        self.longest = self.longest.max(delay);
    }
}

/// Requests that were limited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limited {
    pub(crate) requests: u64,
    /// Microseconds since 1970.
    pub(crate) first: Option<u64>,
    /// The minute with the most, since 1970, and its number.
    pub(crate) worst: (u64, u64),
    minute: (u64, u64),
}

impl Candidate {
    pub(crate) fn new(quota: Quota, max_keys: usize, clock: &ManualClock) -> Result<Self, String> {
        let builder = LocalLimiter::builder(quota).max_keys(max_keys);
        let limiter = builder.clock(clock.clone()).build();
        Ok(Self {
            quota,
            limiter: limiter.map_err(|error| error.to_string())?,
            limited: Limited::default(),
            delayed: Delayed::default(),
        })
    }

    /// Whether the quota limits the attempt.
    pub(crate) fn limits(&mut self, attempt: &Attempt, count_if: Option<&StatusSet>) -> bool {
        let key = &attempt.key;
        let decision = self.limiter.acquire(key, 1);
        if decision.is_denied() {
            self.limited.note(attempt.at);
            return true;
        }
        if count_if.is_some_and(|statuses| !statuses.has(attempt.status)) {
            self.limiter.refund(key, 1, Some(decision.receipt()));
        }
        self.delayed.note(decision.delay());
        false
    }

    /// Keys that the full table evicted.
    pub(crate) fn evictions(&self) -> u64 {
        self.limiter.evictions()
    }

    /// The quota with a scaled limit. Its burst and its queue are scaled as well.
    pub(crate) fn scaled(quota: &Quota, by: f64) -> Option<Quota> {
        let scale = |number: &str, least: f64| {
            let number: f64 = number.parse().ok()?;
            Some(((number * by).round().max(least) as u64).to_string())
        };
        let text = quota.to_string();
        let (limit, rest) = text.split_once('/')?;
        let mut words = rest.split(' ');
        let mut scaled = format!("{}/{}", scale(limit, 1.0)?, words.next()?);
        while let Some(word) = words.next() {
            scaled += &format!(" {word}");
            // A queue may be 0.
            let least = match word {
                "burst" => 1.0,
                "queue" => 0.0,
                _ => continue,
            };
            scaled += &format!(" {}", scale(words.next()?, least)?);
        }
        scaled.parse().ok()
    }
}

impl Limited {
    /// Attempts come in the order of their times.
    pub(crate) fn note(&mut self, at: u64) {
        self.requests += 1;
        self.first.get_or_insert(at);
        let minute = at / 60_000_000;
        if self.minute.0 != minute {
            self.minute = (minute, 0);
        }
        self.minute.1 += 1;
        if self.minute.1 > self.worst.1 {
            self.worst = self.minute;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Candidate;
    use tower_ratelimit::Quota;

    #[test]
    fn a_quota_is_scaled_with_all_its_numbers() {
        for (quota, by, scaled) in [
            ("100/minute", 0.5, "50/60s"),
            (
                "100/minute burst 200 soft 10%",
                1.5,
                "150/60s burst 300 soft 10%",
            ),
            (
                "10/s leaky_bucket queue 20",
                2.0,
                "20/1s leaky_bucket queue 40",
            ),
            (
                "10/s leaky_bucket queue 0",
                3.0,
                "30/1s leaky_bucket queue 0",
            ),
            (
                "6/h sliding_window slices 6",
                0.01,
                "1/3600s sliding_window slices 6",
            ),
        ] {
            let quota: Quota = quota.parse().expect("a quota");
            let scaled_quota = Candidate::scaled(&quota, by).expect("a quota");
            assert_eq!(scaled_quota.to_string(), scaled);
        }
    }
}
