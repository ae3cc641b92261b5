//! The wall clock beside a monotone clock: how much it is ahead, which changes only by steps.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{reading::ClockReading, timestamp::Timestamp};

/// The most microseconds that both clocks may differ without a step. Less than that is their drift.
const STEP: u64 = 2_000_000;

/// Microseconds between two readings of the wall clock.
const BETWEEN_LOOKS: u64 = 1_000_000;

/// How much the wall clock is ahead of a monotone clock that began at its time.
///
/// It changes when the wall clock was set, and when the machine slept: then the monotone clock stood still.
#[derive(Debug, Default)]
pub(super) struct Anchor {
    /// How many microseconds the wall clock is ahead.
    ahead: AtomicI64,
    /// The microsecond of the monotone clock at which the wall clock is read again; the last one
    /// there is while a thread looks.
    next_look: AtomicU64,
}

impl Anchor {
    pub(super) const fn new() -> Self {
        Self {
            ahead: AtomicI64::new(0),
            next_look: AtomicU64::new(0),
        }
    }

    /// The wall clock's time at `now`. `look` reads both clocks, once a second at most.
    #[inline]
    pub(super) fn wall(&self, now: Timestamp, look: impl FnOnce() -> ClockReading) -> Timestamp {
        if now.0 >= self.next_look.load(Ordering::Relaxed) {
            self.look(now, look);
        }
        Timestamp(now.0.saturating_add_signed(self.ahead()))
    }

    /// How many microseconds the wall clock was ahead at the last look.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    #[cold]
    fn look(&self, now: Timestamp, look: impl FnOnce() -> ClockReading) {
        let due = self.next_look.load(Ordering::Relaxed);
        let (order, looking) = (Ordering::Relaxed, u64::MAX);
        let begin = || (self.next_look).compare_exchange(due, looking, order, order);
        if now.0 < due || begin().is_err() {
            return;
        }
        let ClockReading { now, wall, .. } = look();
        let ahead = wall.0.wrapping_sub(now.0).cast_signed();
        if ahead.abs_diff(self.ahead()) > STEP {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
        let next = now.0.saturating_add(BETWEEN_LOOKS);
        self.next_look.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const HOUR: u64 = 3_600_000_000;
    const START: u64 = 500_000 * HOUR;

    /// Both clocks at some microseconds after the start, the wall that much ahead.
    struct Clocks {
        anchor: Anchor,
        looks: Cell<u32>,
    }

    impl Clocks {
        fn new() -> Self {
            let clocks = Self {
                anchor: Anchor::new(),
                looks: Cell::new(0),
            };
            assert_eq!(clocks.ahead(0, 0), 0);
            clocks
        }

        /// How much the wall's time is ahead, when in truth it is `really`.
        fn ahead(&self, passed: u64, really: i64) -> i64 {
            let now = START + passed;
            let wall = self.anchor.wall(Timestamp(now), || {
                self.looks.set(self.looks.get() + 1);
                ClockReading::new(Timestamp(now), Timestamp(now.saturating_add_signed(really)))
            });
            wall.0.wrapping_sub(now).cast_signed()
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_is_followed_at_the_next_look() {
        for step in [20, -20, 72, -72].map(|hours: i64| hours * HOUR.cast_signed()) {
            let clocks = Clocks::new();
            assert_eq!(clocks.ahead(999_999, step), 0);
            assert_eq!(clocks.ahead(1_000_000, step), step);
            assert_eq!(clocks.ahead(1_500_000, 0), step);
            assert_eq!(clocks.ahead(2_000_000, 0), 0, "and back");
        }
    }

    #[test]
    fn a_sleep_counts_for_the_wall() {
        let clocks = Clocks::new();
        let slept = 8 * HOUR.cast_signed();
        // The monotone clock stood still.
        assert_eq!(clocks.ahead(1_000_001, slept), slept);
    }

    #[test]
    fn drift_is_no_step() {
        let clocks = Clocks::new();
        for second in 1..=10_u64 {
            let drift = second.cast_signed() * 200_000;
            assert_eq!(clocks.ahead(second * 1_000_000, drift), 0);
            assert_eq!(clocks.ahead(second * 1_000_000, -drift), 0);
        }
        assert_eq!(clocks.ahead(11_000_000, 2_000_001), 2_000_001);
        assert_eq!(clocks.ahead(12_000_000, 1), 2_000_001);
    }

    #[test]
    fn the_wall_clock_is_looked_at_once_a_second_at_most() {
        let clocks = Clocks::new();
        for passed in 0..10_000 {
            clocks.ahead(passed * 1_000, 0);
        }
        assert_eq!(clocks.looks.get(), 10);
        // And it is read again after a time that is far ahead.
        let far = Timestamp(u64::MAX - 1);
        let now = Timestamp(START);
        let looked = clocks.anchor.wall(far, || ClockReading::alike(now));
        assert_eq!(looked, far);
        assert_eq!(clocks.ahead(1_000_000, 5_000_000), 5_000_000);
    }

    #[test]
    fn a_thread_that_finds_another_looking_takes_the_last_time() {
        let clocks = Clocks::new();
        let (now, later) = (Timestamp(START + 1_000_000), Timestamp(START + HOUR));
        let wall = clocks.anchor.wall(now, || {
            assert_eq!(clocks.anchor.wall(now, || unreachable!("one looks")), now);
            ClockReading::new(now, later)
        });
        assert_eq!(wall, later);
    }
}
