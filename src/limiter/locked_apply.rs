//! Applies an operation to one key under its lock: tier, block, and the count of responses.

use std::{mem, slice, time::Duration};

use super::block::{self, Block};
use crate::{
    algorithm::{Answer, CompiledQuota, Counts, State, Verdict, acquire, decide},
    clock::Timestamp,
    decision::Op,
    decision::{Decision, Measure, Policy, QuotaStatuses},
    limiter::{
        tier_quotas::TierQuotas,
        tier_set::{TierIndex, TierSet},
    },
};

/// An operation, without the key.
pub(crate) struct Apply<'a> {
    pub(crate) time: Timestamp,
    pub(crate) limits: &'a TierSet,
    /// The quotas that measure the operation.
    pub(crate) quotas: &'a TierQuotas,
    pub(crate) tier: TierIndex,
    pub(crate) op: &'a Op,
}

/// The stored state of one key.
pub(crate) struct Subject<'a> {
    /// One state for each counter. If denials block keys, one for the responses of each follows.
    pub(crate) states: &'a mut [State],
    pub(crate) block: &'a mut Block,
}

/// The outcome of an operation.
pub(crate) struct OpOutcome<T> {
    pub(crate) answer: Answer,
    pub(crate) quotas: T,
    /// Nanoseconds until the key's block ends; 0 if the operation ignores blocks.
    pub(crate) blocked: u64,
}

/// The statuses of the quotas, in the form that the caller needs.
pub(crate) trait Findings {
    fn of_one(policy: &Policy, measure: &Measure) -> Self;

    fn of_set(policies: &[Policy], measures: impl Iterator<Item = Measure>) -> Self;
}

impl Findings for QuotaStatuses {
    #[inline]
    fn of_one(policy: &Policy, measure: &Measure) -> Self {
        Self::of_one(policy, measure)
    }

    fn of_set(policies: &[Policy], measures: impl Iterator<Item = Measure>) -> Self {
        Self::of_set(policies, measures)
    }
}

