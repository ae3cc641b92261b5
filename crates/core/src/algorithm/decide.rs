//! Decides operations on one quota or on several, from the functions of each algorithm.

use std::{cmp::Ordering, time::Duration};

use super::{Held, Meter, Refund, RefundOf, State, Verdict, View};
use crate::{
    clock::ClockReading,
    decision::{OpRef, Outcome, Receipt},
    quota::{MAX_COUNT, Priority},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The units taken.
    pub charged: u64,
    /// Whether only the class of the request caused the denial: critical requests fit.
    pub shed: bool,
}

impl Judgement {
    #[inline]
    pub fn outcome(&self) -> Outcome {
        match self.verdict {
            Verdict::Fits { wait: 0 } => Outcome::Allowed,
            Verdict::Fits { wait } => Outcome::Delayed(Duration::from_micros(wait.div_ceil(1_000))),
            Verdict::After(_) | Verdict::Never => Outcome::Denied,
        }
    }
}

/// The index of a counter among the states of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterIndex(pub usize);

/// The states that the quotas of a key count on, wherever they are.
pub trait States {
    /// The state of the quota at `place`. Those that count the responses follow.
    fn state(&mut self, place: usize) -> &mut State;
}

/// The only state of a key.
impl States for State {
    #[inline(always)]
    fn state(&mut self, _: usize) -> &mut State {
        self
    }
}

/// The quotas of one key, with the states that they count on. Operations write the verdict of each
/// quota to `verdicts`.
#[derive(Debug)]
pub struct Counters<'a, S> {
    pub meters: &'a [Meter],
    pub states: &'a mut S,
    /// The place of the first quota's state.
    pub(crate) first: usize,
    pub(crate) time: ClockReading,
    /// The class of the requests.
    pub class: Priority,
    /// The units of each quota that leases hold; empty if there are no leases.
    pub held: &'a [Option<Held>],
}

