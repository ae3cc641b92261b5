//! Units that leases reserve: counted in addition to a state until they are settled.

use std::borrow::Cow;

use super::{CompiledQuota, Rate, State};
use crate::{
    algorithm::{Counts, Refund, Verdict},
    clock::ClockReading,
    decision::{Charge, Usage},
    quota::{Kind, MAX_REFILL_NANOS},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedUnits {
    pub(crate) units: u64,
    /// Nanoseconds in which a bucket refills them, each at the rate under which it was leased.
    pub(crate) nanos: u64,
    /// The instant at which the last of the leases ends.
    pub(crate) until: u64,
}

/// A meter with reserved units.
///
/// Its results are the meter's after a charge of the reserved units. The wait of a denial is computed
/// for a charge at the end of the leases, the latest possible time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WithReserved<'a> {
    pub(crate) meter: &'a CompiledQuota,
    pub(crate) held: Option<ReservedUnits>,
}

impl CompiledQuota {
    /// Charges units of a lease that ends at `end`, even beyond the limit, at `now` or at `end`,
    /// whichever is earlier. `interval` is the nanoseconds of a unit of the bucket when it was leased.
    pub(crate) fn settle(&self, state: &mut State, now: u64, end: u64, units: u64, interval: u64) {
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

    /// The state of a bucket or a fixed window with `more` units in use at `now`, even beyond the limit; with fewer
    /// if that is negative.
    pub(crate) fn moved(&self, state: &State, now: u64, more: i64) -> State {
        let nanos = more.unsigned_abs().saturating_mul(self.interval);
        match &self.rate {
            Rate::Bucket(_) if more <= 0 => State::Instant(state.instant().saturating_sub(nanos)),
            Rate::Bucket(bucket) => {
                let from = bucket.fresh_until(now).max(*state.instant());
                State::Instant(from.saturating_add(nanos.min(MAX_REFILL_NANOS)))
            }
            Rate::FixedWindow(window) => State::Window(window.moved(state.window(), now, more)),
            Rate::SlidingWindow(_) | Rate::SlidingLog(_) => state.clone(),
        }
    }

    /// The state of a fixed window of this count that ends in the microsecond before `end`.
    pub(crate) fn window_until(&self, end: u64, count: u64) -> State {
        match &self.rate {
            Rate::FixedWindow(window) => State::Window(window.until(end, count)),
            _ => State::FRESH,
        }
    }

    /// The latest instant at which a lease may end; a unit that is spent later would count in another
    /// window. `None` if there is no such bound.
    pub(crate) fn lease_end(&self, state: &State, now: u64) -> Option<u64> {
        match &self.rate {
            Rate::Bucket(_) | Rate::SlidingLog(_) => None,
            Rate::FixedWindow(window) => Some(window.window_end(state.window(), now)),
            Rate::SlidingWindow(window) => Some(window.slice_end(state.slices(), now)),
        }
    }

    /// Nanoseconds of a unit, if this is a bucket whose units can be leased.
    pub(crate) fn leased_interval(&self) -> Option<u64> {
        self.keeps_text().then_some(self.interval)
    }

    /// Whether units cannot be leased: they are slots of one queue, or count in windows of the calendar,
    /// which the store does not know.
    pub(crate) fn is_unleased(&self) -> bool {
        match &self.rate {
            Rate::Bucket(_) => !self.keeps_text(),
            Rate::FixedWindow(window) => window.follows_calendar(),
            Rate::SlidingWindow(_) | Rate::SlidingLog(_) => false,
        }
    }

    /// The state after a charge of `held` at `now`, or at `from` for a bucket.
    fn with_held(&self, state: &State, now: u64, from: u64, held: &ReservedUnits) -> State {
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
}

impl WithReserved<'_> {
    /// The state after a charge of the reserved units at `now`.
    fn now<'s>(&self, state: &'s State, now: u64) -> Cow<'s, State> {
        match &self.held {
            None => Cow::Borrowed(state),
            Some(held) => Cow::Owned(self.meter.with_held(state, now, now, held)),
        }
    }

    /// Nanoseconds until the state is fresh, if all reserved units are spent.
    pub(crate) fn reset_after(&self, state: &State, now: u64) -> u64 {
        let Some(held) = &self.held else {
            return self.meter.reset_after(state, now);
        };
        let later = self.meter.with_held(state, now, held.until, held);
        self.meter.reset_after(&later, now) + self.delay(now)
    }

    /// Nanoseconds after now until which reserved units of a log may still be spent.
    fn delay(&self, now: u64) -> u64 {
        match (&self.meter.rate, &self.held) {
            (Rate::SlidingLog(_), Some(held)) => held.until.saturating_sub(now),
            _ => 0,
        }
    }
}

