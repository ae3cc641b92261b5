//! `Meter`: a quota compiled to numbers ready to count, as a `View` shows it to an operation, and the
//! text of its states in a store.

use std::borrow::Cow;

use super::{
    Bucket, EvictionWeight, Fading, Held, Most, Refund, TokenBucket, Verdict, View,
    fixed_window::FixedWindow, sliding_log::SlidingLog, sliding_window::SlidingWindow,
    varying::Limits,
};
use crate::{
    clock::ClockReading,
    decision::{Charge, Status},
    quota::{Algorithm, Kind, Priority, Quota},
};

use super::state::State;

/// A valid quota with all numbers that its algorithm needs. Compiled once for each quota, not for each
/// decision.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    pub(super) rate: Rate,
    pub(crate) kind: Kind,
    /// T: nanoseconds for one unit.
    interval: u64,
    /// The soft share in units.
    extra: u64,
    /// The units beyond the limit that a key may owe.
    debt: u64,
    /// Whether it is the part of a quota that a class of requests may use.
    is_part: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Rate {
    Bucket(Bucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
}

impl Rate {
    fn new(quota: &Quota, most: Most) -> Self {
        if let Some(bucket) = Bucket::new(quota, most) {
            return Self::Bucket(bucket);
        }
        match quota.algorithm() {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota, most)),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota, most)),
            _ => Self::SlidingLog(SlidingLog::new(quota)),
        }
    }

    /// The largest limit of a window or log; 0 for a bucket, which bounds its time itself.
    fn most(&self) -> u64 {
        match self {
            Self::Bucket(_) => 0,
            Self::FixedWindow(window) => window.limits.most(),
            Self::SlidingWindow(window) => window.limits.most(),
            Self::SlidingLog(log) => log.limit,
        }
    }

    /// A copy of a window or log with other limits.
    fn with(self, change: impl Fn(Limits) -> Limits) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.with(change(window.limits))),
            Self::SlidingWindow(window) => Self::SlidingWindow(window.with(change(window.limits))),
            Self::SlidingLog(log) => {
                Self::SlidingLog(log.with_limit(change(Limits::Same(log.limit)).most()))
            }
            bucket @ Self::Bucket(_) => bucket,
        }
    }
}

impl Meter {
    /// The meter of a valid quota, for a key that is locked. `most` is the largest value of the
    /// counter, which other quotas may share.
    pub fn new(quota: &Quota, most: Most) -> Self {
        let rate = Rate::new(quota, most);
        // A request's own quota may leave less room for a debt.
        let room = most.units.saturating_sub(rate.most());
        Self {
            debt: if quota.can_spend() {
                quota.debt_units().min(room)
            } else {
                0
            },
            rate,
            kind: quota.kind(),
            // An uncapped window may have a limit with an interval of 0.
            interval: quota.interval_nanos().max(1),
            extra: quota.extra(),
            is_part: false,
        }
    }

    /// The meter of a lone bucket.
    pub(crate) const fn of_bucket(bucket: Bucket) -> Self {
        Self {
            kind: bucket.kind(),
            interval: bucket.interval(),
            rate: Rate::Bucket(bucket),
            extra: 0,
            debt: 0,
            is_part: false,
        }
    }

