//! The subject: the states and the block of a key. An operation is applied to it under its lock.

use std::time::Duration;

use super::{
    call::OpRef,
    limits_in_force::TierSet,
    tier::{TierIndex, TierQuotas},
};
use crate::{
    algorithm::{Counters, Held, Judgement, State, States, Verdict, View},
    clock::ClockReading,
    decision::{Decision, JointDecision, QuotaStatuses, Ruling, Status},
    quota::{MAX_REFILL_NANOS, Priority},
};

/// An operation, without the key. It is judged first if it takes units, so that several limits take all or nothing, and
/// then [concluded](Self::conclude).
#[derive(Debug)]
pub struct Apply<'a> {
    pub time: ClockReading,
    pub limits: &'a TierSet,
    pub quotas: &'a TierQuotas,
    pub tier: TierIndex,
    pub class: Priority,
    /// The units of each quota that leases hold; empty if there are no leases.
    pub held: &'a [Option<Held>],
    pub op: OpRef<'a>,
}

/// One key: its states, its block, and the verdict of each quota on the operation.
#[derive(Debug)]
pub struct Subject<'a, S> {
    pub states: S,
    pub block: &'a mut Block,
    pub verdicts: &'a mut [Verdict],
}

/// The outcome of an operation.
#[derive(Debug)]
pub struct OpOutcome {
    pub judgement: Judgement,
    /// Nanoseconds until the key's block ends; 0 if the operation ignores blocks.
    pub blocked: u64,
}

