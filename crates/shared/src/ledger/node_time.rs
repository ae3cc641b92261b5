//! Times of a node in one number each, and the demand of a subject lately, which decays.

use std::{num::NonZeroU64, ops::Add, time::Duration};

use tokio::time::Instant;

/// Nanoseconds since an instant before the ledger was made, at least 1. Half the size of an `Instant`,
/// and compared or subtracted in an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeTime(NonZeroU64);

/// The origin of a ledger's times.
#[derive(Debug)]
pub(super) struct NodeClock(Instant);

/// The time between the origin and the ledger's beginning: calls may have left earlier.
const BEFORE: Duration = Duration::from_secs(3_600);

impl NodeTime {
    pub(super) const fn from_nanos(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    pub(super) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    pub(super) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for NodeTime {
    type Output = Self;

    /// The time after `duration`, at most 584 years after the origin.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl NodeClock {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(now.checked_sub(BEFORE).unwrap_or(now))
    }

    #[inline]
    pub(super) fn time(&self, instant: Instant) -> NodeTime {
        NodeTime::from_nanos(instant.saturating_duration_since(self.0).as_nanos() as u64)
    }
}

/// The duration in nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

/// The units that operations have requested lately, about in the last quarter of a lease's length. Older
/// ones decay exponentially.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecentDemand {
    units: f64,
    at: NodeTime,
}

impl RecentDemand {
    pub(super) const fn new(now: NodeTime) -> Self {
        Self {
            units: 0.0,
            at: now,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, cost: u64, now: NodeTime, length: Duration) {
        // Operations within this time count as if they had come at its beginning: most requests of a
        // busy subject need no exponential.
        if now.nanos_since(self.at) > length.as_nanos() as u64 / 256 {
            self.decay(now, length);
        }
        self.units += cost as f64;
    }

    #[cold]
    fn decay(&mut self, now: NodeTime, length: Duration) {
        *self = Self {
            units: self.at(now, length),
            at: now,
        };
    }

    /// Caps the demand at `most`, the capacity of the smallest quota.
    pub(super) fn keep_below(&mut self, most: u64, now: NodeTime, length: Duration) {
        let units = self.at(now, length);
        if units > most as f64 {
            (self.units, self.at) = (most as f64, now);
        }
    }

    pub(super) fn at(&self, now: NodeTime, length: Duration) -> f64 {
        let passed = now.since(self.at).as_secs_f64();
        self.units * (-4.0 * passed / length.as_secs_f64()).exp()
    }

    /// The demand in whole units.
    pub(super) fn units(&self, now: NodeTime, length: Duration) -> u32 {
        self.at(now, length) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_differ_as_their_instants_do() {
        let clock = NodeClock::new();
        let now = Instant::now();
        let wait = Duration::new(1, 7);
        let (time, later) = (clock.time(now), clock.time(now + wait));
        assert_eq!(later.since(time), wait);
        assert_eq!(time.since(later), Duration::ZERO);
        assert_eq!(time + wait, later);
        let end = time + Duration::MAX;
        assert!(end > later && end + wait == end);
    }

    #[test]
    fn optional_time_is_one_number() {
        assert_eq!(size_of::<Option<NodeTime>>(), 8);
    }

    const LENGTH: Duration = Duration::from_secs(1);

    #[test]
    fn steady_rate_comes_to_a_quarter_of_a_length() {
        let start = NodeTime::from_nanos(1);
        for per_second in [40_u32, 1_000, 100_000] {
            let mut demand = RecentDemand::new(start);
            let mut now = start;
            for _ in 0..2 * per_second {
                now = now + LENGTH / per_second;
                demand.add(1, now, LENGTH);
            }
            let expected = f64::from(per_second) / 4.0;
            let found = demand.at(now, LENGTH);
            assert!(
                (found / expected - 1.0).abs() < 0.1,
                "{found} of {expected}"
            );
            let later = demand.at(now + LENGTH, LENGTH);
            assert!(later < found * 0.02, "{later} is left");
        }
    }

    #[test]
    fn time_that_steps_back_changes_nothing() {
        let now = NodeTime::from_nanos(1) + LENGTH;
        let mut demand = RecentDemand::new(now);
        demand.add(9, NodeTime::from_nanos(1), LENGTH);
        assert_eq!(demand.units(NodeTime::from_nanos(1), LENGTH), 9);
    }
}
