//! Decides operations on one quota or on several, from the functions of each algorithm.

use std::{cmp::Ordering, slice, time::Duration};

use super::{Refund, RefundOf, Verdict};
use crate::{
    clock::ClockReading,
    decision::Op,
    decision::{Charge, Measure, Outcome, Receipt, Usage},
    quota::{Kind, MAX_COUNT, Priority},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// The units taken.
    pub(crate) charged: u64,
    /// Whether only the class of the request caused the denial: critical requests fit.
    pub(crate) shed: bool,
}

impl Answer {
    #[inline]
    pub(crate) fn outcome(&self) -> Outcome {
        match self.verdict {
            Verdict::Fits { wait: 0 } => Outcome::Allowed,
            Verdict::Fits { wait } => Outcome::Delayed(Duration::from_micros(wait.div_ceil(1_000))),
            Verdict::After(_) | Verdict::Never => Outcome::Denied,
        }
    }
}

/// A quota that counts on the state of a key. A trait, so that the code for a lone bucket is compiled to
/// that bucket's arithmetic.
pub(crate) trait Counts {
    /// The state of a key; the default is fresh.
    type State: Default;

    /// The instant at which the quota counts, in nanoseconds: by the wall for windows, otherwise by the clock
    /// that does not step.
    #[inline]
    fn instant(&self, time: ClockReading) -> u64 {
        time.as_nanos()
    }

    /// The class of requests that the quota measures.
    #[inline]
    fn class(&self) -> Priority {
        Priority::CRITICAL
    }

    fn verdict(&self, state: &Self::State, now: u64, cost: u64) -> Verdict;

    #[inline]
    fn whole_verdict(&self, state: &Self::State, now: u64, cost: u64) -> Verdict {
        self.verdict(state, now, cost)
    }

    /// The most units that fit, including the soft share.
    fn available(&self, state: &Self::State, now: u64) -> u64;

    /// The most units that can be spent: those that fit of critical requests, and the debt.
    #[inline]
    fn spendable(&self, state: &Self::State, now: u64) -> u64 {
        self.available(state, now)
    }

    /// Takes `cost`, down to exhaustion and no further.
    fn charge(&self, state: &mut Self::State, now: u64, cost: u64);

    /// [`charge`](Self::charge) of a cost that fits, by a request whose wait ended `late` nanoseconds ago. A bucket
    /// that was full then gains nothing while the timer is late, so it is charged as of that instant.
    #[inline]
    fn charge_late(&self, state: &mut Self::State, now: u64, late: u64, cost: u64) {
        let _ = late;
        self.charge(state, now, cost);
    }

    /// Takes `cost` that was used already, whatever the class: down to the end of the debt and no further.
    #[inline]
    fn spend(&self, state: &mut Self::State, now: u64, cost: u64) {
        self.charge(state, now, cost);
    }

    /// Adds `cost` to an uncapped window. Not called for other quotas.
    fn count(&self, _: &mut Self::State, _now: u64, _cost: u64) {}

    /// The verdict on a `cost` that an uncapped window has counted already.
    fn over(&self, _: &Self::State, _now: u64, _cost: u64) -> Verdict {
        Verdict::Never
    }

    /// Whether the quota in force could have made this charge at `charged_at` nanoseconds. A bucket
    /// whose rate has changed since, or that is smaller than the charge, has been moved or clamped, so
    /// its units may be gone already.
    fn made(&self, _charged_at: u64, charge: &Charge) -> bool {
        charge.kind == self.kind()
    }

    fn refund(&self, state: &mut Self::State, now: u64, refund: Refund);

    /// Moves a state that is too far ahead back to now. A denial and a peek write nothing else. If they
    /// did not write this, the key would stay locked out until the clock has caught up.
    fn clamp(&self, state: &mut Self::State, now: u64);

    fn kind(&self) -> Kind;

    /// The usage of the nominal limit, and whether it exceeds the limit.
    fn standing(&self, state: &Self::State, now: u64) -> (Usage, bool);

    /// The numbers of the quota for a decision, after this verdict.
    #[inline]
    fn measure(&self, state: &Self::State, now: u64, verdict: Verdict) -> Measure {
        let (standing, excess) = self.standing(state, now);
        Measure {
            kind: self.kind(),
            denied: !verdict.fits(),
            retry_after: match verdict {
                Verdict::After(wait) => Some(wait),
                Verdict::Fits { .. } | Verdict::Never => None,
            },
            standing,
            excess,
        }
    }
}

