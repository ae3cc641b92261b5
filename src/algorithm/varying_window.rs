//! Windows whose limit varies by the time of day.
//!
//! L(k) is the limit in force when slice k begins. A fixed window of index k has the limit L(k). The limit
//! of a sliding window of n slices is weighted as its counts are: at e of S microseconds of slice k it is
//! ((S − e)·L(k − n) + S·ΣL(k − n + 1..k − 1) + e·L(k)) / (n·S). The limit and the units in use are
//! fractions that are rounded once, together: rounded apart, admission would flicker where limits fall.

use super::{
    Most, Refund, State, Verdict,
    fixed_window::{FixedWindow, Periods},
    limits_of_day::{LimitPart, LimitsOfDay},
    sliding_window::{Slices, SlidingWindow},
};
use crate::{
    decision::Usage,
    quota::{Algorithm, Priority, Quota},
};

/// A fixed or sliding window whose limit varies. Its counts are those of a window with one limit, which
/// is the largest.
#[derive(Debug, Clone, Copy)]
pub(super) struct VaryingWindow {
    limits: LimitsOfDay,
    /// The most units that a slice can hold: the largest limit that shares it.
    most: u64,
}

#[derive(Debug, Clone, Copy)]
enum WindowCounts {
    Fixed(FixedWindow<Periods>),
    Sliding(SlidingWindow),
}

/// The units in use less the limit, within slices of equal slope: (start + rise · e / S) / n at e
/// microseconds.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: i64,
    rise: i64,
}

impl Line {
    /// The line with `cost` more units in use, and one less than nothing in use: below 0 where they fit.
    const fn after(self, cost: u64, slices: i64) -> Self {
        Self {
            start: self.start + slices * (cost as i64 - 1),
            ..self
        }
    }

    /// The units in use less the limit, rounded down, at `passed` microseconds of a slice.
    const fn at(self, passed: u64, slice: u64, slices: i64) -> i64 {
        let risen = (self.rise as i128 * passed as i128).div_euclid(slice as i128);
        (self.start + risen as i64).div_euclid(slices)
    }

    /// The first microsecond from `from` on at which the line is below 0, of `length` slices.
    fn first_below(self, from: u64, slice: u64, length: u64) -> Option<u64> {
        let start = i128::from(self.start) * i128::from(slice);
        if start + i128::from(self.rise) * i128::from(from) < 0 {
            return Some(from);
        }
        let fall = i128::from(self.rise.checked_neg().filter(|fall| *fall > 0)?);
        let at = u64::try_from(start / fall + 1).ok()?;
        (at < slice.saturating_mul(length)).then_some(at)
    }
}

impl VaryingWindow {
    /// The window of a valid quota; `None` if its limit does not vary.
    pub(super) fn of(quota: &Quota, most: Most) -> Option<Self> {
        let limits = quota.varying_limits()?;
        let slices = match quota.algorithm() {
            Algorithm::SlidingWindow => quota.slice_count(),
            _ => 0,
        };
        let slice = quota.period_nanos() / 1_000 / u64::from(slices.max(1));
        Some(Self {
            limits: LimitsOfDay::of(quota, limits, (slice, slices)),
            most: most.units,
        })
    }

    const fn counts(&self) -> WindowCounts {
        let slice = self.limits.slice;
        match self.limits.slices {
            0 => {
                let periods = Periods(slice * 1_000);
                WindowCounts::Fixed(FixedWindow::of_counts(self.most, periods))
            }
            slices => {
                let window = SlidingWindow::of_counts(self.most, slice, slices as usize);
                WindowCounts::Sliding(window)
            }
        }
    }

    /// The window with the parts of its limits that a class of requests may use.
    pub(super) const fn part(self, class: Priority) -> Self {
        Self {
            limits: self.limits.with(LimitPart::Class(class)),
            ..self
        }
    }

    pub(super) fn verdict(&self, state: &State, now: u64, cost: u64) -> Verdict {
        self.verdict_by(&self.limits, state, now, cost)
    }

    fn verdict_by(&self, limits: &LimitsOfDay, state: &State, now: u64, cost: u64) -> Verdict {
        if cost == 0 || cost <= self.available_by(limits, state, now) {
            return Verdict::FITS;
        }
        if cost > limits.most() {
            return Verdict::Never;
        }
        let wait = match &self.counts() {
            WindowCounts::Fixed(window) => {
                let (current, _) = window.current_until(state.window(), now);
                let first = limits.first_with(cost, current.index);
                first.map(|first| {
                    first
                        .saturating_mul(limits.slice * 1_000)
                        .saturating_sub(now)
                })
            }
            WindowCounts::Sliding(window) => first_fit(window, limits, state.slices(), now, cost),
        };
        wait.map_or(Verdict::Never, Verdict::After)
    }

