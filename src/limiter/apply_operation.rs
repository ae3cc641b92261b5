//! Applies an operation to one key under its lock: tier, block, and the count of responses. `LoneCharge` is the usual
//! operation, which changes states in their entries.

use std::{sync::Arc, time::Duration};

use super::{
    block::{self, Block},
    tier_quotas::{TierIndex, TierQuotas},
    tier_set::TierSet,
};
use crate::{
    algorithm::{Answer, CompiledQuota, Held, State, Tally, Verdict, View},
    clock::ClockReading,
    decision::{Decision, DecisionOfLimit, MergedDecisions, Op, Policy, QuotaStatuses, Status},
    quota::Priority,
    small_list::SmallList,
};

/// The number of quotas of most tiers. Verdicts of more are on the heap.
const FEW_QUOTAS: usize = 4;

/// An operation, without the key.
pub(crate) struct Apply<'a> {
    pub(crate) time: ClockReading,
    pub(crate) limits: &'a TierSet,
    pub(crate) quotas: &'a TierQuotas,
    pub(crate) tier: TierIndex,
    pub(crate) class: Priority,
    /// The units of each quota that leases hold; empty if there are no leases.
    pub(crate) held: &'a [Option<Held>],
    pub(crate) op: &'a Op,
}

/// The stored state of one key.
pub(crate) struct Subject<'a> {
    /// One state for each counter. If denials block keys, one for the responses of each follows.
    pub(crate) states: &'a mut [State],
    pub(crate) block: &'a mut Block,
}

/// The verdict of each of several quotas.
pub(crate) type Verdicts = SmallList<Verdict, FEW_QUOTAS>;

/// The judgement on an operation that takes units, before it takes any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judgement {
    cost: u64,
    verdict: Verdict,
    /// Whether only the class of the request causes a denial.
    shed: bool,
    /// Nanoseconds until the key's block ends.
    blocked: u64,
}

impl Judgement {
    /// Whether the cost can be taken, now or after a wait.
    pub(crate) const fn fits(&self) -> bool {
        self.blocked == 0 && self.verdict.fits()
    }
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
    fn of_one(policy: &Policy, status: Status) -> Self;

    fn of_set(policies: &Arc<[Policy]>, statuses: impl Iterator<Item = Status>) -> Self;
}

impl Findings for QuotaStatuses {
    #[inline]
    fn of_one(policy: &Policy, status: Status) -> Self {
        Self::of_one(policy, status)
    }

    fn of_set(policies: &Arc<[Policy]>, statuses: impl Iterator<Item = Status>) -> Self {
        Self::of_set(policies, statuses)
    }
}