impl Apply<'_> {
    /// The instant of blocks and evictions, in nanoseconds.
    fn now(&self) -> u64 {
        self.time.as_nanos()
    }

    /// The units that the operation can take at once, if it takes what is available. It peeks one of a blocked key,
    /// because one unit is enough to allow it.
    pub fn room<S: States>(&self, key: &mut Subject<'_, S>) -> Option<u64> {
        let OpRef::AcquireUpTo(most) = self.op else {
            return None;
        };
        let available = match self.left(key.block) {
            0 => self.counters(&mut key.states).available().max(1),
            _ => 1,
        };
        Some(most.min(available))
    }

    /// The units that the operation takes, if it takes some that are there: `room`, if it takes what is available.
    #[inline]
    pub const fn cost(&self, room: u64) -> Option<u64> {
        match self.op {
            OpRef::Acquire(cost) | OpRef::Reserve(cost) => Some(cost),
            OpRef::AcquireUpTo(_) => Some(room),
            _ => None,
        }
    }

    /// Whether other limits may take their units: the key has `cost` units, now or after a wait, or its limit `overflows`.
    #[inline(always)]
    pub fn judge<S: States>(&self, key: &mut Subject<'_, S>, cost: u64, overflows: bool) -> bool {
        let verdict = self.counters(&mut key.states).judge(cost, key.verdicts);
        (verdict.fits() || overflows) && self.left(key.block) == 0
    }

    /// Ends the operation: takes the `cost` that was judged if it fits, or nothing. An operation without a cost is applied.
    #[inline(always)]
    pub fn conclude<S: States>(
        &self,
        key: &mut Subject<'_, S>,
        cost: Option<u64>,
        takes: bool,
    ) -> OpOutcome {
        let blocked = self.left(key.block);
        let Some(cost) = cost else {
            return self.apply(key, blocked);
        };
        let mut counters = self.counters(&mut key.states);
        let verdict = key
            .verdicts
            .iter()
            .fold(Verdict::FITS, |all, own| all.and(*own));
        let judgement = Judgement {
            verdict,
            charged: if takes && verdict.fits() { cost } else { 0 },
            shed: counters.sheds(verdict, cost),
        };
        counters.charge(judgement.charged);
        let blocked = match verdict {
            // Only such a denial starts a block.
            Verdict::After(_) => self.blocked_after(key, &judgement, blocked),
            _ => blocked,
        };
        OpOutcome { judgement, blocked }
    }

    /// Applies an operation that takes no units that were judged.
    #[inline(never)]
    fn apply<S: States>(&self, key: &mut Subject<'_, S>, blocked: u64) -> OpOutcome {
        let judgement = self.counters(&mut key.states).decide(self.op, key.verdicts);
        let blocked = self.blocked_after(key, &judgement, blocked);
        OpOutcome { judgement, blocked }
    }

    /// The numbers of each quota after the operation.
    #[inline(always)]
    pub fn statuses<S: States>(&self, key: &mut Subject<'_, S>) -> impl Iterator<Item = Status> {
        let meters = self.quotas.meters.iter().zip(&*key.verdicts).enumerate();
        meters.map(|(place, (meter, verdict))| {
            let view = View::of(self.class, self.held, place);
            let (state, now) = (key.states.state(place), meter.instant(self.time));
            meter.explain(state, now, *verdict, view)
        })
    }

    /// The decision of one limit.
    #[inline(always)]
    pub fn decision<S: States>(&self, outcome: &OpOutcome, key: &mut Subject<'_, S>) -> Decision {
        let quotas = QuotaStatuses::of_limit(&self.quotas.policies, self.statuses(key));
        let mut decision = decided(&outcome.judgement, self.time, self.tier, quotas);
        if !self.class.is_critical() {
            decision.set_class(self.class, outcome.judgement.shed);
        }
        denied_for(decision, outcome.blocked)
    }

    /// Writes the part of the limit with this identity to `joint`.
    #[inline(always)]
    pub(crate) fn write_to<S: States>(
        &self,
        joint: &mut JointDecision,
        limit: u64,
        outcome: &OpOutcome,
        key: &mut Subject<'_, S>,
    ) {
        let OpOutcome { judgement, blocked } = outcome;
        let ruling = ruled(judgement, self.time, self.tier);
        let ruling = ruling.by_class(judgement.shed).while_blocked(*blocked > 0);
        let (class, blocked) = (self.class, *blocked);
        let statuses = self.statuses(key);
        let statuses = statuses.map(|status| status.of_request(class, blocked));
        joint.write(limit, ruling, &self.quotas.policies, statuses);
    }

    /// Nanoseconds until the block ends.
    fn left(&self, block: &mut Block) -> u64 {
        block.left(self.now(), self.limits.block_for)
    }

    /// Applies the effects of the operation on the block and on the count of responses. Returns the
    /// nanoseconds until the key's block ends.
    fn blocked_after<S: States>(
        &self,
        key: &mut Subject<'_, S>,
        judgement: &Judgement,
        blocked: u64,
    ) -> u64 {
        let now = self.now();
        match self.op {
            OpRef::Block(length) => {
                *key.block = Block::by_hand(now, length);
                key.block.left(now, None)
            }
            OpRef::Reset => {
                *key.block = Block::NONE;
                0
            }
            OpRef::Settle(cost, _) => {
                if self.counts_responses() && self.uses_up(&mut key.states, cost) && blocked == 0 {
                    self.start_block(key.block);
                }
                0
            }
            OpRef::Refund(..) => 0,
            OpRef::Acquire(_) | OpRef::AcquireUpTo(_) | OpRef::Deny(_)
                if blocked == 0
                    && matches!(judgement.verdict, Verdict::After(_))
                    && !judgement.shed =>
            {
                self.start_block(key.block);
                key.block.left(now, None)
            }
            _ => blocked,
        }
    }

    fn start_block(&self, block: &mut Block) {
        if let Some(length) = self.limits.block_for {
            *block = Block::of(self.now(), length);
        }
    }

    /// Whether the operation counts a response, on states of its own.
    #[inline]
    fn counts_responses(&self) -> bool {
        matches!(self.op, OpRef::Settle(1.., _)) && self.limits.block_for.is_some()
    }

    /// Counts the cost that a response set. Returns whether the key has no unit left then.
    fn uses_up<S: States>(&self, states: &mut S, cost: u64) -> bool {
        let mut counters = Counters {
            first: self.quotas.meters.len(),
            class: Priority::CRITICAL,
            held: &[],
            ..self.counters(states)
        };
        counters.judge(0, &mut []);
        counters.charge(cost);
        !counters.judge(1, &mut []).fits()
    }

    #[inline]
    fn counters<'t, S>(&'t self, states: &'t mut S) -> Counters<'t, S> {
        Counters {
            meters: &self.quotas.meters,
            states,
            first: 0,
            time: self.time,
            class: self.class,
            held: self.held,
        }
    }
}

