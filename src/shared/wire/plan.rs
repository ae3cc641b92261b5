//! Plans: limits as the scripts' arguments have them, and how to read their part of replies.

mod counter_slots;
mod specialized;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub(in crate::shared) use self::{counter_slots::Slot, specialized::SpecializedScript};
use self::{
    counter_slots::{id, slots},
    specialized::SpecializedPlan,
};
use crate::{
    algorithm::{CompiledQuota, Most},
    decision::{Level, Op, Policy},
    error::LimiterError,
    limiter::{
        Tier,
        tier_quotas::{AllQuotas, TierQuotas},
        tier_set::{Chosen, TierIndex, TierSet},
    },
    quota::{Algorithm, Kind, Quota},
};

/// The limits, as the scripts' arguments have them.
#[derive(Debug)]
pub(in crate::shared) struct Plan {
    id: String,
    /// In the order of the limits: receipts refer to tiers by it.
    tiers: Vec<TierPlan>,
    limits: TierSet,
    /// In the order of the value.
    slots: Vec<Slot>,
    all: AllQuotas,
}

/// One tier's quotas: their arguments, and how to read their part of a reply.
#[derive(Debug, Clone)]
pub(in crate::shared) struct TierPlan {
    pub(in crate::shared) index: TierIndex,
    pub(in crate::shared) policies: Vec<Policy>,
    /// For each quota.
    pub(in crate::shared) measures: Vec<QuotaPlan>,
    /// The general script's arguments between the time and the operations.
    arguments: Vec<String>,
    /// The specialized script for such quotas and its arguments, if there is one.
    specialized: Option<SpecializedPlan>,
}

/// How to read the numbers of one quota in a reply.
#[derive(Debug, Clone, Copy)]
pub(in crate::shared) struct QuotaPlan {
    pub(in crate::shared) kind: Kind,
    pub(in crate::shared) form: ReplyForm,
    pub(in crate::shared) has_soft_share: bool,
    pub(super) meter: CompiledQuota,
}

/// The form of a quota's numbers in a reply.
#[derive(Debug, Clone, Copy)]
pub(in crate::shared) enum ReplyForm {
    /// The nanoseconds until the bucket is full. The level here is that of a full bucket.
    Level(Level),
    /// The nanoseconds until the bucket is full, at the last multiple of this many nanoseconds.
    Stepped(u64),
    /// The count, which may be above the limit, and the time until the window ends.
    Window,
    /// All numbers of the status, computed by the script.
    Numbers,
}

impl Plan {
    pub(in crate::shared) fn new(limits: &TierSet) -> Self {
        let all = limits.all();
        let slots = slots(limits, &all.list);
        let mut plan = Self {
            id: id(&slots, limits.epoch().mark()),
            tiers: Vec::new(),
            limits: limits.clone(),
            slots,
            all,
        };
        let tiers = limits.tiers().zip(0..);
        plan.tiers = tiers
            .map(|((_, quotas), index)| plan.of_tier(index, quotas))
            .collect();
        plan
    }

    fn of_tier(&self, index: TierIndex, quotas: &TierQuotas) -> TierPlan {
        let Self {
            limits, slots, all, ..
        } = self;
        let measures = quotas.quotas.iter().zip(&quotas.meters);
        TierPlan {
            index,
            policies: quotas.policies.clone(),
            measures: measures.map(QuotaPlan::new).collect(),
            arguments: general_arguments(limits.block_for, slots, &quotas.quotas, all),
            specialized: SpecializedPlan::new(limits.block_for, slots, &quotas.quotas, all),
        }
    }

    /// A few letters for the algorithms, periods, slices and steps that are counted. They are part
    /// of a subject's key, so that two configurations never read each other's counts.
    pub(in crate::shared) fn id(&self) -> &str {
        &self.id
    }

    pub(in crate::shared) fn limits(&self) -> &TierSet {
        &self.limits
    }

    /// The slots, in the order of the value.
    pub(in crate::shared) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The scripts for few operations that decide by these limits.
    pub(in crate::shared) fn specialized_scripts(&self) -> impl Iterator<Item = SpecializedScript> {
        self.tiers.iter().filter_map(TierPlan::specialized_script)
    }

    /// The quotas that measure `op` in `tier`.
    pub(in crate::shared) fn choose(&self, tier: &Tier, op: &Op) -> Result<Chosen, LimiterError> {
        self.limits.choose(tier, op)
    }

    /// Whether a specialized script can do an operation like this, as far as these quotas allow.
    pub(in crate::shared) fn is_simple(&self, chosen: Chosen, op: &Op) -> bool {
        let is_known = matches!(
            op,
            Op::Acquire(_) | Op::Reserve(_) | Op::Peek(_) | Op::Deny(_) | Op::Count(_)
        );
        is_known
            && match chosen {
                Chosen::Tier(tier) => {
                    let plan = self.tiers.get(usize::from(tier));
                    plan.is_some_and(|plan| plan.specialized.is_some())
                }
                Chosen::Request(_) => true,
            }
    }