impl<S: States> Counters<'_, S> {
    /// Applies `op`.
    ///
    /// Several quotas are charged together or not at all: if one denies, none is charged. Blocks are the
    /// caller's.
    #[inline]
    pub(crate) fn decide(&mut self, op: OpRef<'_>, verdicts: &mut [Verdict]) -> Judgement {
        self.clamp();
        match op {
            OpRef::Acquire(cost) | OpRef::Reserve(cost) => self.take(cost, verdicts),
            OpRef::AcquireUpTo(most) => {
                let available = self.available_clamped();
                self.take(most.min(available.max(1)), verdicts)
            }
            OpRef::Peek(cost) | OpRef::Deny(cost) => self.judge_clamped(cost, verdicts),
            OpRef::Hit(cost) => self.hit(cost, verdicts),
            OpRef::Spend(cost) => self.charge_used(cost, verdicts),
            OpRef::Count(cost) => self.count((cost).min(MAX_COUNT), verdicts),
            OpRef::Refund(cost, receipt) => {
                self.refund(cost, receipt);
                self.judge_clamped(0, verdicts)
            }
            OpRef::Settle(cost, receipt) => self.settle(cost, receipt, verdicts),
            OpRef::Block(_) => self.judge_clamped(0, verdicts),
            OpRef::Reset => {
                self.each(|_, state, _, _| *state = State::FRESH);
                self.judge_clamped(0, verdicts)
            }
        }
    }

    /// The joint verdict on `cost`; nothing is taken. `verdicts` may be empty if the verdict of each quota
    /// is not read, or the only quota's is the joint one.
    #[inline(always)]
    pub fn judge(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Verdict {
        let mut all = Verdict::FITS;
        // A loop, which is inlined as a closure is not.
        for (place, meter) in self.meters.iter().enumerate() {
            let now = meter.instant(self.time);
            let state = self.states.state(self.first + place);
            meter.clamp(state, now);
            let view = View::of(self.class, self.held, place);
            let verdict = meter.verdict(state, now, cost, view);
            if let Some(own) = verdicts.get_mut(place) {
                *own = verdict;
            }
            all = all.and(verdict);
        }
        all
    }

    /// Whether only the class of a request causes this denial of `cost`: critical requests fit.
    #[inline(always)]
    pub(crate) fn sheds(&mut self, verdict: Verdict, cost: u64) -> bool {
        let is_denied_class = !self.class.is_critical() && !verdict.fits();
        is_denied_class && self.fits_whole(cost)
    }

    #[inline(never)]
    fn fits_whole(&mut self, cost: u64) -> bool {
        let (mut all, class) = (true, Priority::CRITICAL);
        self.each(|meter, state, now, view| {
            let view = View { class, ..view };
            all &= meter.verdict(state, now, cost, view).fits();
        });
        all
    }

    /// Takes `cost`, whether or not it fits, down to exhaustion and no further.
    #[inline(always)]
    pub fn charge(&mut self, cost: u64) {
        if cost > 0 {
            let late = self.time.late;
            self.each(|meter, state, now, view| meter.charge(state, now, late, cost, view));
        }
    }

    #[inline]
    fn clamp(&mut self) {
        self.each(|meter, state, now, _| meter.clamp(state, now));
    }

    #[inline]
    fn take(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Judgement {
        let mut judgement = self.judge_clamped(cost, verdicts);
        if judgement.verdict.fits() {
            self.charge(cost);
            judgement.charged = cost;
        }
        judgement
    }

    #[inline]
    fn hit(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Judgement {
        let mut judgement = self.judge_clamped(cost, verdicts);
        judgement.charged = cost.min(self.available_clamped());
        self.charge(cost);
        // A request that passes regardless of the limit does not wait in a queue.
        if judgement.verdict.fits() {
            judgement.verdict = Verdict::FITS;
        }
        judgement
    }

    /// Takes `cost` that was used already. The judgement is that of a hit.
    fn charge_used(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Judgement {
        let mut judgement = self.judge_clamped(cost, verdicts);
        judgement.charged = self.spend(cost);
        if judgement.verdict.fits() {
            judgement.verdict = Verdict::FITS;
        }
        judgement
    }

    /// Adds `cost`; the verdict is a denial if a count then exceeds its limit.
    fn count(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Judgement {
        if cost > 0 {
            self.each(|meter, state, now, _| meter.count(state, now, cost));
        }
        let mut judgement = self.judge_by(
            |meter, state, now, view| meter.over(state, now, cost, view),
            verdicts,
        );
        judgement.charged = cost;
        judgement
    }

    /// Corrects the charge to `cost`. The judgement's charge is the units taken beyond the receipt's.
    fn settle(&mut self, cost: u64, receipt: &Receipt, verdicts: &mut [Verdict]) -> Judgement {
        let charged = receipt.charged();
        let taken = match cost.cmp(&charged) {
            Ordering::Less => {
                self.refund(charged - cost, Some(receipt));
                0
            }
            Ordering::Equal => 0,
            Ordering::Greater => self.spend(cost - charged),
        };
        let mut judgement = self.judge_clamped(0, verdicts);
        judgement.charged = taken;
        judgement
    }

    /// Takes `cost` that was used already, whatever the class. Returns the units taken.
    fn spend(&mut self, cost: u64) -> u64 {
        if cost == 0 {
            return 0;
        }
        let taken = cost.min(self.least(Meter::spendable));
        self.each(|meter, state, now, view| meter.spend(state, now, cost, view));
        taken
    }

    /// Refunds at most the receipt's charge, to counters that still count with the same numbers.
    fn refund(&mut self, cost: u64, receipt: Option<&Receipt>) {
        let time = self.time;
        let cost = receipt.map_or(cost, |receipt| cost.min(receipt.charged()));
        if cost == 0 {
            return;
        }
        let Some(receipt) = receipt else {
            let of = RefundOf::Newest;
            return self.each(|meter, state, now, _| meter.refund(state, now, Refund { cost, of }));
        };
        let charged_at = time.at(receipt.charged_at());
        let mut charges = receipt.charges().iter();
        self.each(|meter, state, now, _| {
            let charged_at = meter.instant(charged_at);
            if let Some(charge) = charges.next().filter(|one| meter.made(charged_at, one)) {
                let of = RefundOf::At(charged_at, *charge);
                meter.refund(state, now, Refund { cost, of });
            }
        });
    }

    /// The joint judgement to a charge of `cost`, and whether only the class of the request denies it.
    #[inline]
    fn judge_clamped(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Judgement {
        let mut judgement = self.judge_by(
            |meter, state, now, view| meter.verdict(state, now, cost, view),
            verdicts,
        );
        judgement.shed = self.sheds(judgement.verdict, cost);
        judgement
    }

    #[inline]
    fn judge_by(
        &mut self,
        verdict: impl Fn(&Meter, &State, u64, View<'_>) -> Verdict,
        verdicts: &mut [Verdict],
    ) -> Judgement {
        let (mut all, mut places) = (Verdict::FITS, verdicts.iter_mut());
        self.each(|meter, state, now, view| {
            let verdict = verdict(meter, state, now, view);
            if let Some(place) = places.next() {
                *place = verdict;
            }
            all = all.and(verdict);
        });
        Judgement {
            verdict: all,
            charged: 0,
            shed: false,
        }
    }

    /// The most units that fit every quota.
    pub fn available(&mut self) -> u64 {
        self.clamp();
        self.available_clamped()
    }

    #[inline]
    fn available_clamped(&mut self) -> u64 {
        self.least(Meter::available)
    }

    /// The least of the units that each quota has.
    #[inline]
    fn least(&mut self, units: impl Fn(&Meter, &State, u64, View<'_>) -> u64) -> u64 {
        let mut least = u64::MAX;
        self.each(|meter, state, now, view| least = least.min(units(meter, state, now, view)));
        least
    }

    #[inline(always)]
    fn each(&mut self, mut change: impl FnMut(&Meter, &mut State, u64, View<'_>)) {
        for (place, meter) in self.meters.iter().enumerate() {
            let view = View::of(self.class, self.held, place);
            let state = self.states.state(self.first + place);
            change(meter, state, meter.instant(self.time), view);
        }
    }
}