    /// Nanoseconds until the state is fresh.
    fn reset_after_state(&self, state: &State, now: u64) -> u64 {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.reset_after(*state.instant(), now),
            Rate::FixedWindow(window) => window.reset_after(state.window(), now),
            Rate::SlidingWindow(window) => window.reset_after(state.slices(), now),
            Rate::SlidingLog(log) => log.reset_after(state.log(), now),
        }
    }

    /// Nanoseconds within which a client gets at most `remaining` units.
    fn effective_window(&self, state: &State, now: u64, remaining: u64) -> u64 {
        if let Rate::FixedWindow(window) = &self.rate {
            return window.until_end(state.window(), now);
        }
        if remaining > 0 {
            return remaining.saturating_mul(self.interval);
        }
        match self.verdict_of_any(state, now, self.extra + 1) {
            Verdict::After(wait) => wait,
            Verdict::Fits { .. } => 0,
            // The limit is 0.
            Verdict::Never => self.interval,
        }
    }

    /// The units beyond the limit that a key may owe.
    pub const fn debt(&self) -> u64 {
        self.debt
    }

    /// The index of the window of the calendar at an instant; `None` if the quota follows none.
    pub fn window_index(&self, at: u64) -> Option<u64> {
        match &self.rate {
            Rate::FixedWindow(window) => window.index_in_calendar(at),
            _ => None,
        }
    }

    /// The index of the window before that of `now`, and the instants at which it and the four after it
    /// begin; `None` if it counts in no fixed windows.
    pub fn windows_around(&self, now: u64) -> Option<(u64, [u64; 5])> {
        match &self.rate {
            Rate::FixedWindow(window) => Some(window.around(now)),
            _ => None,
        }
    }

    /// The usage that is lost with the state, by the clock that does not step.
    #[inline]
    pub(crate) fn eviction_weight(&self, state: &State, time: ClockReading) -> EvictionWeight {
        let now = time.as_nanos();
        if self.token().is_some() {
            let used = state.instant().saturating_sub(now);
            return EvictionWeight::new(now.saturating_add(used), used, Fading::Flows);
        }
        self.eviction_weight_of_any(state, time)
    }

    #[inline(never)]
    fn eviction_weight_of_any(&self, state: &State, time: ClockReading) -> EvictionWeight {
        let now = self.instant(time);
        let fresh_at = (time.as_nanos()).saturating_add(self.reset_after_state(state, now));
        let units = match &self.rate {
            Rate::Bucket(bucket) => {
                let used = bucket.used(*state.instant(), now);
                return EvictionWeight::new(fresh_at, used, Fading::Flows);
            }
            Rate::FixedWindow(window) => window.used(state.window(), now),
            Rate::SlidingWindow(window) => window.used(state.slices(), now),
            Rate::SlidingLog(log) => log.used(state.log(), now),
        };
        let hold = match &self.rate {
            // Long logs are not summed up twice.
            Rate::SlidingLog(log) if units < log.limit => Fading::Counts,
            Rate::SlidingLog(_) => Fading::Exhausted,
            _ if self.available(state, now, View::WHOLE) == 0 => Fading::Exhausted,
            _ => Fading::Counts,
        };
        // The time in which the units return at the quota's mean rate.
        EvictionWeight::new(fresh_at, units.saturating_mul(self.interval), hold)
    }
}

