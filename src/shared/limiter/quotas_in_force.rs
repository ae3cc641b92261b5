//! The quotas in force, compiled for the store.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Timestamp,
    decision::{Decision, Op, Policy},
    limiter::tier_set::{Chosen, TierSet},
    shared::{
        hashed_key_names::MeasuredSubject,
        known::Known,
        store_backend::Client,
        wire::{StoreCall, plan::Plan},
    },
    store::key_name,
};

/// The quotas in force, and the place of their counters in the store.
#[derive(Debug)]
pub(super) struct CurrentPlan {
    pub(super) plan: Plan,
    /// The common beginning of all subjects' keys.
    pub(super) keyspace: String,
    /// Number of changes of the quotas so far.
    pub(super) generation: u64,
}

impl CurrentPlan {
    pub(super) fn new<C: Client>(
        client: &C,
        name: &str,
        limits: &TierSet,
        generation: u64,
    ) -> Self {
        let plan = Plan::new(limits);
        client.prepare(&plan);
        Self {
            keyspace: key_name::keyspace(client.prefix(), name, plan.id()),
            plan,
            generation,
        }
    }

    /// The state of the quotas for a subject without a value in the store.
    pub(super) fn fresh(&self, chosen: Chosen, time: Timestamp) -> Option<Known> {
        let decision = self.decide(chosen, &[(Op::Peek(1), 1)], time)?;
        let plan = self.plan.of(chosen)?;
        Some(Known::new(&plan.reply, &decision))
    }

    /// The decision about these operations on such a subject.
    fn decide(&self, chosen: Chosen, rows: &[(Op, usize)], time: Timestamp) -> Option<Decision> {
        let call = StoreCall::new(&self.plan, chosen, rows);
        let applied = call.apply(None, time).ok()?;
        call.decisions(applied.reply).ok()?.pop()
    }

    /// A subject, as these quotas of it measure it.
    pub(super) const fn measured(&self, tag: u64, chosen: Chosen) -> MeasuredSubject {
        MeasuredSubject {
            tag,
            chosen,
            generation: self.generation,
        }
    }

    /// The longest time until a subject that was used is fresh again.
    pub(super) fn longest_memory(&self) -> Duration {
        let of_tier = |tier| {
            let after = |op| {
                let used = self.decide(Chosen::Tier(tier), &[(op, 1)], Timestamp::default())?;
                used.quotas().filter_map(|quota| quota.reset_after()).max()
            };
            // A bucket can be in debt by as much again, or by more.
            let used_up = after(Op::Hit(u64::MAX)).map(|used| used.saturating_mul(2));
            used_up.max(after(Op::Spend(u64::MAX)))
        };
        let longest = (0..self.plan.tier_count()).filter_map(of_tier).max();
        longest.unwrap_or(Duration::MAX)
    }

    pub(super) fn policies(&self, chosen: Chosen) -> Arc<[Policy]> {
        let plan = self.plan.of(chosen);
        plan.map(|plan| plan.reply.policies.clone())
            .unwrap_or_default()
    }
}