impl Apply<'_> {
    /// The instant of blocks and evictions, in nanoseconds.
    fn now(&self) -> u64 {
        self.time.as_nanos()
    }

    #[inline(always)]
    pub(crate) fn decide(&self, key: &mut Subject<'_>) -> Decision {
        self.decision(self.run(key))
    }

    /// Judges an operation that takes `cost`, and writes the verdict of each of several quotas to
    /// `verdicts`; [`conclude`](Self::conclude) ends it.
    #[inline(always)]
    pub(crate) fn judge(
        &self,
        key: &mut Subject<'_>,
        cost: u64,
        verdicts: &mut Verdicts,
    ) -> Judgement {
        if self.quotas.meters.len() > 1 {
            *verdicts = Verdicts::filled(self.quotas.meters.len(), Verdict::FITS);
        }
        let mut tally = self.tally(key.states);
        let verdict = tally.judge(cost, verdicts.as_mut_slice());
        Judgement {
            cost,
            verdict,
            shed: tally.sheds(verdict, cost),
            blocked: key.block.left(self.now(), self.limits.block_for),
        }
    }

    /// Takes the cost that was judged, or nothing. Adds the decision of the limit with this identity to
    /// `merged`.
    #[inline]
    pub(crate) fn conclude(
        &self,
        key: &mut Subject<'_>,
        (judged, verdicts): (&Judgement, &Verdicts),
        takes: bool,
        limit: u64,
        merged: &mut MergedDecisions,
    ) {
        let answer = self.take(key.states, judged, takes);
        let blocked = self.blocked_after(key, &answer, judged.blocked);
        let decision = DecisionOfLimit {
            outcome: answer.outcome(),
            charged: answer.charged,
            charged_at: self.time.now,
            tier: self.tier,
            blocked,
            limit,
            class: self.class,
            shed: answer.shed,
        };
        let statuses = self.statuses(key.states, judged, verdicts);
        merged.add_measured(&decision, &self.quotas.policies, statuses);
    }

    #[inline(always)]
    fn decision(&self, outcome: OpOutcome<QuotaStatuses>) -> Decision {
        let OpOutcome {
            answer,
            quotas,
            blocked,
        } = outcome;
        let mut decision = decided(answer, self.time, self.tier, quotas);
        if !self.class.is_critical() {
            decision.set_class(self.class, answer.shed);
        }
        denied_for(decision, blocked)
    }

    #[inline(always)]
    pub(crate) fn run<T: Findings>(&self, key: &mut Subject<'_>) -> OpOutcome<T> {
        let (Op::Acquire(cost) | Op::Reserve(cost)) = self.op else {
            return self.run_any(key);
        };
        let mut verdicts = Verdicts::EMPTY;
        let judged = self.judge(key, *cost, &mut verdicts);
        let answer = self.take(key.states, &judged, judged.fits());
        OpOutcome {
            quotas: self.findings(self.statuses(key.states, &judged, &verdicts)),
            // Only such a denial starts a block.
            blocked: match answer.verdict {
                Verdict::After(_) => self.blocked_after(key, &answer, judged.blocked),
                _ => judged.blocked,
            },
            answer,
        }
    }

    /// Applies an operation that does not just take units.
    #[inline(never)]
    fn run_any<T: Findings>(&self, key: &mut Subject<'_>) -> OpOutcome<T> {
        let blocked = key.block.left(self.now(), self.limits.block_for);
        let instead = block::instead_of(self.op).filter(|_| blocked > 0);
        let op = instead.as_ref().unwrap_or(self.op);
        let mut verdicts = Verdicts::filled(self.quotas.meters.len(), Verdict::FITS);
        let mut tally = self.tally(key.states);
        let answer = tally.decide(op, verdicts.as_mut_slice());
        let counted = self.quotas.meters.iter().zip(&self.quotas.counters);
        let statuses = counted.zip(verdicts.as_slice()).enumerate();
        let statuses = statuses.map(|(place, ((meter, counter), verdict))| {
            let view = View::of(self.class, self.held, place);
            let (state, now) = (&key.states[counter.0], meter.instant(self.time));
            meter.explain(state, now, *verdict, view)
        });
        let quotas = self.findings(statuses);
        let blocked = self.blocked_after(key, &answer, blocked);
        OpOutcome {
            answer,
            quotas,
            blocked,
        }
    }

    /// Takes the cost that was judged, or nothing.
    #[inline(always)]
    fn take(&self, states: &mut [State], judged: &Judgement, takes: bool) -> Answer {
        let charged = if takes { judged.cost } else { 0 };
        self.tally(states).charge(charged);
        Answer {
            verdict: judged.verdict,
            charged,
            shed: judged.shed,
        }
    }

    /// The numbers of each quota after an operation that was judged.
    #[inline]
    fn statuses(
        &self,
        states: &[State],
        judged: &Judgement,
        verdicts: &Verdicts,
    ) -> impl Iterator<Item = Status> {
        let (time, joint) = (self.time, judged.verdict);
        let counted = self.quotas.meters.iter().zip(&self.quotas.counters);
        let counted = counted.enumerate();
        counted.map(move |(place, (meter, counter))| {
            // A denial is read from the list, since the verdict of a long log takes time.
            let verdict = match verdicts.as_slice().get(place) {
                Some(own) if !joint.fits() => *own,
                _ => joint,
            };
            let view = View::of(self.class, self.held, place);
            meter.explain(&states[counter.0], meter.instant(time), verdict, view)
        })
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
                if blocked == 0 && matches!(answer.verdict, Verdict::After(_)) && !answer.shed =>
            {
                self.start_block(key.block);
                key.block.left(now, None)
            }
            _ => blocked,
        }
    }

    pub(crate) fn available(&self, key: &mut Subject<'_>) -> u64 {
        self.tally(key.states).available()
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
        let mut verdicts = Verdicts::filled(self.quotas.meters.len(), Verdict::FITS);
        let mut tally = Tally {
            class: Priority::CRITICAL,
            held: &[],
            ..self.tally(counted)
        };
        tally.decide(&Op::Hit(cost), verdicts.as_mut_slice());
        let is_used_up = !tally.judge(1, &mut []).fits();
        if is_used_up && blocked == 0 {
            self.start_block(key.block);
        }
    }

    #[inline]
    fn tally<'t>(&'t self, states: &'t mut [State]) -> Tally<'t> {
        Tally {
            meters: &self.quotas.meters,
            counters: &self.quotas.counters,
            states,
            time: self.time,
            class: self.class,
            held: self.held,
        }
    }

    #[inline]
    fn findings<T: Findings>(&self, mut statuses: impl Iterator<Item = Status>) -> T {
        let policies = &self.quotas.policies;
        if let [policy] = &**policies {
            return T::of_one(policy, statuses.next().expect("every quota has a meter"));
        }
        T::of_set(policies, statuses)
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

/// A charge of `cost` units to one quota that counts on one state, without a block or a class: the usual work of
/// [`Apply`](super::apply_operation::Apply), without its lists.
pub(crate) struct LoneCharge<'a> {
    time: ClockReading,
    meter: &'a CompiledQuota,
    policies: &'a Arc<[Policy]>,
    tier: TierIndex,
    cost: u64,
}

