//! Plans: the quotas in force, as the scripts' arguments have them, and how to read their part of replies.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    fmt::Write as _,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::prehashed_key_names::MeasuredSubject;
use tower_ratelimit_core::{
    algorithm::{CounterIndex, Meter, Most, State, TokenBucket, View},
    decision::{Op, Policy},
    limiter::{
        limits_in_force::{Chosen, TierIndex, TierSet},
        tier::{AllQuotas, TierPlace, TierQuotas},
    },
    quota::{Algorithm, Priority, Quota},
};
use tower_ratelimit_store::{LUA_MAX_INT, key_name};

/// The general script's arguments between the time and the first slot.
const BEFORE_SLOTS: usize = 3;

/// The arguments of a slot, and the place among them of the two that differ by algorithm.
const SLOT_FIELDS: usize = 10;
const SPECIFICS: usize = 6;

/// The limits, as the scripts' arguments have them.
#[derive(Debug)]
pub(crate) struct Plan {
    /// A few letters for the algorithms, periods, slices and steps that are counted. They are part
    /// of a subject's key, so that two configurations never read each other's counts.
    id: String,
    /// The common beginning of all subjects' keys; empty where subjects have full names.
    pub(crate) keyspace: String,
    /// Number of changes of the quotas so far.
    pub(crate) generation: u64,
    /// In the order of the limits: receipts refer to tiers by it.
    tiers: Vec<TierPlan>,
    /// The plan of each tier for each class of requests below critical, by its share, made for the first
    /// request of the class.
    classes: Vec<OnceLock<ClassPlans>>,
    pub(crate) limits: TierSet,
    /// In the order of the value.
    pub(crate) slots: Vec<Slot>,
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
    pub(super) timed: Vec<(usize, Meter)>,
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
            keyspace: String::new(),
            generation: 0,
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

    /// The plan of a limiter of this prefix and name, after so many changes of its quotas.
    pub(crate) fn in_force(
        (prefix, name): (&str, &str),
        limits: &TierSet,
        generation: u64,
    ) -> Self {
        let plan = Self::new(limits);
        Self {
            keyspace: key_name::keyspace(prefix, name, &plan.id),
            generation,
            ..plan
        }
    }

    fn of_tier(&self, index: TierIndex, quotas: &TierQuotas, class: Priority) -> TierPlan {
        TierPlan {
            reply: Arc::new(ReplyPlan {
                index,
                class,
                policies: quotas.policies.clone(),
                meters: quotas.meters.as_slice().into(),
            }),
            arguments: self.general_arguments(&quotas.quotas, class),
            timed: timed(&self.slots),
            // Only the general script knows classes.
            specialized: (class.is_critical())
                .then(|| SpecializedPlan::new(self, &quotas.quotas))
                .flatten(),
        }
    }

    /// The specialized scripts that decide by these limits.
    pub(crate) fn specialized_scripts(&self) -> impl Iterator<Item = SpecializedScript> {
        self.tiers.iter().filter_map(TierPlan::specialized_script)
    }

    /// A subject, as these quotas of it measure it.
    pub(crate) const fn measured(&self, tag: u64, chosen: Chosen) -> MeasuredSubject {
        MeasuredSubject {
            tag,
            chosen,
            generation: self.generation,
        }
    }