/// Turns the decision into a denial, if the key stays blocked for more than 0 nanoseconds.
#[inline]
pub fn denied_for(decision: Decision, blocked: u64) -> Decision {
    match blocked {
        0 => decision,
        nanos => decision.into_blocked(Duration::from_nanos(nanos)),
    }
}

#[inline(always)]
pub(crate) fn decided(
    judgement: &Judgement,
    time: ClockReading,
    tier: TierIndex,
    quotas: QuotaStatuses,
) -> Decision {
    Decision::of(ruled(judgement, time, tier), quotas)
}

#[inline(always)]
pub(crate) fn ruled(judgement: &Judgement, time: ClockReading, tier: TierIndex) -> Ruling {
    Ruling::measured(judgement.outcome(), judgement.charged, time.now, tier)
}

/// The lowest bit of the instant marks a block by hand. Operations come at whole microseconds, which
/// are even numbers of nanoseconds, so the bit does not change which of them are denied.
const BY_HAND: u64 = 1;

/// The instant until which a key is blocked, in nanoseconds, and whether it was blocked by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block(u64);

impl Block {
    pub(crate) const NONE: Self = Self(0);

    /// A block of `length` nanoseconds that a denial starts.
    pub const fn of(now: u64, length: u64) -> Self {
        Self(now.saturating_add(length).saturating_add(1) & !BY_HAND)
    }

    /// A block that ends at this instant, rounded like the times of decisions.
    pub const fn until(end: u64, is_by_hand: bool) -> Self {
        match (end, is_by_hand) {
            (0, _) => Self::NONE,
            (end, true) => Self((end - 1) | BY_HAND),
            (end, false) => Self::of(end, 0),
        }
    }

    fn by_hand(now: u64, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        match nanos.min(MAX_REFILL_NANOS) {
            0 => Self::NONE,
            nanos => Self((now.saturating_add(nanos) - 1) | BY_HAND),
        }
    }

    /// The block as the state of a table entry, and the instant at which it ends.
    pub(crate) const fn to_state(self) -> (State, u64) {
        (State::Instant(self.0), self.0)
    }

    pub(crate) const fn from_state(state: &State) -> Self {
        match state {
            State::Instant(until) => Self(*until),
            _ => Self::NONE,
        }
    }

    /// Nanoseconds until the block ends. If the clock stepped back, at most the length of a denial's
    /// block, or the longest by hand.
    pub fn left(&mut self, now: u64, block_for: Option<u64>) -> u64 {
        let by_hand = self.0 & BY_HAND;
        let longest = block_for.filter(|_| by_hand == 0);
        let latest = Self::of(now, longest.unwrap_or(MAX_REFILL_NANOS)).0;
        self.0 = self.0.min(latest - by_hand);
        self.0.saturating_sub(now)
    }
}

/// The operation on a blocked key instead of one that would take units or start a block: a peek. For
/// an acquisition of up to some units it peeks one, because one unit is enough to allow it.
pub(crate) fn instead_of(op: OpRef<'_>) -> Option<OpRef<'_>> {
    match op {
        OpRef::Acquire(cost) | OpRef::Reserve(cost) | OpRef::Deny(cost) => Some(OpRef::Peek(cost)),
        OpRef::AcquireUpTo(most) => Some(OpRef::Peek(most.min(1))),
        _ => None,
    }
}