/// The hot functions for quotas of any kind. Those of the usual token bucket are inlined.
impl Meter {
    #[inline]
    pub const fn token(&self) -> Option<&TokenBucket> {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.even(),
            _ => None,
        }
    }

    /// The instant at which the quota counts, in nanoseconds: by the wall for windows, otherwise by the clock
    /// that does not step.
    #[inline]
    pub(crate) fn instant(&self, time: ClockReading) -> u64 {
        match &self.rate {
            Rate::Bucket(_) | Rate::SlidingLog(_) => time.now.as_nanos(),
            _ => time.wall.as_nanos(),
        }
    }

    #[inline]
    pub fn verdict(&self, state: &State, now: u64, cost: u64, view: View<'_>) -> Verdict {
        if !view.is_whole() {
            return self.verdict_in(state, now, cost, view);
        }
        match self.token() {
            Some(bucket) => bucket.verdict(*state.instant(), now, cost),
            None => self.verdict_of_any(state, now, cost),
        }
    }

    /// Takes `cost`, down to exhaustion and no further, by a request whose wait ended `late` nanoseconds ago. A bucket
    /// that was full then gains nothing while the timer is late, so it is charged as of that instant.
    #[inline]
    pub fn charge(&self, state: &mut State, now: u64, late: u64, cost: u64, view: View<'_>) {
        if !view.is_whole() {
            return self.charge_in(state, now, late, cost, view);
        }
        match (self.token(), state) {
            (Some(bucket), State::Instant(tat)) => bucket.charge_late(tat, now, late, cost),
            (_, state) => self.charge_of_any(state, now, late, cost),
        }
    }

    /// Moves a state that is too far ahead back to now. A denial and a peek write nothing else. If they
    /// did not write this, the key would stay locked out until the clock has caught up.
    #[inline]
    pub fn clamp(&self, state: &mut State, now: u64) {
        match (self.token(), state) {
            (Some(bucket), State::Instant(tat)) => bucket.clamp(tat, now),
            (_, state) => self.clamp_of_any(state, now),
        }
    }

    /// The numbers of the quota for a decision, after this verdict.
    #[inline(always)]
    pub fn explain(&self, state: &State, now: u64, verdict: Verdict, view: View<'_>) -> Status {
        verdict.explain(self.status(state, now, view))
    }

    /// The numbers of the nominal limit.
    #[inline]
    pub fn status(&self, state: &State, now: u64, view: View<'_>) -> Status {
        if !view.is_whole() {
            return self.status_in(state, now, view);
        }
        match self.token() {
            Some(bucket) => bucket.status(bucket.used(*state.instant(), now), now),
            None => self.status_of_any(state, now),
        }
    }

    /// The most units that fit, including the soft share.
    #[inline]
    pub fn available(&self, state: &State, now: u64, view: View<'_>) -> u64 {
        if !view.is_whole() {
            return self.available_in(state, now, view);
        }
        match &self.rate {
            Rate::Bucket(bucket) => bucket.available(*state.instant(), now),
            Rate::FixedWindow(window) => window.available(state.window(), now),
            Rate::SlidingWindow(window) => window.available(state.slices(), now),
            Rate::SlidingLog(log) => log.available(state.log(), now),
        }
    }

    #[inline(never)]
    fn verdict_of_any(&self, state: &State, now: u64, cost: u64) -> Verdict {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.verdict(*state.instant(), now, cost),
            Rate::FixedWindow(window) => window.verdict(state.window(), now, cost),
            Rate::SlidingWindow(window) => window.verdict(state.slices(), now, cost),
            Rate::SlidingLog(log) => log.verdict(state.log(), now, cost),
        }
    }

    #[inline(never)]
    fn charge_of_any(&self, state: &mut State, now: u64, late: u64, cost: u64) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.charge(state.instant_mut(), now, late, cost),
            Rate::FixedWindow(window) => {
                *state = State::Window(window.charge(state.window(), now, cost));
            }
            Rate::SlidingWindow(window) => window.charge(state.slices_mut(), now, cost),
            Rate::SlidingLog(log) => log.charge(state.log_mut(), now, cost),
        }
    }

    #[inline(never)]
    fn clamp_of_any(&self, state: &mut State, now: u64) {
        match (&self.rate, state) {
            (Rate::Bucket(bucket), State::Instant(instant)) => bucket.clamp(instant, now),
            (Rate::FixedWindow(fixed), State::Window(window)) => {
                *window = fixed.clamped(*window, now);
            }
            (Rate::SlidingWindow(window), State::Slices(slices)) => window.clamp(slices, now),
            (Rate::SlidingLog(sliding), State::Log(log)) => sliding.clamp(log, now),
            // A state of another algorithm or a fresh one needs no clamp.
            _ => {}
        }
    }

    #[inline(never)]
    fn status_of_any(&self, state: &State, now: u64) -> Status {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.status(*state.instant(), now),
            Rate::FixedWindow(window) if !self.is_part && !window.limits.vary() => {
                window.status(state.window(), now, self.extra)
            }
            _ => {
                let nominal = self.nominal();
                let left = nominal.available(state, now, View::WHOLE);
                let window = nominal.effective_window(state, now, left);
                let limit = match &nominal.rate {
                    Rate::Bucket(_) | Rate::SlidingLog(_) => None,
                    Rate::FixedWindow(window) => window.limit_now(state.window(), now),
                    Rate::SlidingWindow(window) => window.limit_now(state.slices(), now),
                };
                let is_beyond = || match &nominal.rate {
                    Rate::Bucket(_) => false,
                    Rate::FixedWindow(window) => window.is_beyond(state.window(), now),
                    Rate::SlidingWindow(window) => window.balance(state.slices(), now) > 0,
                    Rate::SlidingLog(log) => log.used(state.log(), now) > log.limit,
                };
                let status = Status::counted(left, self.reset_after_state(state, now), window);
                status
                    .of_limit(limit)
                    .in_excess(self.extra > 0 && is_beyond())
            }
        }
    }

    /// The quota without its soft share.
    fn nominal(&self) -> Self {
        Self {
            rate: self.rate.with(|limits| limits.nominal(self.extra)),
            extra: 0,
            ..*self
        }
    }

    /// The quota with its debt added to the limit.
    fn with_debt(&self) -> Self {
        Self {
            rate: match self.rate {
                Rate::Bucket(bucket) => Rate::Bucket(bucket.with_debt()),
                window => window.with(|limits| limits.plus(self.debt)),
            },
            ..*self
        }
    }
}