    /// The longest time until a subject that was used is fresh again.
    pub(crate) fn longest_memory(&self) -> Duration {
        let tiers = self.limits.tiers();
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

    pub(crate) fn policies(&self, chosen: Chosen) -> Arc<[Policy]> {
        let plan = self.of(chosen);
        plan.map(|plan| plan.reply.policies.clone())
            .unwrap_or_default()
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

    /// The general script's arguments between the time and the operations.
    fn general_arguments(&self, quotas: &[Quota], class: Priority) -> Vec<String> {
        let mut arguments = match self.limits.block_for {
            Some(nanos) => micros_and_rest(nanos).to_vec(),
            None => vec![String::new(), String::new()],
        };
        arguments.push(self.slots.len().to_string());
        for slot in &self.slots {
            let own = quotas.get(slot.at.0);
            let own = own.filter(|own| slot.counts(slot.at, own));
            let quota = own.unwrap_or(&slot.quota);
            arguments.push(slot.quota.letter().into());
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
            arguments.extend(more_than_own(quota, self.all.most(slot.at, quota)));
        }
        arguments
    }
}

impl TierPlan {
    /// The specialized script for such quotas, if there is one.
    pub(crate) fn specialized_script(&self) -> Option<SpecializedScript> {
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

/// A counter, shared by the quotas of all tiers that have the same place and count alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    at: TierPlace,
    quota: Quota,
    pub(crate) meter: Meter,
    /// The counter of a key in this process.
    pub(crate) counter: CounterIndex,
}

/// The slots of all tiers, in the order of the quotas. Slots of one place are sorted by their shape:
/// it does not matter which tier has which.
fn slots(limits: &TierSet, all: &[(TierPlace, Quota)]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for (at, quota) in all {
        if slots.iter().any(|slot| slot.counts(*at, quota)) {
            continue;
        }
        slots.extend(limits.meter_of(*at, quota).map(|(counter, meter)| Slot {
            at: *at,
            quota: *quota,
            meter,
            counter,
        }));
    }
    slots.sort_by_cached_key(|slot| (slot.at, slot.shape()));
    slots
}

impl Slot {
    fn counts(&self, at: TierPlace, quota: &Quota) -> bool {
        self.at == at && self.quota.counts_like(quota)
    }

    /// The settings that are equal in quotas that count alike.
    fn shape(&self) -> String {
        let period = self.quota.period_nanos();
        let slices = self.quota.slice_count();
        let mut shape = format!("{}{period}/{slices}", self.quota.letter());
        if let Some(step) = self.quota.refill_every_nanos() {
            write!(shape, "+{step}").expect("writing to a text never fails");
        }
        if let Some(calendar) = self.quota.calendar() {
            write!(shape, "@{calendar}").expect("writing to a text never fails");
        }
        shape
    }
}

/// A few letters for the shapes of the slots, and the numbers' part of the counters' names, if there is one.
fn id(slots: &[Slot], counter_mark: u32) -> String {
    let mut shapes = String::new();
    for slot in slots {
        write!(shapes, "{}{};", slot.at.0, slot.shape()).expect("writing to a text never fails");
    }
    let letters = key_name::letters_of(&shapes);
    match counter_mark {
        0 => letters,
        mark => format!("{letters}{mark:08x}"),
    }
}

/// A specialized script, by the quotas that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecializedScript {
    Lone,
    Several,
}

/// The script for such quotas, and its arguments between the time and the operations.
#[derive(Debug, Clone)]
struct SpecializedPlan {
    script: SpecializedScript,
    arguments: Vec<String>,
}

/// The most nanoseconds of a bucket, whose times are single numbers: the sum of two is exact. These are 52 days.
const MAX_NANOS: u64 = 1 << 52;

/// A pattern in Lua has 32 captures. A window has one for each slice, and two more.
const MAX_SLICES: u32 = 30;

/// One quota, as these scripts count it.
struct Counter {
    letter: &'static str,
    /// The nanoseconds of a unit of a bucket; the microseconds of a window or slice.
    length: u64,
    /// The most at once, and the most that can count: nanoseconds of a bucket, units of a window.
    capacity: u64,
    most: u64,
    /// The counts of a window.
    counts: u32,
}

impl SpecializedPlan {
    /// The plan for these quotas: `None` if no specialized script is for them, if the subject has other
    /// counters, if denials block, if a quota follows the calendar, or if the numbers are
    /// too large for the script.
    fn new(plan: &Plan, quotas: &[Quota]) -> Option<Self> {
        if plan.limits.block_for.is_some() || plan.slots.len() != quotas.len() {
            return None;
        }
        let counters = plan.slots.iter().zip(quotas).map(|(slot, quota)| {
            let most = plan.all.most(slot.at, quota);
            Counter::of(quota, most.max(Most::of(quota)))
        });
        let counters: Vec<_> = counters.collect::<Option<_>>()?;
        let texts = |counter: &Counter| {
            let numbers = [counter.length, counter.capacity, counter.most];
            let numbers = numbers.map(|number| number.to_string());
            [counter.letter.to_owned()].into_iter().chain(numbers)
        };
        let (script, arguments) = match counters.as_slice() {
            [one] if one.letter != "s" || one.counts == 2 => {
                (SpecializedScript::Lone, texts(one).collect())
            }
            all => {
                let each = all.iter();
                let each = each.flat_map(|one| texts(one).chain([one.counts.to_string()]));
                let count = [all.len().to_string()].into_iter();
                (SpecializedScript::Several, count.chain(each).collect())
            }
        };
        Some(Self { script, arguments })
    }
}

impl Counter {
    fn of(quota: &Quota, most: Most) -> Option<Self> {
        let capacity = quota.capacity() + quota.extra();
        let window = |letter, counts| {
            let period = quota.period_nanos();
            let is_whole = period.is_multiple_of(1_000) && quota.calendar().is_none();
            is_whole.then(|| Self {
                letter,
                length: period / 1_000 / u64::from(quota.slice_count()),
                capacity,
                most: most.units,
                counts,
            })
        };
        match quota.algorithm() {
            Algorithm::TokenBucket if quota.refill_every_nanos().is_none() => {
                let full = Most::without_debt(quota).nanos;
                let are_short = [quota.interval_nanos(), full, most.nanos]
                    .iter()
                    .all(|nanos| *nanos < MAX_NANOS);
                are_short.then(|| Self {
                    letter: "t",
                    length: quota.interval_nanos(),
                    capacity: full,
                    most: most.nanos,
                    counts: 1,
                })
            }
            Algorithm::FixedWindow => window("f", 1),
            Algorithm::SlidingWindow if quota.slice_count() <= MAX_SLICES => {
                let counts = quota.slice_count() + 1;
                // The script weighs a count, and adds all of them.
                window("s", counts).filter(|window| {
                    is_exact(most.units, window.length) && is_exact(most.units, counts.into())
                })
            }
            _ => None,
        }
    }
}

/// Whether a product is exact in the scripts.
fn is_exact(one: u64, two: u64) -> bool {
    let product = one.checked_mul(two);
    product.is_some_and(|product| product <= LUA_MAX_INT)
}
