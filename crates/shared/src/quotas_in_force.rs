//! The quotas in force, compiled for the store.

use std::{sync::Arc, time::Duration};

use super::{hashed_key_names::MeasuredSubject, last_states::LastStates, wire::plan::Plan};
use tower_ratelimit_core::{
    algorithm::{State, View},
    clock::Timestamp,
    decision::Policy,
    limiter::tier_set::{Chosen, TierSet},
};
use tower_ratelimit_store::key_name;

/// The quotas in force, and the place of their counters in the store.
#[derive(Debug)]
pub(super) struct CurrentPlan {
    pub(super) plan: Plan,
    /// The common beginning of all subjects' keys.
    pub(super) keyspace: String,
    /// Number of changes of the quotas so far.
    pub(super) generation: u64,
}

/// The key of a subject and its quotas: enough to send a message that no request causes.
#[derive(Debug, Clone)]
pub(super) struct KeyPlace {
    /// The name in the store without the keyspace, which the plan contains.
    pub(super) key: Box<str>,
    pub(super) plan: Arc<CurrentPlan>,
}

impl CurrentPlan {
    pub(super) fn new((prefix, name): (&str, &str), limits: &TierSet, generation: u64) -> Self {
        let plan = Plan::new(limits);
        Self {
            keyspace: key_name::keyspace(prefix, name, plan.id()),
            plan,
            generation,
        }
    }

    /// The state of the quotas for a subject without a value in the store.
    pub(super) fn fresh(&self, chosen: Chosen, time: Timestamp) -> Option<LastStates> {
        let plan = self.plan.of(chosen)?;
        Some(LastStates::fresh(&plan.reply, time))
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
        let tiers = self.plan.limits().tiers();
        let longest = tiers.flat_map(|(_, quotas)| &quotas.meters).map(|meter| {
            let (mut used_up, mut spent) = (State::FRESH, State::FRESH);
            meter.charge(&mut used_up, 0, 0, u64::MAX, View::WHOLE);
            meter.spend(&mut spent, 0, u64::MAX, View::WHOLE);
            let [used_up, spent] =
                [used_up, spent].map(|state| meter.reset_after(&state, 0, View::WHOLE));
            // A bucket can be in debt by as much again, or by more.
            Duration::from_nanos(used_up.saturating_mul(2).max(spent))
        });
        longest.max().unwrap_or(Duration::MAX)
    }

    pub(super) fn policies(&self, chosen: Chosen) -> Arc<[Policy]> {
        let plan = self.plan.of(chosen);
        plan.map(|plan| plan.reply.policies.clone())
            .unwrap_or_default()
    }
}