impl Meter {
    /// The most units that can be spent: those that fit of critical requests, and the debt.
    pub(crate) fn spendable(&self, state: &State, now: u64, view: View<'_>) -> u64 {
        (self.with_debt()).available(&self.seen(state, now, view), now, View::WHOLE)
    }

    /// Takes `cost` that was used already, whatever the class: down to the end of the debt and no further. Of units that are
    /// held it takes none.
    pub fn spend(&self, state: &mut State, now: u64, cost: u64, view: View<'_>) {
        let cost = match view.held {
            None => cost,
            Some(_) => cost.min(self.spendable(state, now, view)),
        };
        if cost > 0 {
            (self.with_debt()).charge(state, now, 0, cost, View::WHOLE);
        }
    }

    /// Adds `cost` to an uncapped window. Not called for other quotas.
    pub(crate) fn count(&self, state: &mut State, now: u64, cost: u64) {
        if let Rate::FixedWindow(window) = &self.rate {
            *state = State::Window(window.count(state.window(), now, cost));
        }
    }

    /// The verdict on a `cost` that an uncapped window has counted already.
    pub fn over(&self, state: &State, now: u64, cost: u64, view: View<'_>) -> Verdict {
        match &self.rate {
            Rate::FixedWindow(window) => {
                window.over(self.seen(state, now, view).window(), now, cost)
            }
            _ => Verdict::Never,
        }
    }

    /// Whether the quota in force could have made this charge at `charged_at` nanoseconds. A bucket
    /// whose rate has changed since, or that is smaller than the charge, has been moved or clamped, so
    /// its units may be gone already.
    pub fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        match &self.rate {
            _ if charge.kind != self.kind => false,
            Rate::Bucket(bucket) => bucket.made(charged_at, charge),
            _ => true,
        }
    }

    pub(crate) fn refund(&self, state: &mut State, now: u64, refund: Refund) {
        match &self.rate {
            Rate::Bucket(bucket) => bucket.refund(state.instant_mut(), now, refund),
            Rate::FixedWindow(window) => {
                *state = State::Window(window.refund(state.window(), now, refund));
            }
            Rate::SlidingWindow(window) => window.refund(state.slices_mut(), now, refund),
            Rate::SlidingLog(log) => log.refund(state.log_mut(), now, refund),
        }
    }
}

impl Meter {
    /// The quota with the capacity that a class may use.
    fn part(&self, class: Priority) -> Self {
        if class.is_critical() {
            return *self;
        }
        Self {
            rate: match self.rate {
                Rate::Bucket(bucket) => Rate::Bucket(bucket.part(class)),
                window => window.with(|limits| limits.part(class, self.extra)),
            },
            // A soft share is for critical requests.
            extra: 0,
            is_part: true,
            ..*self
        }
    }

