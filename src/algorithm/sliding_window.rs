//! The sliding window: counters of slices.

use super::{Charged, Most, Refund, Verdict};
use crate::quota::Quota;

/// Counters of slices of the period. The oldest slice counts in proportion to its overlap with the
/// trailing window.
///
/// Slices are multiples of their length since the epoch. Times in this file are microseconds, because
/// weights are fractions of a slice, and a slice is a whole number of microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlidingWindow {
    pub(super) limit: u64,
    /// The most units that a slice can hold: the largest limit that shares it.
    most: u64,
    /// The length of a slice in microseconds.
    slice: u64,
    pub(super) slices: usize,
}

/// The number of the newest slice, and the counts of it and the slices before, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slices {
    pub(super) newest: u64,
    /// One more than a period has slices; empty for a fresh key.
    pub(super) counts: Vec<u64>,
}

impl Slices {
    /// The state of a key that was never seen.
    pub(super) const FRESH: Self = Self {
        newest: 0,
        counts: Vec::new(),
    };

    /// Slices without counts are fresh, whatever the newest slice is.
    fn freshen(&mut self) {
        if self.counts.iter().all(|count| *count == 0) {
            *self = Self::FRESH;
        }
    }
}

impl SlidingWindow {
    /// The window with this limit.
    pub(super) const fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The counts of a window whose limit varies, in slices of this many microseconds.
    pub(super) const fn of_counts(most: u64, slice: u64, slices: usize) -> Self {
        Self {
            limit: most,
            most,
            slice,
            slices,
        }
    }

    pub(super) fn new(quota: &Quota, most: Most) -> Self {
        let slices = quota.slice_count();
        Self {
            limit: quota.capacity() + quota.extra(),
            most: most.units,
            slice: quota.period_nanos() / 1_000 / u64::from(slices),
            slices: slices as usize,
        }
    }

    /// The number of the current slice, and the microseconds since its start.
    pub(super) fn position(&self, state: &Slices, now: u64) -> (u64, u64) {
        let micros = now / 1_000;
        let index = micros / self.slice;
        // The next slice stays in force, as for a fixed window.
        if state.newest == index + 1 {
            return (state.newest, 0);
        }
        (index, micros % self.slice)
    }

    /// The count of the slice that is `age` slices before `newest`.
    pub(super) fn count(&self, state: &Slices, newest: u64, age: usize) -> u64 {
        // A slice more than one ahead comes from a clock that stepped back; it counts as the current
        // one.
        let passed = newest.saturating_sub(state.newest);
        let at = usize::try_from(passed)
            .ok()
            .and_then(|passed| age.checked_sub(passed));
        let count = at.and_then(|at| state.counts.get(at)).copied();
        count.unwrap_or(0)
    }

    fn weighted(&self, count: u64, passed: u64) -> u64 {
        let left = u128::from(self.slice - passed);
        (u128::from(count) * left / u128::from(self.slice)) as u64
    }

    /// The units in use at `passed` microseconds into slice `newest`.
    fn used_at(&self, state: &Slices, newest: u64, passed: u64) -> u64 {
        let oldest = self.count(state, newest, self.slices);
        self.whole(state, newest) + self.weighted(oldest, passed)
    }

    /// The units that count fully during slice `newest`. No counter exceeds a limit that was in force,
    /// so the sum of 1,000 counters cannot overflow.
    pub(super) fn whole(&self, state: &Slices, newest: u64) -> u64 {
        (0..self.slices)
            .map(|age| self.count(state, newest, age))
            .sum()
    }

    /// The units in use.
    pub(super) fn used(&self, state: &Slices, now: u64) -> u64 {
        let (newest, passed) = self.position(state, now);
        self.used_at(state, newest, passed)
    }

    pub(super) fn verdict(&self, state: &Slices, now: u64, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        if cost == 0 || cost <= self.available(state, now) {
            return Verdict::FITS;
        }
        Verdict::After(self.first_fit(state, now, self.limit - cost))
    }

