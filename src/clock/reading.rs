//! Both times of one reading of a clock.

use std::time::Duration;

use super::timestamp::Timestamp;

/// The longest time that a charge may lie before the instant of its decision.
const MOST_LATENESS: Duration = Duration::from_millis(5);

/// A reading of a clock: its own time, and the wall's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    pub(crate) now: Timestamp,
    pub(crate) wall: Timestamp,
    /// How many nanoseconds ago the wait of the request ended that is decided at this reading.
    pub(crate) late: u64,
}

impl ClockReading {
    /// A reading of a clock whose time is the wall's.
    pub(crate) const fn alike(now: Timestamp) -> Self {
        Self::new(now, now)
    }

    pub(crate) const fn new(now: Timestamp, wall: Timestamp) -> Self {
        Self { now, wall, late: 0 }
    }

    /// The reading for a request whose timer is this late.
    pub(crate) fn for_timer(self, late: Duration) -> Self {
        let late = late.min(MOST_LATENESS).subsec_nanos().into();
        Self { late, ..self }
    }

    /// Nanoseconds of the clock's own time.
    pub(crate) const fn as_nanos(self) -> u64 {
        self.now.as_nanos()
    }

    /// The reading at another time of the clock, by how the wall is ahead now.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        Self {
            now,
            wall: Timestamp(moved(now.0, self.now.0, self.wall.0)),
            ..self
        }
    }

    /// The nanosecond by the wall of one by the clock. 0, which is fresh or none, stays 0.
    pub(crate) const fn wall_of(self, nanos: u64) -> u64 {
        moved(nanos, self.now.as_nanos(), self.wall.as_nanos())
    }

    /// The nanosecond by the clock of one by the wall. 0, which is fresh or none, stays 0.
    pub(crate) const fn of_wall(self, nanos: u64) -> u64 {
        moved(nanos, self.wall.as_nanos(), self.now.as_nanos())
    }
}

/// `time` by a clock that is at `to` when the other is at `from`.
const fn moved(time: u64, from: u64, to: u64) -> u64 {
    match time {
        0 => 0,
        _ => (time.saturating_add(to.saturating_sub(from))).saturating_sub(from.saturating_sub(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moved_between_both_clocks() {
        let (now, wall) = (Timestamp::from_secs(1_000), Timestamp::from_secs(900));
        let reading = ClockReading::new(now, wall);
        assert_eq!(reading.wall_of(1_000_000_000_001), 900_000_000_001);
        assert_eq!(reading.of_wall(900_000_000_001), 1_000_000_000_001);
        assert_eq!((reading.wall_of(0), reading.of_wall(0)), (0, 0));
        assert_eq!(reading.wall_of(1), 0);
        let before = reading.at(Timestamp::from_secs(950));
        assert_eq!(before.wall, Timestamp::from_secs(850));
    }
}