    /// The state after a charge of `held` at `now`, or at `from` for a bucket.
    fn with_held(&self, state: &State, now: u64, from: u64, held: &Held) -> State {
        if let Rate::Bucket(bucket) = &self.rate {
            let from = bucket.fresh_until(from).max(bucket.fresh_until(now));
            let charged = (*state.instant()).max(from).saturating_add(held.nanos);
            return State::Instant(charged);
        }
        let mut state = state.clone();
        // `settle` instead of `charge`, which stops at the limit of one tier.
        self.settle(&mut state, now, now + 1_000, held.units, 0);
        state
    }

    /// The state after a charge of the held units at `now`.
    pub(super) fn seen<'s>(&self, state: &'s State, now: u64, view: View<'_>) -> Cow<'s, State> {
        match view.held {
            None => Cow::Borrowed(state),
            Some(held) => Cow::Owned(self.with_held(state, now, now, held)),
        }
    }

    /// Nanoseconds after now until which held units of a log may still be spent.
    fn delay(&self, now: u64, held: &Held) -> u64 {
        match &self.rate {
            Rate::SlidingLog(_) => held.until.saturating_sub(now),
            _ => 0,
        }
    }

    /// Nanoseconds until the state is fresh, if all held units are spent.
    pub fn reset_after(&self, state: &State, now: u64, view: View<'_>) -> u64 {
        let Some(held) = view.held else {
            return self.reset_after_state(state, now);
        };
        let later = self.with_held(state, now, held.until, held);
        self.reset_after_state(&later, now) + self.delay(now, held)
    }

    #[inline(never)]
    fn verdict_in(&self, state: &State, now: u64, cost: u64, view: View<'_>) -> Verdict {
        let part = self.part(view.class);
        let verdict = |state: &State| part.verdict(state, now, cost, View::WHOLE);
        let at_once = verdict(&self.seen(state, now, view));
        let (Verdict::After(_), Some(held)) = (at_once, view.held) else {
            return at_once;
        };
        match verdict(&self.with_held(state, now, held.until, held)) {
            Verdict::After(wait) => Verdict::After(wait + self.delay(now, held)),
            verdict => verdict,
        }
    }

    /// Takes units that are not held only.
    #[inline(never)]
    fn charge_in(&self, state: &mut State, now: u64, late: u64, cost: u64, view: View<'_>) {
        let cost = match view.held {
            None => cost,
            Some(_) => cost.min(self.available(state, now, view)),
        };
        if cost > 0 {
            (self.part(view.class)).charge(state, now, late, cost, View::WHOLE);
        }
    }

    #[inline(never)]
    fn available_in(&self, state: &State, now: u64, view: View<'_>) -> u64 {
        let part = self.part(view.class);
        part.available(&self.seen(state, now, view), now, View::WHOLE)
    }

    #[inline(never)]
    fn status_in(&self, state: &State, now: u64, view: View<'_>) -> Status {
        let part = self.part(view.class);
        if view.held.is_none() {
            return part.status(state, now, View::WHOLE);
        }
        let mut with = self.seen(state, now, view);
        match &self.rate {
            Rate::Bucket(bucket) => {
                let tat = with.to_mut().instant_mut();
                *tat = (*tat).min(bucket.latest(now));
                part.status(&with, now, View::WHOLE)
            }
            Rate::FixedWindow(_) => part.status(&with, now, View::WHOLE),
            Rate::SlidingWindow(_) | Rate::SlidingLog(_) => {
                let (available, extra) = (self.available(state, now, view), part.extra);
                let left = available.saturating_sub(extra);
                let window = match self.verdict(state, now, extra + 1, view) {
                    _ if left > 0 => left.saturating_mul(self.interval),
                    Verdict::After(wait) => wait,
                    Verdict::Fits { .. } => 0,
                    Verdict::Never => self.interval,
                };
                let status = Status::counted(left, self.reset_after(state, now, view), window);
                status.in_excess(available < extra)
            }
        }
    }

