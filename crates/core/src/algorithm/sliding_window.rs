//! The sliding window: counters of slices.

use super::{Most, Refund, RefundOf, Verdict, varying::Limits};
use crate::quota::Quota;

/// Counters of slices of the period. The oldest slice counts in proportion to its overlap with the
/// trailing window, and so do limits that vary.
///
/// Slices are multiples of their length since the epoch. Times in this file are microseconds, because
/// weights are fractions of a slice, and a slice is a whole number of microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlidingWindow {
    pub(super) limits: Limits,
    /// The most units that a slice can hold: the largest limit that shares it.
    most: u64,
    /// The length of a slice in microseconds.
    slice: u64,
    pub(super) slices: usize,
}

/// The number of the newest slice, and the counts of it and the slices before, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slices {
    pub(crate) newest: u64,
    /// One more than a period has slices; empty for a fresh key.
    pub(crate) counts: Vec<u64>,
}

impl Slices {
    /// The state of a key that was never seen.
    pub(crate) const FRESH: Self = Self {
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

/// The units in use less the limit, during slices of one slope: (start + rise · e / S) / n at e of the S
/// microseconds of the first of them, in a window of n slices.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: i128,
    rise: i128,
}

impl Line {
    /// The first microsecond from `from` on, of so many slices, at which the line is below 0.
    fn first_below(self, from: u64, slice: u64, slices: i64) -> Option<u64> {
        let start = self.start * i128::from(slice);
        if start + self.rise * i128::from(from) < 0 {
            return Some(from);
        }
        if self.rise >= 0 {
            return None;
        }
        let at = start / -self.rise + 1;
        (at < i128::from(slice) * i128::from(slices)).then_some(at as u64)
    }
}

impl SlidingWindow {
    pub(super) fn new(quota: &Quota, most: Most) -> Self {
        let slice = quota.slice_nanos() / 1_000;
        Self {
            limits: Limits::of(quota, slice),
            most: most.units,
            slice,
            slices: quota.slice_count() as usize,
        }
    }

