//! The kind of counter that a quota needs: quotas of one kind can share a counter.

use super::{Algorithm, Quota};

/// The kind of a counter: equal for two quotas that can share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u32);

impl Kind {
    /// The kind of a quota that a user's limiter counts.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    pub(crate) const fn of_number(number: u32) -> Self {
        Self(number)
    }
}

impl Quota {
    /// Whether both quotas can share a counter: algorithm, period, calendar, slices, refill step and
    /// the numbers in the counter's name are equal, and both limits vary or none does. The zone in which a limit varies is not that of
    /// its counter, whose slices are in UTC.
    #[doc(hidden)]
    pub fn counts_like(&self, other: &Self) -> bool {
        self.counter_mark == other.counter_mark
            && self.shape() == other.shape()
            && self.calendar() == other.calendar()
    }

    /// The kind of the quota's counter, as a number for receipts.
    pub(crate) fn kind(&self) -> Kind {
        let (algorithm, period, slices, step) = self.shape();
        let numbers = [algorithm, slices, period as u64, step as u64];
        let shape = numbers.into_iter().fold(0x811c_9dc5, |hash, number| {
            // FNV-1a, four bytes at a time: it needs to distinguish a few configurations only.
            let halves = [number as u32, (number >> 32) as u32];
            halves.iter().fold(hash, |hash: u32, half| {
                (hash ^ half).wrapping_mul(0x0100_0193).rotate_left(13)
            })
        });
        let calendar = self.calendar().map_or(0, |calendar| calendar.digest());
        Kind(shape ^ self.counter_mark ^ calendar)
    }

    /// The letter of the algorithm, the period in nanoseconds, the slices, and the refill step in
    /// nanoseconds, 0 for none.
    fn shape(&self) -> (u64, u128, u64, u128) {
        let algorithm = match self.algorithm() {
            Algorithm::TokenBucket => b't',
            Algorithm::LeakyBucket { .. } => b'l',
            Algorithm::FixedWindow if self.varying.is_some() => b'w',
            Algorithm::FixedWindow => b'f',
            // Its counters are fresh later than those of a limit that does not vary.
            Algorithm::SlidingWindow if self.varying.is_some() => b'v',
            Algorithm::SlidingWindow => b's',
            Algorithm::SlidingLog => b'g',
        };
        (
            u64::from(algorithm),
            self.period().as_nanos(),
            u64::from(self.slice_count()),
            self.refill_step().unwrap_or_default().as_nanos(),
        )
    }

    /// The numbers that distinguish counters, except the limit's own.
    pub(crate) fn shape_numbers(&self) -> [u64; 4] {
        let (algorithm, period, slices, step) = self.shape();
        let digest = self.calendar().map_or(0, |calendar| calendar.digest());
        let calendar = u64::from(digest) << 32;
        [algorithm | calendar, period as u64, slices, step as u64]
    }
}
