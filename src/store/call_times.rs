//! The times of a store's calls, counted in buckets.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The buckets: four for each doubling from 16 µs on, up to 16 seconds. The first has all shorter times, the last all
/// longer ones.
const BUCKETS: usize = 80;

/// The microseconds in a step of the first buckets.
const STEP: u64 = 4;

/// The steps of the first bucket's times, at most.
const FIRST: u64 = 4;

/// How many calls were answered within each time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CallTimes([u64; BUCKETS]);

/// The counters behind [`CallTimes`].
#[derive(Debug)]
pub(super) struct CallTimers([AtomicU64; BUCKETS]);

impl CallTimers {
    pub(super) fn count(&self, time: Duration) {
        self.0[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> CallTimes {
        CallTimes(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

impl CallTimes {
    /// The least upper bound of a bucket with which `percent` of the calls since `earlier` were answered. `None` without
    /// such calls.
    pub(super) fn percentile(&self, percent: u32, earlier: &Self) -> Option<Duration> {
        let counts = self.0.iter().zip(&earlier.0);
        let counts: Vec<u64> = counts
            .map(|(now, then)| now.saturating_sub(*then))
            .collect();
        let all = u128::from(counts.iter().sum::<u64>());
        let needed = (all * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut sum = 0;
        let at = counts.iter().position(|count| {
            sum += u128::from(*count);
            sum >= needed
        });
        at.map(upper_bound)
    }
}

fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    // From the third binary digit on, the first three choose the bucket.
    let steps = (micros / STEP).max(FIRST);
    let doubling = steps.ilog2() - FIRST.ilog2();
    let quarter = (steps >> doubling) - FIRST;
    (doubling as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    Duration::from_micros(((FIRST + quarter + 1) << doubling) * STEP)
}

impl Default for CallTimes {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Default for CallTimers {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl fmt::Debug for CallTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTimes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_bound_exceeds_a_time_by_a_quarter_at_most() {
        for micros in (16..20_000).chain([1_000_000, 15_999_999]) {
            let time = Duration::from_micros(micros);
            let bound = upper_bound(bucket(time));
            assert!(bound > time, "{micros}");
            assert!(
                bound <= time + time / 4 + Duration::from_micros(STEP),
                "{micros}"
            );
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_the_calls_since_then() {
        let timers = CallTimers::default();
        for _ in 0..100 {
            timers.count(Duration::from_secs(3));
        }
        let earlier = timers.read();
        assert_eq!(timers.read().percentile(50, &earlier), None);
        for _ in 0..98 {
            timers.count(Duration::from_micros(300));
        }
        timers.count(Duration::from_millis(10));
        timers.count(Duration::from_millis(100));
        let times = timers.read();
        let percentile = |percent| {
            times
                .percentile(percent, &earlier)
                .map(|time| time.as_micros())
        };
        assert_eq!(percentile(50), Some(320));
        assert_eq!(percentile(98), Some(320));
        assert_eq!(percentile(99), Some(10_240));
        assert_eq!(percentile(100), Some(114_688));
    }
}
