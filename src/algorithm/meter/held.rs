//! Units that holders of leases reserve: counted beside a state until they are settled.

use std::borrow::Cow;

use super::{Meter, Rate, State};
use crate::{
    algorithm::{Counts, Refund, Verdict},
    decision::{Charge, Usage},
    quota::Kind,
};

/// The units of one counter that are reserved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) units: u64,
    /// The time in which a bucket gets them back, each at the rate that it was leased by.
    pub(crate) nanos: u64,
    /// The last instant at which one of the leases ends.
    pub(crate) until: u64,
}

/// A meter beside whose states units are held.
///
/// All that it says is what the meter would say if they had been charged. How long a denial lasts
/// is measured on a state in which they are charged when the leases end, which is the latest that
/// can be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) meter: &'a Meter,
    pub(crate) held: Option<Held>,
}

impl Meter {
    /// Charges units of a lease that ends at `end`, whether or not there is room for them: now, or
    /// when the lease ended if that was before. `interval` is the time of a unit of the bucket that
    /// they were leased from.
    pub(crate) fn settle(&self, state: &mut State, now: u64, end: u64, units: u64, interval: u64) {
        let at = end.min(now);
        // The end of a lease may be that of the slice in which its units count.
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

    /// The latest instant at which a lease may end: a unit that is spent later counts elsewhere.
    pub(crate) fn lease_end(&self, state: &State, now: u64) -> Option<u64> {
        match &self.rate {
            Rate::Bucket(_) | Rate::SlidingLog(_) => None,
            Rate::FixedWindow(window) => Some(window.window_end(state.window(), now)),
            Rate::SlidingWindow(window) => Some(window.slice_end(state.slices(), now)),
        }
    }

    /// The time of a unit, of a bucket whose units can be leased.
    pub(crate) fn leased_interval(&self) -> Option<u64> {
        self.keeps_text().then_some(self.interval)
    }

    /// Whether the answers are places in one queue, of which none can be given away.
    pub(crate) fn is_queue(&self) -> bool {
        matches!(&self.rate, Rate::Bucket(_)) && !self.keeps_text()
    }

    /// The state as it would be if `held` were charged when the bucket is at `from`, or now.
    fn with_held(&self, state: &State, now: u64, from: u64, held: &Held) -> State {
        if let Rate::Bucket(bucket) = &self.rate {
            let from = bucket.fresh_until(from).max(bucket.fresh_until(now));
            let charged = (*state.instant()).max(from).saturating_add(held.nanos);
            return State::Instant(charged);
        }
        let mut state = state.clone();
        // Not as a charge, which the limit of one tier would cut.
        self.settle(&mut state, now, now + 1_000, held.units, 0);
        state
    }
}

impl Beside<'_> {
    /// The state with what is held, as it is now.
    fn now<'s>(&self, state: &'s State, now: u64) -> Cow<'s, State> {
        match &self.held {
            None => Cow::Borrowed(state),
            Some(held) => Cow::Owned(self.meter.with_held(state, now, now, held)),
        }
    }

    /// The time until the state is as good as new, if all that is held is spent.
    pub(crate) fn reset_after(&self, state: &State, now: u64) -> u64 {
        let Some(held) = &self.held else {
            return self.meter.reset_after(state, now);
        };
        let later = self.meter.with_held(state, now, held.until, held);
        self.meter.reset_after(&later, now) + self.delay(now)
    }

    /// How much later than now units of a log may be spent, which stay for its period.
    fn delay(&self, now: u64) -> u64 {
        match (&self.meter.rate, &self.held) {
            (Rate::SlidingLog(_), Some(held)) => held.until.saturating_sub(now),
            _ => 0,
        }
    }
}

impl Counts for Beside<'_> {
    type State = State;

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

    /// Takes no unit that is held.
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        if self.held.is_none() {
            return self.meter.charge(state, now, cost);
        }
        let cost = cost.min(self.available(state, now));
        if cost > 0 {
            self.meter.charge(state, now, cost);
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
                let usage = Usage::counted(remaining, self.reset_after(state, now), window);
                (usage, available < extra)
            }
        }
    }
}
