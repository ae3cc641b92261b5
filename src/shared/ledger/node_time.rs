//! Times of a node in one number each.

use std::{num::NonZeroU64, ops::Add, time::Duration};

use tokio::time::Instant;

/// Nanoseconds since an instant before the ledger was made, at least 1. Half the size of an `Instant`,
/// and compared or subtracted in an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::shared) struct NodeTime(NonZeroU64);

/// The origin of a ledger's times.
#[derive(Debug)]
pub(in crate::shared) struct NodeClock(Instant);

/// The time between the origin and the ledger's beginning: calls may have left earlier.
const BEFORE: Duration = Duration::from_secs(3_600);

impl NodeTime {
    pub(super) const fn from_nanos(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    pub(in crate::shared) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    pub(in crate::shared) const fn since(self, earlier: Self) -> Duration {
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
    pub(in crate::shared) fn time(&self, instant: Instant) -> NodeTime {
        NodeTime::from_nanos(instant.saturating_duration_since(self.0).as_nanos() as u64)
    }

    pub(in crate::shared) fn instant(&self, time: NodeTime) -> Instant {
        self.0 + Duration::from_nanos(time.0.get())
    }
}

/// The duration in nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
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
}
