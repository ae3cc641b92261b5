use std::time::Duration;

use super::Verdict;
use crate::{
    decision::{Measure, Outcome, Standing},
    op::Op,
};

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) denied: bool,
    /// Whether it was denied although the cost can fit.
    pub(crate) breached: bool,
    /// The longest wait in a queue.
    pub(crate) wait: u64,
    /// Units that were taken.
    pub(crate) charged: u64,
}

impl Answer {
    /// What the outside world hears of it.
    #[inline]
    pub(crate) fn outcome(&self) -> Outcome {
        if self.denied {
            Outcome::Denied
        } else if self.wait > 0 {
            Outcome::Delayed(Duration::from_micros(self.wait.div_ceil(1_000)))
        } else {
            Outcome::Allowed
        }
    }
}

/// What [`step`] asks of a quota and the state of a key. A trait, so that for one bucket it comes
/// down to that bucket's arithmetic.
pub(crate) trait Counts {
    /// What is remembered of a key.
    type State;

    /// The state of a key that was never seen.
    const FRESH: Self::State;

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
}

/// Does `op` at `now` to the states of one key, one for each meter, and measures each quota.
///
/// Several quotas are charged together or not at all: if one denies, none is.
#[inline]
pub(crate) fn step<M: Counts>(
    meters: &[M],
    states: &mut [M::State],
    now: u64,
    op: Op,
    measures: &mut [Measure],
) -> Answer {
    let mut key = Key {
        meters,
        states,
        now,
    };
    key.each(|meter, state| meter.heal(state, now));
    let answer = match op {
        Op::Acquire(cost) => key.acquire(cost, measures),
        Op::AcquireUpTo(most) => key.acquire(most.min(key.available().max(1)), measures),
        Op::Peek(cost) => key.judge(cost, measures),
        Op::Hit(cost) => key.hit(cost, measures),
        Op::Refund(cost, receipt) => {
            let charged_at = receipt.map_or(now, |receipt| receipt.charged_at().as_nanos());
            key.each(|meter, state| meter.refund(state, now, cost, charged_at));
            key.judge(0, measures)
        }
        Op::Reset => {
            key.each(|_, state| *state = M::FRESH);
            key.judge(0, measures)
        }
    };
    key.measure(measures);
    answer
}

struct Key<'a, M: Counts> {
    meters: &'a [M],
    states: &'a mut [M::State],
    now: u64,
}

impl<M: Counts> Key<'_, M> {
    #[inline]
    fn acquire(&mut self, cost: u64, measures: &mut [Measure]) -> Answer {
        let now = self.now;
        let mut answer = self.judge(cost, measures);
        if !answer.denied && cost > 0 {
            self.each(|meter, state| meter.charge(state, now, cost));
            answer.charged = cost;
        }
        answer
    }

    #[inline]
    fn hit(&mut self, cost: u64, measures: &mut [Measure]) -> Answer {
        let now = self.now;
        let mut answer = self.judge(cost, measures);
        answer.charged = cost.min(self.available());
        if cost > 0 {
            self.each(|meter, state| meter.charge(state, now, cost));
        }
        // What passes whatever the limit says waits in no queue.
        answer.wait = 0;
        answer
    }

    /// Whether `cost` fits every quota.
    #[inline]
    fn judge(&self, cost: u64, measures: &mut [Measure]) -> Answer {
        let mut answer = Answer {
            denied: false,
            breached: false,
            wait: 0,
            charged: 0,
        };
        let mut can_fit = true;
        for (i, (meter, state)) in self.meters.iter().zip(&*self.states).enumerate() {
            let verdict = meter.verdict(state, self.now, cost);
            if let Verdict::Fits { wait } = verdict {
                answer.wait = answer.wait.max(wait);
            }
            can_fit &= verdict != Verdict::Never;
            answer.denied |= !verdict.fits();
            measures[i].denied = !verdict.fits();
            measures[i].retry_after = match verdict {
                Verdict::After(wait) => Some(wait),
                Verdict::Fits { .. } | Verdict::Never => None,
            };
        }
        answer.breached = answer.denied && can_fit;
        answer
    }

    #[inline]
    fn measure(&self, measures: &mut [Measure]) {
        for (i, (meter, state)) in self.meters.iter().zip(&*self.states).enumerate() {
            (measures[i].standing, measures[i].excess) = meter.standing(state, self.now);
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
