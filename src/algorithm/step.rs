use std::time::Duration;

use super::Verdict;
use crate::{
    decision::{Measure, Outcome, Standing},
    op::Op,
};

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// That of all quotas together.
    pub(crate) verdict: Verdict,
    /// Units that were taken.
    pub(crate) charged: u64,
}

impl Answer {
    /// What the outside world hears of it.
    #[inline]
    pub(crate) fn outcome(&self) -> Outcome {
        match self.verdict {
            Verdict::Fits { wait: 0 } => Outcome::Allowed,
            Verdict::Fits { wait } => Outcome::Delayed(Duration::from_micros(wait.div_ceil(1_000))),
            Verdict::After(_) | Verdict::Never => Outcome::Denied,
        }
    }
}

/// What [`step`] asks of a quota and the state of a key. A trait, so that for one bucket it comes
/// down to that bucket's arithmetic.
pub(crate) trait Counts {
    /// What is remembered of a key; the default is that of a key that was never seen.
    type State: Default;

    fn verdict(&self, state: &Self::State, now: u64, cost: u64) -> Verdict;

    /// The most that fits, soft share included.
    fn available(&self, state: &Self::State, now: u64) -> u64;

    /// Takes `cost`, down to exhaustion and no further.
    fn charge(&self, state: &mut Self::State, now: u64, cost: u64);

    /// Gives back `cost` that was charged at `charged_at`.
    fn refund(&self, state: &mut Self::State, now: u64, cost: u64, charged_at: u64);

    /// Brings a state that lies too far ahead back to now. This is the one thing that a denial or
    /// a look may write: unless it is kept, the next one starts over, and the key stays locked
    /// until the clock has caught up.
    fn heal(&self, state: &mut Self::State, now: u64);

    /// What is left of the nominal limit, and whether more than that is used.
    fn standing(&self, state: &Self::State, now: u64) -> (Standing, bool);

    /// What there is to say of the quota after this verdict.
    #[inline]
    fn measure(&self, state: &Self::State, now: u64, verdict: Verdict) -> Measure {
        let (standing, excess) = self.standing(state, now);
        Measure {
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

/// Does `op` at `now` to the states of one key, one for each meter, and notes each quota's verdict.
///
/// Several quotas are charged together or not at all: if one denies, none is.
#[inline]
pub(crate) fn step<M: Counts>(
    meters: &[M],
    states: &mut [M::State],
    now: u64,
    op: Op,
    verdicts: &mut [Verdict],
) -> Answer {
    let mut key = Key {
        meters,
        states,
        now,
        verdicts,
    };
    key.each(|meter, state| meter.heal(state, now));
    match op {
        Op::Acquire(cost) => key.acquire(cost),
        Op::AcquireUpTo(most) => key.acquire(most.min(key.available().max(1))),
        Op::Peek(cost) => key.judge(cost),
        Op::Hit(cost) => key.hit(cost),
        Op::Refund(cost, receipt) => {
            let charged_at = receipt.map_or(now, |receipt| receipt.charged_at().as_nanos());
            key.each(|meter, state| meter.refund(state, now, cost, charged_at));
            key.judge(0)
        }
        Op::Reset => {
            key.each(|_, state| *state = M::State::default());
            key.judge(0)
        }
    }
}

struct Key<'a, M: Counts> {
    meters: &'a [M],
    states: &'a mut [M::State],
    now: u64,
    verdicts: &'a mut [Verdict],
}

impl<M: Counts> Key<'_, M> {
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
        // What passes whatever the limit says waits in no queue.
        if answer.verdict.fits() {
            answer.verdict = Verdict::FITS;
        }
        answer
    }

    /// Whether `cost` fits every quota.
    #[inline]
    fn judge(&mut self, cost: u64) -> Answer {
        let mut all = Verdict::FITS;
        for (i, (meter, state)) in self.meters.iter().zip(&*self.states).enumerate() {
            let verdict = meter.verdict(state, self.now, cost);
            self.verdicts[i] = verdict;
            all = all.and(verdict);
        }
        Answer {
            verdict: all,
            charged: 0,
        }
    }

    /// The most that every quota can give.
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
