//! A quota as a `View` shows it to an operation, and units that leases hold.

use std::borrow::Cow;

use super::{Meter, Rate, State};
use crate::{
    algorithm::{Held, Verdict, View},
    decision::Status,
    quota::Priority,
};

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
    pub(super) fn verdict_in(&self, state: &State, now: u64, cost: u64, view: View<'_>) -> Verdict {
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
    pub(super) fn charge_in(
        &self,
        state: &mut State,
        now: u64,
        late: u64,
        cost: u64,
        view: View<'_>,
    ) {
        let cost = match view.held {
            None => cost,
            Some(_) => cost.min(self.available(state, now, view)),
        };
        if cost > 0 {
            (self.part(view.class)).charge(state, now, late, cost, View::WHOLE);
        }
    }

    #[inline(never)]
    pub(super) fn available_in(&self, state: &State, now: u64, view: View<'_>) -> u64 {
        let part = self.part(view.class);
        part.available(&self.seen(state, now, view), now, View::WHOLE)
    }

    #[inline(never)]
    pub(super) fn status_in(&self, state: &State, now: u64, view: View<'_>) -> Status {
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
