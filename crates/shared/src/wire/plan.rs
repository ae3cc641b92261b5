//! Plans: limits as the scripts' arguments have them, and how to read their part of replies.

mod counter_slots;
mod specialized;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

pub(crate) use self::{counter_slots::Slot, specialized::SpecializedScript};
use self::{
    counter_slots::{id, slots},
    specialized::SpecializedPlan,
};
use tower_ratelimit_core::{
    algorithm::{Meter, Most, TokenBucket},
    decision::{Op, OpRef, Policy},
    error::LimiterError,
    limiter::{
        Tier,
        tier_quotas::{AllQuotas, TierQuotas},
        tier_set::{Chosen, TierIndex, TierSet},
    },
    quota::{Algorithm, Priority, Quota},
};

/// The general script's arguments between the time and the first slot.
const BEFORE_SLOTS: usize = 3;

/// The arguments of a slot, and the place among them of the two that differ by algorithm.
const SLOT_FIELDS: usize = 10;
const SPECIFICS: usize = 6;

/// The limits, as the scripts' arguments have them.
#[derive(Debug)]
pub(crate) struct Plan {
    id: String,
    /// In the order of the limits: receipts refer to tiers by it.
    tiers: Vec<TierPlan>,
    /// The plan of each tier for each class of requests below critical, by its share, made for the first
    /// request of the class.
    classes: Vec<OnceLock<ClassPlans>>,
    limits: TierSet,
    /// In the order of the value.
    slots: Vec<Slot>,
    all: AllQuotas,
}

/// The plans of one tier for classes of requests, by their shares in percent.
type ClassPlans = Box<[OnceLock<Box<TierPlan>>; 100]>;

/// One tier's quotas: their arguments, and how to read their part of a reply.
#[derive(Debug, Clone)]
pub(crate) struct TierPlan {
    pub(crate) reply: Arc<ReplyPlan>,
    /// The general script's arguments between the time and the operations.
    arguments: Vec<String>,
    /// The slots that count in windows of a calendar, with the place of their two specific arguments, which depend on
    /// the time.
    timed: Vec<(usize, Meter)>,
    /// The specialized script for such quotas and its arguments, if there is one.
    specialized: Option<SpecializedPlan>,
}

/// How to read the numbers of one tier's quotas in a reply.
#[derive(Debug)]
pub(crate) struct ReplyPlan {
    pub(crate) index: TierIndex,
    pub(crate) class: Priority,
    pub(crate) policies: Arc<[Policy]>,
    pub(crate) meters: Box<[Meter]>,
}

impl Plan {
    pub(crate) fn new(limits: &TierSet) -> Self {
        let all = limits.all();
        let slots = slots(limits, &all.list);
        let mut plan = Self {
            id: id(&slots, limits.counter_mark()),
            tiers: Vec::new(),
            classes: Vec::new(),
            limits: limits.clone(),
            slots,
            all,
        };
        let tiers = limits.tiers().zip(0..);
        plan.tiers = tiers
            .map(|((_, quotas), index)| plan.of_tier(index, quotas, Priority::CRITICAL))
            .collect();
        plan.classes
            .resize_with(plan.tiers.len(), OnceLock::default);
        plan
    }

    fn of_tier(&self, index: TierIndex, quotas: &TierQuotas, class: Priority) -> TierPlan {
        let Self {
            limits, slots, all, ..
        } = self;
        TierPlan {
            reply: Arc::new(ReplyPlan {
                index,
                class,
                policies: quotas.policies.clone(),
                meters: quotas.meters.as_slice().into(),
            }),
            arguments: general_arguments(limits.block_for, slots, (&quotas.quotas, class), all),
            timed: timed(slots),
            // Only the general script knows classes.
            specialized: (class.is_critical())
                .then(|| SpecializedPlan::new(limits.block_for, slots, &quotas.quotas, all))
                .flatten(),
        }
    }

