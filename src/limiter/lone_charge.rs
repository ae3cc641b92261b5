//! A charge of one quota by a critical request, for a key that is not blocked and cannot be.

use crate::{
    algorithm::{Answer, CompiledQuota, Counts, State, Verdict},
    clock::ClockReading,
    decision::{Decision, DecisionOfLimit, MergedDecisions, Policy, QuotaStatuses},
    limiter::tier_quotas::{TierIndex, TierQuotas},
    quota::Priority,
};

/// A charge of `cost` units to one quota that counts on one state, without a block or a class: the usual work of
/// [`Apply`](super::apply_operation::Apply), without its lists.
pub(crate) struct LoneCharge<'a> {
    time: ClockReading,
    meter: &'a CompiledQuota,
    policy: &'a Policy,
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
        let ([meter], [policy]) = (&*quotas.meters, &*quotas.policies) else {
            return None;
        };
        Some(Self {
            time,
            meter,
            policy,
            tier,
            cost,
        })
    }

    #[inline]
    fn now(&self) -> u64 {
        self.meter.instant(self.time)
    }

    /// The verdict on the cost; nothing is taken.
    #[inline]
    pub(crate) fn judge(&self, state: &mut State) -> Verdict {
        let now = self.now();
        self.meter.clamp(state, now);
        self.meter.verdict(state, now, self.cost)
    }

    /// Takes the cost if it fits.
    #[inline]
    pub(crate) fn decide(&self, state: &mut State) -> Decision {
        let verdict = self.judge(state);
        let answer = self.take(state, verdict, verdict.fits());
        let measure = self.meter.measure(state, self.now(), verdict);
        let quotas = QuotaStatuses::of_one(self.policy, &measure);
        let decision = Decision::new(answer.outcome(), answer.charged, self.time.now, quotas);
        let mut decision = decision.by_own_clock();
        decision.set_tier(self.tier);
        decision
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
        let measure = self.meter.measure(state, self.now(), verdict);
        merged.add_one(&decision, self.policy, &measure);
    }

    #[inline]
    fn take(&self, state: &mut State, verdict: Verdict, takes: bool) -> Answer {
        let charged = if takes { self.cost } else { 0 };
        if charged > 0 {
            (self.meter).charge_late(state, self.now(), self.time.late, charged);
        }
        Answer {
            verdict,
            charged,
            shed: false,
        }
    }
}