impl Counts for WithReserved<'_> {
    type State = State;

    fn instant(&self, time: ClockReading) -> u64 {
        self.meter.instant(time)
    }

    fn verdict(&self, state: &State, now: u64, cost: u64) -> Verdict {
        let verdict = self.meter.verdict(&self.now(state, now), now, cost);
        let (Verdict::After(_), Some(held)) = (verdict, &self.held) else {
            return verdict;
        };
        let later = self.meter.with_held(state, now, held.until, held);
        match self.meter.verdict(&later, now, cost) {
            Verdict::After(wait) => Verdict::After(wait + self.delay(now)),
            verdict => verdict,
        }
    }

    fn available(&self, state: &State, now: u64) -> u64 {
        self.meter.available(&self.now(state, now), now)
    }

    /// Takes unreserved units only.
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        if self.held.is_none() {
            return self.meter.charge(state, now, cost);
        }
        let cost = cost.min(self.available(state, now));
        if cost > 0 {
            self.meter.charge(state, now, cost);
        }
    }

    fn spendable(&self, state: &State, now: u64) -> u64 {
        self.meter.spendable(&self.now(state, now), now)
    }

    /// Takes unreserved units and the debt only.
    fn spend(&self, state: &mut State, now: u64, cost: u64) {
        if self.held.is_none() {
            return self.meter.spend(state, now, cost);
        }
        let cost = cost.min(self.spendable(state, now));
        if cost > 0 {
            self.meter.spend(state, now, cost);
        }
    }

    fn count(&self, state: &mut State, now: u64, cost: u64) {
        self.meter.count(state, now, cost);
    }

    fn over(&self, state: &State, now: u64, cost: u64) -> Verdict {
        self.meter.over(&self.now(state, now), now, cost)
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        self.meter.made(charged_at, charge)
    }

    fn refund(&self, state: &mut State, now: u64, refund: Refund) {
        self.meter.refund(state, now, refund);
    }

    fn clamp(&self, state: &mut State, now: u64) {
        self.meter.clamp(state, now);
    }

    fn kind(&self) -> Kind {
        self.meter.kind
    }

    fn standing(&self, state: &State, now: u64) -> (Usage, bool) {
        if self.held.is_none() {
            return self.meter.standing(state, now);
        }
        let mut with = self.now(state, now);
        match &self.meter.rate {
            Rate::Bucket(bucket) => {
                let tat = with.to_mut().instant_mut();
                *tat = (*tat).min(bucket.latest(now));
                self.meter.standing(&with, now)
            }
            Rate::FixedWindow(_) => self.meter.standing(&with, now),
            Rate::SlidingWindow(_) | Rate::SlidingLog(_) => {
                let (available, extra) = (self.available(state, now), self.meter.extra);
                let remaining = available.saturating_sub(extra);
                let window = match self.verdict(state, now, extra + 1) {
                    _ if remaining > 0 => remaining.saturating_mul(self.meter.interval),
                    Verdict::After(wait) => wait,
                    Verdict::Fits { .. } => 0,
                    Verdict::Never => self.meter.interval,
                };
                let times = [self.reset_after(state, now), window];
                let usage = Usage::counted(None, remaining, times);
                (usage, available < extra)
            }
        }
    }
}