    /// Nanoseconds until at most `room` units are in use; may be several slices ahead.
    fn first_fit(&self, state: &Slices, now: u64, room: u64) -> u64 {
        let (newest, passed) = self.position(state, now);
        let mut whole = self.whole(state, newest);
        for ahead in 0..=self.slices {
            // In each later slice the oldest slice that counted fully begins to leave.
            let oldest = self.count(state, newest, self.slices - ahead);
            whole -= if ahead > 0 { oldest } else { 0 };
            let from = if ahead > 0 { 0 } else { passed };
            let Some(room) = room.checked_sub(whole) else {
                continue;
            };
            let at = self.weighs_at_most(oldest, room).max(from);
            if at < self.slice {
                return self.until(newest + ahead as u64, at, now);
            }
        }
        self.until(newest + self.slices as u64 + 1, 0, now)
    }

    /// Microseconds of a slice after which `count` weighs at most `room`:
    /// ⌊count · left / slice⌋ ≤ room exactly if count · left < (room + 1) · slice.
    fn weighs_at_most(&self, count: u64, room: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        let slice = u128::from(self.slice);
        let left = ((u128::from(room) + 1) * slice - 1) / u128::from(count);
        (slice - left.min(slice)) as u64
    }

    /// Nanoseconds from now to `at` microseconds into slice `index`.
    pub(super) fn until(&self, index: u64, at: u64, now: u64) -> u64 {
        let instant = index.saturating_mul(self.slice).saturating_add(at);
        instant.saturating_mul(1_000).saturating_sub(now)
    }

    pub(super) fn available(&self, state: &Slices, now: u64) -> u64 {
        self.limit.saturating_sub(self.used(state, now))
    }

    /// Nanoseconds until the last count weighs nothing.
    pub(super) fn reset_after(&self, state: &Slices, now: u64) -> u64 {
        if self.used(state, now) == 0 {
            return 0;
        }
        self.first_fit(state, now, 0)
    }

    /// Adds `cost`, up to the limit and no further.
    pub(super) fn charge(&self, state: &mut Slices, now: u64, cost: u64) {
        let room = self.available(state, now);
        self.add(state, now, cost.min(room));
    }

    /// Counts units in the current slice.
    pub(super) fn add(&self, state: &mut Slices, now: u64, units: u64) {
        self.advance(state, now);
        state.counts[0] += units;
        state.freshen();
    }

    /// Refunds the charged slice, if it still counts.
    pub(super) fn refund(&self, state: &mut Slices, now: u64, refund: Refund) {
        self.advance(state, now);
        let charged = match refund.of {
            Charged::At(charged_at, _) => charged_at / 1_000 / self.slice,
            Charged::Newest => state.newest,
        };
        let age = state.newest.checked_sub(charged);
        let age = age.and_then(|age| usize::try_from(age).ok());
        if let Some(count) = age.and_then(|age| state.counts.get_mut(age)) {
            *count = count.saturating_sub(refund.cost);
        }
        state.freshen();
    }

    /// Makes the current slice the newest.
    fn advance(&self, state: &mut Slices, now: u64) {
        let (newest, _) = self.position(state, now);
        if state.newest == newest && !state.counts.is_empty() {
            return;
        }
        let counts = (0..=self.slices).map(|age| self.count(state, newest, age));
        *state = Slices {
            counts: counts.collect(),
            newest,
        };
    }

    /// Moves slices to the current one, if they are too far ahead because the clock stepped back.
    /// Lowers counts above the limit, which come from a larger quota.
    pub(super) fn clamp(&self, state: &mut Slices, now: u64) {
        let (newest, _) = self.position(state, now);
        if state.newest > newest {
            self.advance(state, now);
        }
        for count in &mut state.counts {
            *count = (*count).min(self.most);
        }
    }

    /// The end of the slice in force, in nanoseconds since the epoch.
    #[cfg(feature = "shared")]
    pub(super) fn slice_end(&self, state: &Slices, now: u64) -> u64 {
        let (newest, _) = self.position(state, now);
        now.saturating_add(self.until(newest + 1, 0, now))
    }

    /// Counts units of a lease in the slice that was in force at `at`, if that slice still counts. They
    /// may exceed the limit, if they were leased under a larger one.
    #[cfg(feature = "shared")]
    pub(super) fn settle(&self, state: &mut Slices, at: u64, units: u64) {
        let (index, _) = self.position(state, at);
        if state.counts.is_empty() || state.newest < index {
            self.advance(state, at);
        }
        let age = usize::try_from(state.newest - index).ok();
        if let Some(count) = age.and_then(|age| state.counts.get_mut(age)) {
            *count = count.saturating_add(units).min(self.most).max(*count);
        }
    }
}