    pub(super) const fn with(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The number of the current slice, and the microseconds since its start.
    fn position(&self, state: &Slices, now: u64) -> (u64, u64) {
        let micros = now / 1_000;
        let index = micros / self.slice;
        // The next slice stays in force, as for a fixed window.
        if state.newest == index + 1 {
            return (state.newest, 0);
        }
        (index, micros % self.slice)
    }

    /// The count of the slice that is `age` slices before `newest`.
    fn count(&self, state: &Slices, newest: u64, age: usize) -> u64 {
        // A slice more than one ahead comes from a clock that stepped back; it counts as the current
        // one.
        let passed = newest.saturating_sub(state.newest);
        let at = usize::try_from(passed)
            .ok()
            .and_then(|passed| age.checked_sub(passed));
        let count = at.and_then(|at| state.counts.get(at)).copied();
        count.unwrap_or(0)
    }

    fn line(&self, state: &Slices, newest: u64) -> Line {
        let (slices, index) = (self.slices as i64, newest as i64);
        // No counter exceeds a limit that was in force, so the sum of 1,000 counters cannot overflow.
        let used: u64 = (0..=self.slices)
            .map(|age| self.count(state, newest, age))
            .sum();
        let leaving = self.count(state, newest, self.slices);
        let oldest = self.limits.run(index - slices);
        let (limits, here) = self.limits.sum(oldest, index);
        Line {
            start: i128::from(slices) * i128::from(used) - limits,
            rise: self.rise(oldest.limit, here.limit, leaving),
        }
    }

    /// How the line rises while a count leaves, and the limit of the oldest slice for that of the newest.
    fn rise(&self, oldest: u64, here: u64, leaving: u64) -> i128 {
        i128::from(oldest) - i128::from(here) - self.slices as i128 * i128::from(leaving)
    }

    /// The units in use less the limit, rounded down.
    pub(super) fn balance(&self, state: &Slices, now: u64) -> i64 {
        let (newest, passed) = self.position(state, now);
        self.balance_at(state, newest, passed)
    }

    fn balance_at(&self, state: &Slices, newest: u64, passed: u64) -> i64 {
        let Line { start, rise } = self.line(state, newest);
        let (slice, slices) = (i128::from(self.slice), self.slices as i128);
        (start * slice + rise * i128::from(passed)).div_euclid(slices * slice) as i64
    }

    /// The limit in force, rounded up, without a soft share and for critical requests; `None` if it is always the same.
    pub(super) fn limit_now(&self, state: &Slices, now: u64) -> Option<u64> {
        let limits = self.limits.of_all()?;
        // A slice that is in force before it begins stays so for a fresh state.
        let (newest, passed) = self.position(state, now);
        let unused = (self.with(limits)).balance_at(&Slices::FRESH, newest, passed);
        Some(u64::try_from(-unused).unwrap_or(0))
    }

    /// The units in use; at least one while a part of one counts against a limit that is a fraction, too.
    pub(super) fn used(&self, state: &Slices, now: u64) -> u64 {
        let used = self.with(Limits::Same(0)).balance(state, now);
        let used = u64::try_from(used).unwrap_or(0);
        match self.limits {
            Limits::OfDay(_) => used.max(u64::from(self.reset_after(state, now) > 0)),
            Limits::Same(_) => used,
        }
    }

    pub(super) fn verdict(&self, state: &Slices, now: u64, cost: u64) -> Verdict {
        if cost > self.limits.most() {
            return Verdict::Never;
        }
        if cost == 0 || cost <= self.available(state, now) {
            return Verdict::FITS;
        }
        let wait = self.first_fit(state, now, cost);
        wait.map_or(Verdict::Never, Verdict::After)
    }

    /// Nanoseconds until `cost` fits if nothing else comes, which may be several slices ahead, or days if limits vary;
    /// `None` if it never does.
    fn first_fit(&self, state: &Slices, now: u64, cost: u64) -> Option<u64> {
        let (newest, mut from) = self.position(state, now);
        let slices = self.slices as i64;
        let (first, mut index) = (newest as i64, newest as i64);
        let end = self
            .limits
            .end_of_waits((now / 1_000 / self.slice) as i64, slices);
        let mut line = self.line(state, newest);
        // With the cost, and one less than nothing in use.
        line.start += i128::from(slices) * (i128::from(cost) - 1);
        let [mut oldest, mut here] = [index - slices, index].map(|index| self.limits.run(index));
        while index < end {
            let same =
                (oldest.end.saturating_sub(index - slices)).min(here.end.saturating_sub(index));
            let length = if index <= first + slices { 1 } else { same };
            if let Some(at) = line.first_below(from, self.slice, length.min(end - index)) {
                return Some(self.until(index as u64, at, now));
            }
            line.start += line.rise * i128::from(length);
            (index, from) = (index.saturating_add(length), 0);
            if index - slices >= oldest.end {
                oldest = self.limits.run(index - slices);
            }
            if index >= here.end {
                here = self.limits.run(index);
            }
            let age = usize::try_from(first + slices - index);
            let leaving = age.map_or(0, |age| self.count(state, newest, age));
            line.rise = self.rise(oldest.limit, here.limit, leaving);
        }
        None
    }

    /// Nanoseconds from now to `at` microseconds into slice `index`.
    fn until(&self, index: u64, at: u64, now: u64) -> u64 {
        let instant = index.saturating_mul(self.slice).saturating_add(at);
        instant.saturating_mul(1_000).saturating_sub(now)
    }

    pub(super) fn available(&self, state: &Slices, now: u64) -> u64 {
        u64::try_from(-self.balance(state, now)).unwrap_or(0)
    }

    /// Nanoseconds until the last count weighs nothing. Against a limit that is a fraction a part of a unit weighs, too:
    /// a cost may exceed it by less than one.
    pub(super) fn reset_after(&self, state: &Slices, now: u64) -> u64 {
        if self.limits.vary() {
            let Some(age) = state.counts.iter().position(|count| *count > 0) else {
                return 0;
            };
            let gone = state.newest + self.slices as u64 + 1;
            return self.until(gone.saturating_sub(age as u64), 0, now);
        }
        let empty = self.with(Limits::Same(0));
        if empty.balance(state, now) == 0 {
            return 0;
        }
        empty.first_fit(state, now, 0).unwrap_or(0)
    }

    /// Nanoseconds until the newest slice has left the window, whatever it counts.
    pub(super) fn lasts(&self, state: &Slices, now: u64) -> u64 {
        if state.counts.is_empty() {
            return 0;
        }
        let newest = state.newest.min(self.position(state, now).0);
        self.until(newest + self.slices as u64 + 1, 0, now)
    }

    /// Adds `cost`, up to the limit and no further.
    pub(super) fn charge(&self, state: &mut Slices, now: u64, cost: u64) {
        let room = self.available(state, now);
        self.add(state, now, cost.min(room));
    }

    fn add(&self, state: &mut Slices, now: u64, units: u64) {
        self.advance(state, now);
        state.counts[0] += units;
        state.freshen();
    }

    /// Refunds the charged slice, if it still counts.
    pub(super) fn refund(&self, state: &mut Slices, now: u64, refund: Refund) {
        self.advance(state, now);
        let charged = match refund.of {
            RefundOf::At(charged_at, _) => charged_at / 1_000 / self.slice,
            RefundOf::Newest => state.newest,
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
    pub(super) fn slice_end(&self, state: &Slices, now: u64) -> u64 {
        let (newest, _) = self.position(state, now);
        now.saturating_add(self.until(newest + 1, 0, now))
    }

    /// Counts units of a lease in the slice that was in force at `at`, if that slice still counts. They
    /// may exceed the limit, if they were leased under a larger one.
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

    /// Counts `more` units in the slice in force, even beyond the limit; removes the newest if that is negative.
    pub(super) fn moved(&self, state: &mut Slices, now: u64, more: i64) {
        let mut fewer = more.min(0).unsigned_abs();
        for count in &mut state.counts {
            let less = fewer.min(*count);
            (*count, fewer) = (*count - less, fewer - less);
        }
        if more > 0 {
            self.settle(state, now, more.unsigned_abs());
        }
    }
}