    /// The units in use less the limit, rounded down.
    fn balance(&self, limits: &LimitsOfDay, state: &State, now: u64) -> i64 {
        match &self.counts() {
            WindowCounts::Fixed(window) => {
                let (current, _) = window.current_until(state.window(), now);
                current.count as i64 - limits.at(current.index) as i64
            }
            WindowCounts::Sliding(window) => {
                let slices = state.slices();
                let (newest, passed) = window.position(slices, now);
                let line = line(window, limits, slices, newest);
                line.at(passed, limits.slice, window.slices as i64)
            }
        }
    }

    fn available_by(&self, limits: &LimitsOfDay, state: &State, now: u64) -> u64 {
        u64::try_from(-self.balance(limits, state, now)).unwrap_or(0)
    }

    pub(super) fn available(&self, state: &State, now: u64) -> u64 {
        self.available_by(&self.limits, state, now)
    }

    /// The limit in force, rounded up, without a soft share and for critical requests.
    fn limit_now(&self, state: &State, now: u64) -> u64 {
        let limits = self.limits.with(LimitPart::Nominal);
        match &self.counts() {
            WindowCounts::Fixed(window) => {
                limits.at(window.current_until(state.window(), now).0.index)
            }
            WindowCounts::Sliding(window) => {
                // A slice that is in force before it begins stays so for a fresh state.
                let (newest, passed) = window.position(state.slices(), now);
                let line = line(window, &limits, &Slices::FRESH, newest);
                let unused = line.at(passed, limits.slice, window.slices as i64);
                u64::try_from(-unused).unwrap_or(0)
            }
        }
    }

    /// The units in use; at least one while anything counts, which is the weight of the state.
    pub(super) fn used(&self, state: &State, now: u64) -> u64 {
        match &self.counts() {
            WindowCounts::Fixed(window) => window.used(state.window(), now),
            WindowCounts::Sliding(window) => {
                let counts = self.reset_after(state, now) > 0;
                window.used(state.slices(), now).max(u64::from(counts))
            }
        }
    }

    /// Nanoseconds until nothing counts. A part of a unit counts, too: a cost may exceed a fraction of
    /// a limit by less than one.
    pub(super) fn reset_after(&self, state: &State, now: u64) -> u64 {
        match &self.counts() {
            WindowCounts::Fixed(window) => window.reset_after(state.window(), now),
            WindowCounts::Sliding(window) => {
                let slices = state.slices();
                let Some(age) = slices.counts.iter().position(|count| *count > 0) else {
                    return 0;
                };
                // A slice before the epoch may count, too.
                let gone = slices.newest + window.slices as u64 + 1;
                window.until(gone.saturating_sub(age as u64), 0, now)
            }
        }
    }

    /// The usage of the nominal limit, and whether it exceeds the limit by the soft share.
    ///
    /// `interval` is T of the largest limit: nanoseconds for one unit.
    pub(super) fn standing(
        &self,
        state: &State,
        now: u64,
        (interval, is_soft): (u64, bool),
    ) -> (Usage, bool) {
        let nominal = self.limits.nominal();
        let balance = self.balance(&nominal, state, now);
        let remaining = u64::try_from(-balance).unwrap_or(0);
        let window = match &self.counts() {
            WindowCounts::Fixed(window) => window.until_end(state.window(), now),
            WindowCounts::Sliding(_) if remaining > 0 => remaining.saturating_mul(interval),
            WindowCounts::Sliding(_) => match self.verdict_by(&nominal, state, now, 1) {
                Verdict::After(wait) => wait,
                Verdict::Fits { .. } => 0,
                // The limit is 0.
                Verdict::Never => interval,
            },
        };
        let limit = self.limit_now(state, now);
        let usage = Usage::varying(limit, remaining, self.reset_after(state, now), window);
        (usage, is_soft && balance > 0)
    }

    /// The most units that fit with a debt of this many.
    pub(super) fn spendable(&self, state: &State, now: u64, debt: u64) -> u64 {
        let balance = self.balance(&self.limits, state, now);
        u64::try_from(debt as i64 - balance).unwrap_or(0)
    }