impl Apply<'_> {
    pub(crate) fn now(&self) -> u64 {
        self.time.as_nanos()
    }

    pub(crate) fn decide(&self, key: &mut Subject<'_>) -> Decision {
        let OpOutcome {
            answer,
            quotas,
            blocked,
        } = self.run::<QuotaStatuses>(key);
        let decision = Decision::new(answer.outcome(), answer.charged, self.time, quotas);
        denied_for(decision.in_tier(self.tier), blocked)
    }

    /// Applies the operation.
    #[inline]
    pub(crate) fn run<T: Findings>(&self, key: &mut Subject<'_>) -> OpOutcome<T> {
        self.run_by(&self.quotas.meters, key)
    }

    /// Applies the operation with `meters` instead of the quotas' own.
    #[inline]
    pub(crate) fn run_by<M: Counts<State = State>, T: Findings>(
        &self,
        meters: &[M],
        key: &mut Subject<'_>,
    ) -> OpOutcome<T> {
        let now = self.now();
        let blocked = key.block.left(now, self.limits.block_for);
        let instead = block::instead_of(self.op).filter(|_| blocked > 0);
        let op = instead.as_ref().unwrap_or(self.op);
        let (charged, _) = key.states.split_at_mut(self.limits.width());
        let (answer, quotas) = self.step(meters, charged, op);
        let blocked = self.blocked_after(key, &answer, blocked);
        OpOutcome {
            answer,
            quotas,
            blocked,
        }
    }

    /// Applies the effects of the operation on the block and on the count of responses. Returns the
    /// nanoseconds until the key's block ends.
    #[inline]
    fn blocked_after(&self, key: &mut Subject<'_>, answer: &Answer, blocked: u64) -> u64 {
        let now = self.now();
        match self.op {
            Op::Block(length) => {
                *key.block = Block::by_hand(now, *length);
                key.block.left(now, None)
            }
            Op::Reset => {
                // Also the counters of other tiers.
                key.states.fill(State::FRESH);
                *key.block = Block::NONE;
                0
            }
            Op::Settle(cost, _) => {
                if *cost > 0 && self.limits.block_for.is_some() {
                    self.count(key, *cost, blocked);
                }
                0
            }
            Op::Refund(..) => 0,
            Op::Acquire(_) | Op::AcquireUpTo(_) | Op::Deny(_)
                if blocked == 0 && matches!(answer.verdict, Verdict::After(_)) =>
            {
                self.start_block(key.block);
                key.block.left(now, None)
            }
            _ => blocked,
        }
    }

    /// Whether taking `cost` would be allowed, now or after a wait.
    pub(crate) fn fits(&self, key: &mut Subject<'_>, cost: u64) -> bool {
        let now = self.now();
        let is_free = key.block.left(now, self.limits.block_for) == 0;
        let mut counters = self.counters(key);
        is_free && counters.all(|(meter, state)| meter.verdict(state, now, cost).fits())
    }

    /// The most units that could be taken.
    pub(crate) fn available(&self, key: &mut Subject<'_>) -> u64 {
        let now = self.now();
        let available = self.counters(key);
        let available = available.map(|(meter, state)| meter.available(state, now));
        available.min().unwrap_or(0)
    }

    /// The quotas with their clamped states.
    fn counters<'a>(
        &'a self,
        key: &'a mut Subject<'_>,
    ) -> impl Iterator<Item = (&'a CompiledQuota, &'a State)> {
        let TierQuotas {
            meters, counters, ..
        } = self.quotas;
        for (meter, counter) in meters.iter().zip(counters) {
            meter.clamp(&mut key.states[*counter], self.now());
        }
        let states = counters.iter().map(|counter| &key.states[*counter]);
        meters.iter().zip(states)
    }

    fn start_block(&self, block: &mut Block) {
        if let Some(length) = self.limits.block_for {
            *block = Block::of(self.now(), length);
        }
    }

    /// Counts the cost that a response set, and blocks a key that has then no unit left, unless it is
    /// blocked already.
    fn count(&self, key: &mut Subject<'_>, cost: u64, blocked: u64) {
        let (_, counted) = key.states.split_at_mut(self.limits.width());
        let mut peeked = None;
        for op in [Op::Hit(cost), Op::Peek(1)] {
            peeked = Some(
                self.step::<_, QuotaStatuses>(&self.quotas.meters, counted, &op)
                    .0,
            );
        }
        let is_used_up = peeked.is_some_and(|answer| !answer.verdict.fits());
        if is_used_up && blocked == 0 {
            self.start_block(key.block);
        }
    }

    fn step<M: Counts<State = State>, T: Findings>(
        &self,
        meters: &[M],
        states: &mut [State],
        op: &Op,
    ) -> (Answer, T) {
        match (meters, self.quotas.counters.as_slice()) {
            ([meter], [counter]) => self.step_one(meter, &mut states[*counter], op),
            _ => self.step_several(meters, states, op),
        }
    }

    fn step_one<M: Counts<State = State>, T: Findings>(
        &self,
        meter: &M,
        state: &mut State,
        op: &Op,
    ) -> (Answer, T) {
        let mut verdict = Verdict::FITS;
        let (meters, states) = (slice::from_ref(meter), slice::from_mut(state));
        let verdicts = slice::from_mut(&mut verdict);
        let answer = match op {
            Op::Acquire(cost) | Op::Reserve(cost) => {
                acquire(meters, states, self.now(), *cost, verdicts)
            }
            _ => decide(meters, states, self.now(), op, verdicts),
        };
        let measure = meter.measure(state, self.now(), verdict);
        (answer, T::of_one(&self.quotas.policies[0], &measure))
    }

    fn step_several<M: Counts<State = State>, T: Findings>(
        &self,
        meters: &[M],
        states: &mut [State],
        op: &Op,
    ) -> (Answer, T) {
        let TierQuotas {
            policies, counters, ..
        } = self.quotas;
        let taken = counters.iter().map(|at| mem::take(&mut states[*at]));
        let mut own: Vec<_> = taken.collect();
        let mut verdicts = vec![Verdict::FITS; meters.len()];
        let answer = decide(meters, &mut own, self.now(), op, &mut verdicts);
        let measured = meters.iter().zip(&own).zip(verdicts);
        let measures =
            measured.map(|((meter, state), verdict)| meter.measure(state, self.now(), verdict));
        let quotas = T::of_set(policies, measures);
        for (at, state) in counters.iter().zip(own) {
            states[*at] = state;
        }
        (answer, quotas)
    }
}

/// Turns the decision into a denial, if the key stays blocked for more than 0 nanoseconds.
#[inline]
pub(crate) fn denied_for(decision: Decision, blocked: u64) -> Decision {
    match blocked {
        0 => decision,
        nanos => decision.into_blocked(Duration::from_nanos(nanos)),
    }
}