    /// Charges units of a lease that ends at `end`, even beyond the limit, at `now` or at `end`,
    /// whichever is earlier. `interval` is the nanoseconds of a unit of the bucket when it was leased.
    pub fn settle(&self, state: &mut State, now: u64, end: u64, units: u64, interval: u64) {
        let at = end.min(now);
        // The end of a lease may be the end of the slice in which its units count.
        let within = end.saturating_sub(1_000).min(now);
        match &self.rate {
            Rate::Bucket(bucket) => {
                let tat = state.instant_mut();
                let charged = (*tat).max(bucket.fresh_until(at));
                let charged = charged.saturating_add(units.saturating_mul(interval));
                *tat = charged.min(bucket.latest(at)).max(*tat);
            }
            Rate::FixedWindow(window) => {
                *state = State::Window(window.settle(state.window(), within, units));
            }
            Rate::SlidingWindow(window) => window.settle(state.slices_mut(), within, units),
            Rate::SlidingLog(log) => log.settle(state.log_mut(), now, at, units),
        }
    }
}

impl Meter {
    /// The state with `more` units in use at `now`, even beyond the limit; with fewer if that is negative.
    pub fn moved(&self, state: &State, now: u64, more: i64) -> State {
        let mut state = state.clone();
        match &self.rate {
            Rate::Bucket(bucket) => {
                *state.instant_mut() = bucket.moved(*state.instant(), now, more);
            }
            Rate::FixedWindow(window) => {
                state = State::Window(window.moved(state.window(), now, more))
            }
            Rate::SlidingWindow(window) => window.moved(state.slices_mut(), now, more),
            Rate::SlidingLog(log) => log.moved(state.log_mut(), now, more),
        }
        state
    }

    /// The state as a node keeps it, after an operation that left it with this status: held units are used, and a log is
    /// as short as its numbers.
    pub fn kept(&self, state: Cow<'_, State>, now: u64, view: View<'_>, status: &Status) -> State {
        if self.has_bytes()
            && let part = self.part(view.class)
            && let Rate::SlidingLog(log) = part.nominal().rate
        {
            return State::Log(Box::new(log.in_short(now, status, part.extra)));
        }
        let Some(held) = view.held else {
            return state.into_owned();
        };
        let mut seen = self.with_held(&state, now, now, held);
        self.clamp(&mut seen, now);
        seen
    }

    /// The status of a log for a class, from the numbers in a script's reply: the units in use, and the times until all have
    /// left the period and, if no unit is free, until one is.
    pub fn status_of_log(
        &self,
        class: Priority,
        [used, reset_after, until_next]: [u64; 3],
    ) -> Status {
        let part = self.part(class);
        let limit = part.rate.most() - part.extra;
        let left = limit.saturating_sub(used);
        let window = match left {
            _ if limit == 0 => self.interval,
            0 => until_next,
            left => left.saturating_mul(self.interval),
        };
        Status::counted(left, reset_after, window).in_excess(part.extra > 0 && used > limit)
    }

    /// The latest instant at which a lease may end; a unit that is spent later would count in another
    /// window. `None` if there is no such bound.
    pub fn lease_end(&self, state: &State, now: u64) -> Option<u64> {
        match &self.rate {
            Rate::Bucket(_) | Rate::SlidingLog(_) => None,
            Rate::FixedWindow(window) => Some(window.window_end(state.window(), now)),
            Rate::SlidingWindow(window) => Some(window.slice_end(state.slices(), now)),
        }
    }

    /// Whether requests of the class may use a soft share.
    pub fn has_extra(&self, class: Priority) -> bool {
        self.extra > 0 && class.is_critical()
    }

    /// Nanoseconds of a unit, if this is a bucket whose units can be leased.
    pub fn leased_interval(&self) -> Option<u64> {
        self.keeps_text().then_some(self.interval)
    }

    /// Whether units cannot be leased: they are slots of one queue, or count in windows of the calendar,
    /// which the store does not know.
    pub fn is_unleased(&self) -> bool {
        match &self.rate {
            Rate::Bucket(_) => !self.keeps_text(),
            Rate::FixedWindow(window) => window.follows_calendar(),
            Rate::SlidingWindow(_) | Rate::SlidingLog(_) => false,
        }
    }
}