    /// A few letters for the algorithms, periods, slices and steps that are counted. They are part
    /// of a subject's key, so that two configurations never read each other's counts.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn limits(&self) -> &TierSet {
        &self.limits
    }

    /// The slots, in the order of the value.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The specialized scripts that decide by these limits.
    pub(crate) fn specialized_scripts(&self) -> impl Iterator<Item = SpecializedScript> {
        self.tiers.iter().filter_map(TierPlan::specialized_script)
    }

    /// The quotas that measure `op` in `tier`.
    pub(crate) fn choose(
        &self,
        tier: &Tier,
        class: Priority,
        op: OpRef<'_>,
    ) -> Result<Chosen, LimiterError> {
        self.limits.choose(tier, class, op)
    }

    /// Whether a specialized script can do an operation like this, as far as these quotas allow.
    pub(crate) fn is_specialized(&self, chosen: Chosen, op: &Op) -> bool {
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
                Chosen::TierInClass(..) | Chosen::RequestInClass(..) => false,
            }
    }

    /// The units that the smallest of these quotas has when none is used.
    pub(crate) fn most_units(&self, chosen: Chosen) -> u64 {
        let mut own = None;
        let quotas = self.limits.measured_by(chosen, &mut own);
        quotas.map_or(0, |quotas| quotas.most_units(chosen.class()))
    }

    /// The default tier's quota, if it is one token bucket alone.
    #[inline]
    pub(crate) fn only_bucket(&self) -> Option<(&Policy, &TokenBucket)> {
        let plan = &*self.tiers.first()?.reply;
        match (&*plan.policies, &*plan.meters) {
            ([policy], [meter]) => Some((policy, meter.token()?)),
            _ => None,
        }
    }

    /// The arguments for these quotas; `None` if they are of another plan.
    pub(crate) fn of(&self, chosen: Chosen) -> Option<Cow<'_, TierPlan>> {
        match chosen {
            Chosen::Tier(tier) => self.tiers.get(usize::from(tier)).map(Cow::Borrowed),
            Chosen::TierInClass(tier, class) => {
                let plans = self.classes.get(usize::from(tier))?;
                let plans = plans.get_or_init(|| Box::new([const { OnceLock::new() }; 100]));
                let plan = plans.get(usize::from(class.percent()))?;
                let new = || Box::new(self.of_tier(tier, self.limits.quotas(tier), class));
                Some(Cow::Borrowed(plan.get_or_init(new)))
            }
            Chosen::Request(fitted) | Chosen::RequestInClass(fitted, _) => {
                let quotas = self.limits.of_request(fitted)?;
                let plan = self.of_tier(chosen.index(), &quotas, chosen.class());
                Some(Cow::Owned(plan))
            }
        }
    }
}

impl TierPlan {
    /// The specialized script for such quotas, if there is one.
    pub(crate) fn specialized_script(&self) -> Option<SpecializedScript> {
        self.specialized
            .as_ref()
            .map(|specialized| specialized.script)
    }

    /// The slots with arguments that depend on the time, with the place of these among the constant ones.
    pub(super) fn timed(&self) -> &[(usize, Meter)] {
        &self.timed
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

/// The general script's arguments between the time and the operations.
fn general_arguments(
    block_for: Option<u64>,
    slots: &[Slot],
    (quotas, class): (&[Quota], Priority),
    all: &AllQuotas,
) -> Vec<String> {
    let mut arguments = match block_for {
        Some(nanos) => micros_and_rest(nanos).to_vec(),
        None => vec![String::new(), String::new()],
    };
    arguments.push(slots.len().to_string());
    for slot in slots {
        let own = own_of(slot, quotas);
        let quota = own.unwrap_or(&slot.quota);
        arguments.push(slot.letter().into());
        arguments.push(u8::from(own.is_some()).to_string());
        let capacity = quota.capacity() + quota.extra();
        arguments.push(capacity.to_string());
        arguments.push(if class.is_critical() {
            quota.extra().to_string()
        } else {
            format!("-{}", capacity - class.part_of(quota.capacity()))
        });
        arguments.extend(micros_and_rest(quota.interval_nanos()));
        arguments.extend(specifics(quota));
        arguments.extend(more_than_own(quota, all.most(slot.at, quota)));
    }
    arguments
}

fn own_of<'q>(slot: &Slot, quotas: &'q [Quota]) -> Option<&'q Quota> {
    let own = quotas.get(slot.at.0);
    own.filter(|own| slot.counts(slot.at, own))
}

/// The slots whose specific arguments depend on the time, with the place of these arguments.
fn timed(slots: &[Slot]) -> Vec<(usize, Meter)> {
    let places = (BEFORE_SLOTS + SPECIFICS..).step_by(SLOT_FIELDS).zip(slots);
    let timed = places.filter(|(_, slot)| slot.quota.calendar().is_some());
    timed.map(|(place, slot)| (place, slot.meter)).collect()
}

/// The two arguments that differ by algorithm. Those of a calendar depend on the time.
fn specifics(quota: &Quota) -> [String; 2] {
    match quota.algorithm() {
        Algorithm::TokenBucket => {
            let step = quota.refill_every_nanos().unwrap_or(0) / 1_000;
            [step.to_string(), String::new()]
        }
        Algorithm::FixedWindow | Algorithm::SlidingLog => micros_and_rest(quota.period_nanos()),
        Algorithm::SlidingWindow => {
            let slices = quota.slice_count();
            let slice = quota.period_nanos() / 1_000 / u64::from(slices);
            [slice.to_string(), slices.to_string()]
        }
        _ => [String::new(), String::new()],
    }
}

/// The most that can count in the slot of `quota`; empty unless that is more than its capacity.
fn more_than_own(quota: &Quota, most: Most) -> [String; 2] {
    let own = Most::without_debt(quota);
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