    /// The units that the smallest of these quotas has when none is used.
    pub(in crate::shared) fn most_units(&self, chosen: Chosen) -> u64 {
        let mut own = None;
        let quotas = self.limits.measured_by(chosen, &mut own);
        quotas.map_or(0, TierQuotas::most_units)
    }

    pub(in crate::shared) fn tier_count(&self) -> TierIndex {
        self.tiers.len() as TierIndex
    }

    /// The arguments for these quotas; `None` if they are of another plan.
    pub(in crate::shared) fn of(&self, chosen: Chosen) -> Option<Cow<'_, TierPlan>> {
        match chosen {
            Chosen::Tier(tier) => self.tiers.get(usize::from(tier)).map(Cow::Borrowed),
            Chosen::Request(fitted) => {
                let quotas = self.limits.of_request(fitted)?;
                Some(Cow::Owned(self.of_tier(chosen.index(), &quotas)))
            }
        }
    }
}

impl TierPlan {
    /// The specialized script for such quotas, if there is one.
    pub(in crate::shared) fn specialized_script(&self) -> Option<SpecializedScript> {
        self.specialized
            .as_ref()
            .map(|specialized| specialized.script)
    }

    /// The arguments between the time and the operations: of the specialized script, or of the general one.
    pub(super) fn constant_arguments(&self, script: Option<SpecializedScript>) -> &[String] {
        let specialized = self.specialized.as_ref();
        match specialized.filter(|specialized| script == Some(specialized.script)) {
            Some(specialized) => &specialized.arguments,
            None => &self.arguments,
        }
    }
}

impl QuotaPlan {
    fn new((quota, meter): (&Quota, &CompiledQuota)) -> Self {
        let form = match (quota.algorithm(), quota.refill_every_nanos()) {
            (Algorithm::TokenBucket, Some(step)) => ReplyForm::Stepped(step),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }, _) => {
                ReplyForm::Level(Level {
                    used: 0,
                    refill: quota.capacity() * quota.interval_nanos(),
                    interval: quota.interval_nanos(),
                })
            }
            (Algorithm::FixedWindow, _) => ReplyForm::Window,
            _ => ReplyForm::Numbers,
        };
        Self {
            kind: quota.kind(),
            form,
            has_soft_share: quota.extra() > 0,
            meter: *meter,
        }
    }
}

/// The general script's arguments between the time and the operations.
fn general_arguments(
    block_for: Option<u64>,
    slots: &[Slot],
    quotas: &[Quota],
    all: &AllQuotas,
) -> Vec<String> {
    let mut arguments = match block_for {
        Some(nanos) => micros_and_rest(nanos).to_vec(),
        None => vec![String::new(), String::new()],
    };
    arguments.push(slots.len().to_string());
    for slot in slots {
        let own = quotas
            .get(slot.at.0)
            .filter(|own| slot.counts(slot.at, own));
        let quota = own.unwrap_or(&slot.quota);
        arguments.push(slot.letter().into());
        arguments.push(u8::from(own.is_some()).to_string());
        arguments.push((quota.capacity() + quota.extra()).to_string());
        arguments.push(quota.extra().to_string());
        arguments.extend(micros_and_rest(quota.interval_nanos()));
        arguments.extend(specifics(quota));
        arguments.extend(more_than_own(quota, all.most(slot.at, quota)));
    }
    arguments
}

/// The two arguments that differ by algorithm.
fn specifics(quota: &Quota) -> [String; 2] {
    match quota.algorithm() {
        Algorithm::TokenBucket => {
            let step = quota.refill_every_nanos().unwrap_or(0) / 1_000;
            [step.to_string(), String::new()]
        }
        Algorithm::LeakyBucket { .. } => [String::new(), String::new()],
        Algorithm::FixedWindow | Algorithm::SlidingLog => micros_and_rest(quota.period_nanos()),
        Algorithm::SlidingWindow => {
            let slices = quota.slice_count();
            let slice = quota.period_nanos() / 1_000 / u64::from(slices);
            [slice.to_string(), slices.to_string()]
        }
    }
}

/// The most that can count in the slot of `quota`; empty unless that is more than its capacity.
fn more_than_own(quota: &Quota, most: Most) -> [String; 2] {
    let own = Most::of(quota);
    let capacity = quota.capacity() + quota.extra();
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } if most.nanos > own.nanos => {
            micros_and_rest(most.nanos)
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow if most.units > capacity => {
            [most.units.to_string(), String::new()]
        }
        _ => [String::new(), String::new()],
    }
}

pub(super) fn micros_and_rest(nanos: u64) -> [String; 2] {
    [(nanos / 1_000).to_string(), (nanos % 1_000).to_string()]
}
