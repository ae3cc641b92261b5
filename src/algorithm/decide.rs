//! Decides operations on one quota or on several, from the functions of each algorithm.

use std::{cmp::Ordering, time::Duration};

use super::{Charged, Refund, Verdict};
use crate::{
    decision::Op,
    decision::{Charge, Measure, Outcome, Receipt, Usage},
    quota::{Kind, MAX_COUNT},
};

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The joint verdict of all quotas.
    pub(crate) verdict: Verdict,
    /// The units taken.
    pub(crate) charged: u64,
}

impl Answer {
    /// The outcome for a decision.
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

    fn verdict(&self, state: &Self::State, now: u64, cost: u64) -> Verdict;

    /// The most units that fit, including the soft share.
    fn available(&self, state: &Self::State, now: u64) -> u64;

    /// Takes `cost`, down to exhaustion and no further.
    fn charge(&self, state: &mut Self::State, now: u64, cost: u64);

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

    /// Refunds units.
    fn refund(&self, state: &mut Self::State, now: u64, refund: Refund);

    /// Moves a state that is too far ahead back to now. A denial and a peek write nothing else. If they
    /// did not write this, the key would stay locked out until the clock has caught up.
    fn clamp(&self, state: &mut Self::State, now: u64);

    /// The kind of the quota's counter.
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

/// Applies `op` at `now` to the states of one key, one for each meter, and writes each quota's verdict
/// to `verdicts`.
///
/// Several quotas are charged together or not at all: if one denies, none is charged. Blocks are the
/// caller's.
#[inline]
pub(crate) fn decide<M: Counts>(
    meters: &[M],
    states: &mut [M::State],
    now: u64,
    op: &Op,
    verdicts: &mut [Verdict],
) -> Answer {
    let mut tally = Tally::new(meters, states, now, verdicts);
    match op {
        Op::Acquire(cost) | Op::Reserve(cost) => tally.acquire(*cost),
        Op::AcquireUpTo(most) => tally.acquire((*most).min(tally.available().max(1))),
        Op::Peek(cost) | Op::Deny(cost) => tally.judge(*cost),
        Op::Hit(cost) => tally.hit(*cost),
        Op::Count(cost) => tally.count((*cost).min(MAX_COUNT)),
        Op::Refund(cost, receipt) => {
            tally.refund(*cost, receipt.as_ref());
            tally.judge(0)
        }
        Op::Settle(cost, receipt) => tally.settle(*cost, receipt),
        Op::Block(_) => tally.judge(0),
        Op::Reset => {
            tally.each(|_, state| *state = M::State::default());
            tally.judge(0)
        }
    }
}

/// [`decide`] for [`Op::Acquire`].
#[inline]
pub(crate) fn acquire<M: Counts>(
    meters: &[M],
    states: &mut [M::State],
    now: u64,
    cost: u64,
    verdicts: &mut [Verdict],
) -> Answer {
    Tally::new(meters, states, now, verdicts).acquire(cost)
}

/// The quotas of one key, with their states.
struct Tally<'a, M: Counts> {
    meters: &'a [M],
    states: &'a mut [M::State],
    now: u64,
    verdicts: &'a mut [Verdict],
}

impl<'a, M: Counts> Tally<'a, M> {
    /// The quotas of a key whose states are clamped.
    #[inline]
    fn new(
        meters: &'a [M],
        states: &'a mut [M::State],
        now: u64,
        verdicts: &'a mut [Verdict],
    ) -> Self {
        let mut tally = Self {
            meters,
            states,
            now,
            verdicts,
        };
        tally.each(|meter, state| meter.clamp(state, now));
        tally
    }

    #[inline]
    fn acquire(&mut self, cost: u64) -> Answer {
        let now = self.now;
        let mut answer = self.judge(cost);
        if answer.verdict.fits() && cost > 0 {
            self.each(|meter, state| meter.charge(state, now, cost));
            answer.charged = cost;
        }
        answer
    }

    #[inline]
    fn hit(&mut self, cost: u64) -> Answer {
        let now = self.now;
        let mut answer = self.judge(cost);
        answer.charged = cost.min(self.available());
        if cost > 0 {
            self.each(|meter, state| meter.charge(state, now, cost));
        }
        // A request that passes regardless of the limit does not wait in a queue.
        if answer.verdict.fits() {
            answer.verdict = Verdict::FITS;
        }
        answer
    }

    /// Adds `cost`; the verdict is a denial if a count then exceeds its limit.
    fn count(&mut self, cost: u64) -> Answer {
        let now = self.now;
        if cost > 0 {
            self.each(|meter, state| meter.count(state, now, cost));
        }
        let mut answer = self.judge_by(|meter, state| meter.over(state, now, cost));
        answer.charged = cost;
        answer
    }

    /// Corrects the charge to `cost`. The answer's charge is the units taken beyond the receipt's.
    fn settle(&mut self, cost: u64, receipt: &Receipt) -> Answer {
        let charged = receipt.charged();
        let taken = match cost.cmp(&charged) {
            Ordering::Less => {
                self.refund(charged - cost, Some(receipt));
                0
            }
            Ordering::Equal => 0,
            Ordering::Greater => self.hit(cost - charged).charged,
        };
        let mut answer = self.judge(0);
        answer.charged = taken;
        answer
    }

    /// Refunds at most the receipt's charge, to counters that still count with the same numbers.
    fn refund(&mut self, cost: u64, receipt: Option<&Receipt>) {
        let now = self.now;
        let cost = receipt.map_or(cost, |receipt| cost.min(receipt.charged()));
        if cost == 0 {
            return;
        }
        let Some(receipt) = receipt else {
            let of = Charged::Newest;
            return self.each(|meter, state| meter.refund(state, now, Refund { cost, of }));
        };
        let charged_at = receipt.charged_at().as_nanos();
        let counters = self.meters.iter().zip(&mut *self.states);
        for ((meter, state), charge) in counters.zip(receipt.charges()) {
            if meter.made(charged_at, charge) {
                let of = Charged::At(charged_at, *charge);
                meter.refund(state, now, Refund { cost, of });
            }
        }
    }

    /// Whether `cost` fits every quota.
    #[inline]
    fn judge(&mut self, cost: u64) -> Answer {
        let now = self.now;
        self.judge_by(|meter, state| meter.verdict(state, now, cost))
    }

    /// The joint answer, from the verdict of each quota.
    #[inline]
    fn judge_by(&mut self, verdict: impl Fn(&M, &M::State) -> Verdict) -> Answer {
        let mut all = Verdict::FITS;
        for (i, (meter, state)) in self.meters.iter().zip(&*self.states).enumerate() {
            let verdict = verdict(meter, state);
            self.verdicts[i] = verdict;
            all = all.and(verdict);
        }
        Answer {
            verdict: all,
            charged: 0,
        }
    }

    /// The most units that fit every quota.
    #[inline]
    fn available(&self) -> u64 {
        let pairs = self.meters.iter().zip(&*self.states);
        let available = pairs.map(|(meter, state)| meter.available(state, self.now));
        available.min().unwrap_or(0)
    }

    #[inline]
    fn each(&mut self, mut change: impl FnMut(&M, &mut M::State)) {
        for (meter, state) in self.meters.iter().zip(&mut *self.states) {
            change(meter, state);
        }
    }
}