    /// Adds `cost`, up to the limit and the debt and no further.
    pub(super) fn charge(&self, state: &mut State, now: u64, (cost, debt): (u64, u64)) {
        let units = cost.min(self.spendable(state, now, debt));
        match &self.counts() {
            WindowCounts::Fixed(window) => {
                let (current, _) = window.current_until(state.window(), now);
                *state = State::Window(current.with(current.count + units));
            }
            WindowCounts::Sliding(window) => window.add(state.slices_mut(), now, units),
        }
    }

    pub(super) fn refund(&self, state: &mut State, now: u64, refund: Refund) {
        match &self.counts() {
            WindowCounts::Fixed(window) => {
                *state = State::Window(window.refund(state.window(), now, refund));
            }
            WindowCounts::Sliding(window) => window.refund(state.slices_mut(), now, refund),
        }
    }

    pub(super) fn clamp(&self, state: &mut State, now: u64) {
        match (&self.counts(), state) {
            (WindowCounts::Fixed(fixed), State::Window(window)) => {
                *window = fixed.clamped(*window, now);
            }
            (WindowCounts::Sliding(window), State::Slices(slices)) => window.clamp(slices, now),
            // A state of another algorithm or a fresh one needs no clamp.
            _ => {}
        }
    }

    /// The largest limit, with the part that counts.
    pub(super) fn largest(&self) -> u64 {
        self.limits.most()
    }

    fn least_begins(&self) -> u64 {
        let first = match self.limits.slices {
            0 => 0,
            _ => self.limits.ahead(0),
        };
        let limits = self.limits.with(LimitPart::Nominal);
        (limits.first_with_least(first) - first).saturating_mul(limits.slice * 1_000)
    }

    /// The slices whose counts are kept with the newest; `None` for a fixed window.
    #[cfg(feature = "shared")]
    pub(super) const fn slices(&self) -> Option<usize> {
        match self.limits.slices {
            0 => None,
            slices => Some(slices as usize),
        }
    }
}

/// The nanosecond at which the least limit of a day comes into force for the first time; `None` if the limit is
/// the same all day.
pub(crate) fn least_limit_begins(quota: &Quota) -> Option<u64> {
    VaryingWindow::of(quota, Most::of(quota)).map(|window| window.least_begins())
}

/// The line of a sliding window in one slice. In the following slices it is the same while nothing is
/// counted and no entry begins.
fn line(window: &SlidingWindow, limits: &LimitsOfDay, state: &Slices, index: u64) -> Line {
    let slices = window.slices as u64;
    let ahead = limits.ahead(index);
    let leaving = window.count(state, index, window.slices) as i64;
    let used = window.whole(state, index) as i64 + leaving;
    let count = slices as i64;
    let first = limits.at(ahead - slices) as i64;
    Line {
        start: count * used - limits.sum_before(ahead, slices) as i64,
        rise: first - limits.at(ahead) as i64 - count * leaving,
    }
}

/// The slices from this one on that have one line while nothing is counted.
fn length_of_line(window: &SlidingWindow, limits: &LimitsOfDay, index: u64) -> u64 {
    let ahead = limits.ahead(index);
    // The oldest slice that counts meets the entries one period later.
    let oldest = ahead - window.slices as u64;
    let oldest_changes = limits.next_change(oldest) - oldest;
    (limits.next_change(ahead) - ahead).min(oldest_changes)
}

/// Nanoseconds until `cost` fits if nothing else comes; `None` if it never does. One division for each
/// slice in which something counts, and then for each entry of a day.
fn first_fit(
    window: &SlidingWindow,
    limits: &LimitsOfDay,
    state: &Slices,
    now: u64,
    cost: u64,
) -> Option<u64> {
    let (mut index, mut from) = window.position(state, now);
    let slices = window.slices as u64;
    let first_of = |state: &Slices, index: u64, from: u64, length: u64| {
        let line = line(window, limits, state, index).after(cost, slices as i64);
        let at = line.first_below(from, limits.slice, length)?;
        Some(window.until(index, at, now))
    };
    let last_counted = state.newest.saturating_add(slices).max(index);
    while index <= last_counted {
        if let Some(wait) = first_of(state, index, from, 1) {
            return Some(wait);
        }
        (index, from) = (index + 1, 0);
    }
    let end = limits.end_of_waits(index, now, slices);
    while index < end {
        let length = length_of_line(window, limits, index).min(end - index);
        if let Some(wait) = first_of(&Slices::FRESH, index, 0, length) {
            return Some(wait);
        }
        index += length;
    }
    None
}
