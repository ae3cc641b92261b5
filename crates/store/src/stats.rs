//! Counts of a store's calls.

use std::{fmt, sync::Mutex, time::Duration};

use super::error::{StoreError, StoreErrorKind};
use tower_ratelimit_core::{decision::Degradation, lock::unpoisoned};

/// Counters of a store's calls since it was created, for metrics. They never decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    answered: u64,
    failures: [u64; StoreErrorKind::ALL.len()],
    pub(crate) connections: u64,
    pub(crate) breaker_openings: u64,
    pub(crate) degraded: [u64; Degradation::ALL.len()],
    pub(crate) script_loads: u64,
    times: CallTimes,
}

impl StoreStats {
    /// Calls with a response in time that was no error.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Calls that failed for this reason. [`StoreErrorKind::BreakerOpen`] counts calls that were
    /// not sent.
    pub const fn failures(&self, kind: StoreErrorKind) -> u64 {
        self.failures[kind as usize]
    }

    /// Failed calls by reason, without reasons that have not occurred.
    pub fn failures_by_kind(&self) -> impl Iterator<Item = (StoreErrorKind, u64)> {
        StoreErrorKind::ALL
            .into_iter()
            .map(|(kind, _)| (kind, self.failures(kind)))
            .filter(|(_, count)| *count > 0)
    }

    /// Connections that were opened. All but the first are reconnections; a connection that was
    /// handed in is not counted.
    pub const fn connections(&self) -> u64 {
        self.connections
    }

    /// How often the breaker opened after failures in a row.
    pub const fn breaker_openings(&self) -> u64 {
        self.breaker_openings
    }

    /// Operations of all limiters that Redis did not decide, for this reason: the node decided them
    /// by its fallback, or they failed. One call can carry many operations.
    pub const fn degraded(&self, reason: Degradation) -> u64 {
        self.degraded[reason as usize]
    }

    /// Operations that Redis did not decide, by reason, without reasons that have not occurred.
    pub fn degraded_by_reason(&self) -> impl Iterator<Item = (Degradation, u64)> {
        Degradation::ALL
            .into_iter()
            .zip(self.degraded)
            .filter(|(_, count)| *count > 0)
    }

    /// How often a script was loaded into a server: when the server was new, restarted, or flushed.
    pub const fn script_loads(&self) -> u64 {
        self.script_loads
    }

    /// The time within which `percent` of the calls since `earlier` got their response, from when they were made: waits for a
    /// connection and for other calls are part of it. At most a quarter too long, at least 20 µs and at most 17 s.
    /// `None` if there was no such call.
    pub fn call_time(&self, percent: u32, earlier: &Self) -> Option<Duration> {
        let times = [self, earlier].map(|stats| stats.times.0.as_flattened());
        let counts = times[0].iter().zip(times[1]);
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

/// The counts of a store so far.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Counters(Mutex<StoreStats>);

impl Counters {
    /// Counts a call that took this long.
    pub fn count<T>(&self, outcome: &Result<T, StoreError>, time: Duration) {
        self.change(|stats| match outcome {
            Ok(_) => {
                stats.answered += 1;
                let at = bucket(time);
                stats.times.0[at / 4][at % 4] += 1;
            }
            Err(error) => stats.failures[error.kind() as usize] += 1,
        });
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut StoreStats)) {
        let mut stats = unpoisoned(self.0.lock());
        change(&mut stats);
    }

    pub fn read(&self) -> StoreStats {
        *unpoisoned(self.0.lock())
    }
}

/// The buckets are four for each doubling from 16 µs on, up to 16 seconds. The first has all shorter times, the last all
/// longer ones.
const DOUBLINGS: usize = 20;

/// The microseconds in a step of the first buckets.
const STEP: u64 = 4;

/// The steps of the first bucket's times, at most.
const FIRST: u64 = 4;

/// How many calls got their response within each time.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct CallTimes([[u64; 4]; DOUBLINGS]);

fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    // From the third binary digit on, the first three choose the bucket.
    let steps = (micros / STEP).max(FIRST);
    let doubling = steps.ilog2() - FIRST.ilog2();
    let quarter = (steps >> doubling) - FIRST;
    (doubling as usize * 4 + quarter as usize).min(4 * DOUBLINGS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    Duration::from_micros(((FIRST + quarter + 1) << doubling) * STEP)
}

impl fmt::Debug for CallTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTimes").finish_non_exhaustive()
    }
}

/// Counts of a limiter's leases and messages in this process, since it was built.
///
/// All numbers are 0 in [strict](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/shared/struct.Mode.html#method.strict) mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ModeStats {
    /// Operations that the node decided: from a lease, by a cached denial, or ahead of the store.
    pub local: u64,
    /// Operations that the node sent to the store.
    pub asked: u64,
    /// Units that the store has granted.
    pub granted: u64,
    /// Spent units that the store has confirmed.
    pub settled: u64,
    /// Units that the node has returned.
    pub returned: u64,
    /// Units, spent or not, of leases that ended before the node had reported: the store counts
    /// them as spent.
    pub ended: u64,
    /// Messages without a response: those of a lease are repeated, in eventual mode the next one has their units.
    pub repeated: u64,
    /// Messages that arrived too late to take effect: the node started again without a lease.
    pub stale: u64,
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
        assert_eq!(bucket(Duration::MAX), 4 * DOUBLINGS - 1);
    }

    #[test]
    fn percentiles_are_of_the_calls_since_then() {
        let counters = Counters::default();
        let count = |time| counters.count(&Ok(()), time);
        for _ in 0..100 {
            count(Duration::from_secs(3));
        }
        let earlier = counters.read();
        assert_eq!(counters.read().call_time(50, &earlier), None);
        for _ in 0..98 {
            count(Duration::from_micros(300));
        }
        count(Duration::from_millis(10));
        count(Duration::from_millis(100));
        let stats = counters.read();
        let percentile = |percent| {
            let time = stats.call_time(percent, &earlier);
            time.map(|time| time.as_micros())
        };
        assert_eq!(percentile(50), Some(320));
        assert_eq!(percentile(98), Some(320));
        assert_eq!(percentile(99), Some(10_240));
        assert_eq!(percentile(100), Some(114_688));
    }
}