/// The class of requests that these quotas of one operation measure.
#[inline]
pub(crate) fn class_of<M: Counts>(meters: &[M]) -> Priority {
    meters.first().map_or(Priority::CRITICAL, M::class)
}

/// The index of a counter among the states of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterIndex(pub(crate) usize);

/// The quotas of one key, with the states that they count on. Operations write the verdict of each
/// quota to `verdicts`.
pub(crate) struct Tally<'a, M: Counts> {
    pub(crate) meters: &'a [M],
    pub(crate) counters: &'a [CounterIndex],
    pub(crate) states: &'a mut [M::State],
    pub(crate) time: ClockReading,
}

impl<'a, M: Counts> Tally<'a, M> {
    #[inline]
    pub(crate) const fn of_one(meter: &'a M, state: &'a mut M::State, time: ClockReading) -> Self {
        Self {
            meters: slice::from_ref(meter),
            counters: &[CounterIndex(0)],
            states: slice::from_mut(state),
            time,
        }
    }

    /// Applies `op`.
    ///
    /// Several quotas are charged together or not at all: if one denies, none is charged. Blocks are the
    /// caller's.
    #[inline]
    pub(crate) fn decide(&mut self, op: &Op, verdicts: &mut [Verdict]) -> Answer {
        self.clamp();
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) => self.take(*cost, verdicts),
            Op::AcquireUpTo(most) => {
                self.take((*most).min(self.available_clamped().max(1)), verdicts)
            }
            Op::Peek(cost) | Op::Deny(cost) => self.judge_clamped(*cost, verdicts),
            Op::Hit(cost) => self.hit(*cost, verdicts),
            Op::Spend(cost) => self.charge_used(*cost, verdicts),
            Op::Count(cost) => self.count((*cost).min(MAX_COUNT), verdicts),
            Op::Refund(cost, receipt) => {
                self.refund(*cost, receipt.as_ref());
                self.judge_clamped(0, verdicts)
            }
            Op::Settle(cost, receipt) => self.settle(*cost, receipt, verdicts),
            Op::Block(_) => self.judge_clamped(0, verdicts),
            Op::Reset => {
                self.each(|_, state, _| *state = M::State::default());
                self.judge_clamped(0, verdicts)
            }
        }
    }

    /// The joint verdict on `cost`; nothing is taken. `verdicts` may be empty if the verdict of each quota
    /// is not read, or the only quota's is the joint one.
    #[inline]
    pub(crate) fn judge(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Verdict {
        let mut all = Verdict::FITS;
        let mut verdicts = verdicts.iter_mut();
        self.each(|meter, state, now| {
            meter.clamp(state, now);
            let verdict = meter.verdict(state, now, cost);
            if let Some(own) = verdicts.next() {
                *own = verdict;
            }
            all = all.and(verdict);
        });
        all
    }

    /// Whether only the class of a request causes this denial of `cost`: critical requests fit.
    #[inline]
    pub(crate) fn sheds(&self, verdict: Verdict, cost: u64) -> bool {
        let fits_whole = |(meter, counter): (&M, &CounterIndex)| {
            let whole =
                meter.whole_verdict(&self.states[counter.0], meter.instant(self.time), cost);
            whole.fits()
        };
        let mut counted = self.meters.iter().zip(self.counters);
        !class_of(self.meters).is_critical() && !verdict.fits() && counted.all(fits_whole)
    }

    /// Takes `cost`, whether or not it fits, down to exhaustion and no further.
    #[inline]
    pub(crate) fn charge(&mut self, cost: u64) {
        if cost > 0 {
            let late = self.time.late;
            self.each(|meter, state, now| meter.charge_late(state, now, late, cost));
        }
    }

    #[inline]
    fn clamp(&mut self) {
        self.each(|meter, state, now| meter.clamp(state, now));
    }

    #[inline]
    fn take(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Answer {
        let mut answer = self.judge_clamped(cost, verdicts);
        if answer.verdict.fits() {
            self.charge(cost);
            answer.charged = cost;
        }
        answer
    }

    #[inline]
    fn hit(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Answer {
        let mut answer = self.judge_clamped(cost, verdicts);
        answer.charged = cost.min(self.available_clamped());
        self.charge(cost);
        // A request that passes regardless of the limit does not wait in a queue.
        if answer.verdict.fits() {
            answer.verdict = Verdict::FITS;
        }
        answer
    }

    /// Takes `cost` that was used already. The answer is that of a hit.
    fn charge_used(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Answer {
        let mut answer = self.judge_clamped(cost, verdicts);
        answer.charged = self.spend(cost);
        if answer.verdict.fits() {
            answer.verdict = Verdict::FITS;
        }
        answer
    }

    /// Adds `cost`; the verdict is a denial if a count then exceeds its limit.
    fn count(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Answer {
        if cost > 0 {
            self.each(|meter, state, now| meter.count(state, now, cost));
        }
        let over = |meter: &M, state: &_, now| meter.over(state, now, cost);
        let mut answer = self.judge_by(over, verdicts);
        answer.charged = cost;
        answer
    }

    /// Corrects the charge to `cost`. The answer's charge is the units taken beyond the receipt's.
    fn settle(&mut self, cost: u64, receipt: &Receipt, verdicts: &mut [Verdict]) -> Answer {
        let charged = receipt.charged();
        let taken = match cost.cmp(&charged) {
            Ordering::Less => {
                self.refund(charged - cost, Some(receipt));
                0
            }
            Ordering::Equal => 0,
            Ordering::Greater => self.spend(cost - charged),
        };
        let mut answer = self.judge_clamped(0, verdicts);
        answer.charged = taken;
        answer
    }

    /// Takes `cost` that was used already, whatever the class. Returns the units taken.
    fn spend(&mut self, cost: u64) -> u64 {
        if cost == 0 {
            return 0;
        }
        let taken = cost.min(self.least(M::spendable));
        self.each(|meter, state, now| meter.spend(state, now, cost));
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
            return self.each(|meter, state, now| meter.refund(state, now, Refund { cost, of }));
        };
        let charged_at = time.at(receipt.charged_at());
        let counted = self.meters.iter().zip(self.counters);
        for ((meter, counter), charge) in counted.zip(receipt.charges()) {
            let (now, charged_at) = (meter.instant(time), meter.instant(charged_at));
            if meter.made(charged_at, charge) {
                let of = RefundOf::At(charged_at, *charge);
                meter.refund(&mut self.states[counter.0], now, Refund { cost, of });
            }
        }
    }

    /// The joint answer to a charge of `cost`, and whether only the class of the request denies it.
    #[inline]
    fn judge_clamped(&mut self, cost: u64, verdicts: &mut [Verdict]) -> Answer {
        let verdict = |meter: &M, state: &_, now| meter.verdict(state, now, cost);
        let mut answer = self.judge_by(verdict, verdicts);
        answer.shed = self.sheds(answer.verdict, cost);
        answer
    }

    #[inline]
    fn judge_by(
        &self,
        verdict: impl Fn(&M, &M::State, u64) -> Verdict,
        verdicts: &mut [Verdict],
    ) -> Answer {
        let mut all = Verdict::FITS;
        let counted = self.meters.iter().zip(self.counters);
        for ((meter, counter), place) in counted.zip(verdicts) {
            let verdict = verdict(meter, &self.states[counter.0], meter.instant(self.time));
            *place = verdict;
            all = all.and(verdict);
        }
        Answer {
            verdict: all,
            charged: 0,
            shed: false,
        }
    }

    /// The most units that fit every quota.
    pub(crate) fn available(&mut self) -> u64 {
        self.clamp();
        self.available_clamped()
    }

    #[inline]
    fn available_clamped(&self) -> u64 {
        self.least(M::available)
    }

    /// The least of the units that each quota has.
    #[inline]
    fn least(&self, units: impl Fn(&M, &M::State, u64) -> u64) -> u64 {
        let counted = self.meters.iter().zip(self.counters);
        let units = counted.map(|(meter, counter)| {
            units(meter, &self.states[counter.0], meter.instant(self.time))
        });
        units.min().unwrap_or(0)
    }

    #[inline]
    fn each(&mut self, mut change: impl FnMut(&M, &mut M::State, u64)) {
        for (meter, counter) in self.meters.iter().zip(self.counters) {
            change(meter, &mut self.states[counter.0], meter.instant(self.time));
        }
    }
}