impl<'a> LoneCharge<'a> {
    /// `None` for several quotas.
    #[inline]
    pub(crate) fn new(
        time: ClockReading,
        quotas: &'a TierQuotas,
        tier: TierIndex,
        cost: u64,
    ) -> Option<Self> {
        let [meter] = &*quotas.meters else {
            return None;
        };
        Some(Self {
            time,
            meter,
            policies: &quotas.policies,
            tier,
            cost,
        })
    }

    #[inline]
    fn now(&self) -> u64 {
        self.meter.instant(self.time)
    }

    /// The verdict on the cost; nothing is taken.
    #[inline(always)]
    pub(crate) fn judge(&self, state: &mut State) -> Verdict {
        let now = self.now();
        self.meter.clamp(state, now);
        self.meter.verdict(state, now, self.cost, View::WHOLE)
    }

    /// Takes the cost if it fits.
    #[inline]
    pub(crate) fn decide(&self, state: &mut State) -> Decision {
        let verdict = self.judge(state);
        let answer = self.take(state, verdict, verdict.fits());
        let status = (self.meter).explain(state, self.now(), verdict, View::WHOLE);
        let quotas = QuotaStatuses::of_one(&self.policies[0], status);
        decided(answer, self.time, self.tier, quotas)
    }

    /// Takes the cost that was judged, or nothing. Adds the decision of the limit with this identity to
    /// `merged`.
    #[inline]
    pub(crate) fn conclude(
        &self,
        state: &mut State,
        verdict: Verdict,
        takes: bool,
        limit: u64,
        merged: &mut MergedDecisions,
    ) {
        let answer = self.take(state, verdict, takes);
        let decision = DecisionOfLimit {
            outcome: answer.outcome(),
            charged: answer.charged,
            charged_at: self.time.now,
            tier: self.tier,
            blocked: 0,
            limit,
            class: Priority::CRITICAL,
            shed: false,
        };
        let status = (self.meter).explain(state, self.now(), verdict, View::WHOLE);
        merged.add_one(&decision, self.policies, status);
    }

    #[inline(always)]
    fn take(&self, state: &mut State, verdict: Verdict, takes: bool) -> Answer {
        let charged = if takes { self.cost } else { 0 };
        if charged > 0 {
            (self.meter).charge(state, self.now(), self.time.late, charged, View::WHOLE);
        }
        Answer {
            verdict,
            charged,
            shed: false,
        }
    }
}

/// Charges `cost` units to each of several quotas, or to none, without a block or a class. The states are found by the
/// places of the quotas.
#[inline(always)]
pub(crate) fn charge_several<T>(
    time: ClockReading,
    (quotas, tier): (&TierQuotas, TierIndex),
    cost: u64,
    states: &mut T,
    state_at: impl Fn(&mut T, usize) -> &mut State,
) -> Decision {
    let mut verdicts = Verdicts::filled(quotas.meters.len(), Verdict::FITS);
    let mut verdict = Verdict::FITS;
    for (place, (meter, own)) in (quotas.meters.iter().zip(verdicts.as_mut_slice())).enumerate() {
        let (state, now) = (state_at(states, place), meter.instant(time));
        meter.clamp(state, now);
        *own = meter.verdict(state, now, cost, View::WHOLE);
        verdict = verdict.and(*own);
    }
    let charged = if verdict.fits() { cost } else { 0 };
    let mut statuses = Vec::with_capacity(quotas.meters.len());
    for (place, (meter, own)) in (quotas.meters.iter().zip(verdicts.as_slice())).enumerate() {
        let (state, now) = (state_at(states, place), meter.instant(time));
        if charged > 0 {
            meter.charge(state, now, time.late, charged, View::WHOLE);
        }
        let verdict = if verdict.fits() { verdict } else { *own };
        statuses.push(meter.explain(state, now, verdict, View::WHOLE));
    }
    let answer = Answer {
        verdict,
        charged,
        shed: false,
    };
    let statuses = QuotaStatuses::of_several(&quotas.policies, statuses);
    decided(answer, time, tier, statuses)
}

#[inline(always)]
fn decided(answer: Answer, time: ClockReading, tier: TierIndex, quotas: QuotaStatuses) -> Decision {
    let decision = Decision::new(answer.outcome(), answer.charged, time.now, quotas);
    let mut decision = decision.by_own_clock();
    decision.set_tier(tier);
    decision
}
