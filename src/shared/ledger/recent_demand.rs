//! The recent demand for a subject on this node: a sum that decays.

use std::time::Duration;

use super::node_time::NodeTime;

/// The units that operations have requested lately, about in the last quarter of a lease's length. Older
/// ones decay exponentially.
#[derive(Debug, Clone, Copy)]
pub(in crate::shared) struct RecentDemand {
    units: f64,
    at: NodeTime,
}

impl RecentDemand {
    pub(in crate::shared) const fn new(now: NodeTime) -> Self {
        Self {
            units: 0.0,
            at: now,
        }
    }

    #[inline]
    pub(in crate::shared) fn add(&mut self, cost: u64, now: NodeTime, length: Duration) {
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
    pub(in crate::shared) fn keep_below(&mut self, most: u64, now: NodeTime, length: Duration) {
        let units = self.at(now, length);
        if units > most as f64 {
            (self.units, self.at) = (most as f64, now);
        }
    }

    pub(in crate::shared) fn at(&self, now: NodeTime, length: Duration) -> f64 {
        let passed = now.since(self.at).as_secs_f64();
        self.units * (-4.0 * passed / length.as_secs_f64()).exp()
    }

    /// The demand in whole units.
    pub(in crate::shared) fn units(&self, now: NodeTime, length: Duration) -> u32 {
        self.at(now, length) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
