//! Arguments of the script: the limits in force, and the operations.

mod lone;
mod slots;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, ptr};

use self::{
    lone::LonePlan,
    slots::{Slot, id, slots},
};
use super::lease::{LONGEST_LEASE, LeaseClause};
use crate::{
    algorithm::{Counts as _, Meter, Most},
    decision::Op,
    decision::{Charge, Level, Policy, Receipt},
    error::LimiterError,
    limiter::{
        Tier,
        limits::{Chosen, Limits, TierIndex},
        quotas::{AllQuotas, Quotas},
    },
    quota::{Algorithm, Kind, MAX_REFILL_NANOS, Quota},
    redis::{
        script::{DECIDE, LUA_MAX_INT},
        store::script::Script,
    },
};

/// The limits in force, as the script is told.
#[derive(Debug)]
pub(super) struct Plan {
    id: String,
    /// In the order of the limits, which receipts name them by.
    tiers: Vec<TierPlan>,
    limits: Limits,
    slots: Vec<Slot>,
    /// The same slots, as they are counted here.
    counters: Vec<SlotCounter>,
    all: AllQuotas,
}

/// A slot, as it is counted here.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotCounter {
    /// Its place among the counters of a key.
    pub(super) place: usize,
    /// That of one of the quotas that it counts.
    pub(super) meter: Meter,
}

/// One tier's quotas, as the script is told and as its reply is read.
#[derive(Debug, Clone)]
pub(super) struct TierPlan {
    pub(super) index: TierIndex,
    pub(super) policies: Vec<Policy>,
    /// For each quota.
    pub(super) measures: Vec<QuotaPlan>,
    /// All arguments between the time and the operations.
    arguments: Vec<String>,
    /// What the script is told that knows no more than such a quota, if there is one.
    lone: Option<LonePlan>,
}

/// How the script's numbers about one quota are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaPlan {
    pub(super) kind: Kind,
    pub(super) told: Told,
    pub(super) has_soft_share: bool,
    meter: Meter,
}

/// The operations on one subject, and what is said about a lease of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) rows: &'a [(Op, usize)],
    pub(super) lease: Option<&'a LeaseClause>,
}

/// The form in which the script tells how a quota stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Told {
    /// How far from full the bucket is, of which this is the full one.
    Level(Level),
    /// The distance from full at the last multiple of this many nanoseconds.
    Stepped(u64),
    /// What was counted, also beyond the limit, and the time until the window ends.
    Window,
    /// All that there is to say.
    Numbers,
}

impl Plan {
    pub(super) fn new(limits: &Limits) -> Self {
        let all = limits.all();
        let slots = slots(&all.list);
        let counters = slots.iter().filter_map(|slot| {
            let (place, meter) = limits.meter_of(slot.at, &slot.quota)?;
            Some(SlotCounter { place, meter })
        });
        let mut plan = Self {
            counters: counters.collect(),
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

    fn of_tier(&self, index: TierIndex, quotas: &Quotas) -> TierPlan {
        let Self {
            limits, slots, all, ..
        } = self;
        let measures = quotas.quotas.iter().zip(&quotas.meters);
        TierPlan {
            index,
            policies: quotas.policies.clone(),
            measures: measures.map(QuotaPlan::new).collect(),
            arguments: arguments(limits.block_for, slots, &quotas.quotas, all),
            lone: LonePlan::new(limits.block_for, slots, &quotas.quotas, all),
        }
    }

    /// A few letters for the algorithms, periods, slices and steps that are counted. They are part
    /// of a subject's key, so that two configurations never read each other's counts.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The slots, in the order of the value.
    pub(super) fn slots(&self) -> &[SlotCounter] {
        &self.counters
    }

    /// The scripts that decide by these limits.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &'static Script> {
        let lone = self.tiers.iter().filter_map(TierPlan::lone_script);
        lone.chain([&*DECIDE])
    }

    /// The quotas that `op` in `tier` is measured by.
    pub(super) fn choose(&self, tier: &Tier, op: &Op) -> Result<Chosen, LimiterError> {
        self.limits.choose(tier, op)
    }

    /// Whether an operation like this is one for a script that does no more than such, as far as is
    /// known of these quotas.
    pub(super) fn is_simple(&self, chosen: Chosen, op: &Op) -> bool {
        let is_known = matches!(
            op,
            Op::Acquire(_) | Op::Reserve(_) | Op::Peek(_) | Op::Deny(_) | Op::Count(_)
        );
        is_known
            && match chosen {
                Chosen::Tier(tier) => {
                    let plan = self.tiers.get(usize::from(tier));
                    plan.is_some_and(|plan| plan.lone.is_some())
                }
                Chosen::Request(_) => true,
            }
    }

    /// The units that the smallest of these quotas has when none is used.
    pub(super) fn most_units(&self, chosen: Chosen) -> u64 {
        let mut own = None;
        let quotas = self.limits.measured_by(chosen, &mut own);
        quotas.map_or(0, Quotas::most_units)
    }

    pub(super) fn tier_count(&self) -> TierIndex {
        self.tiers.len() as TierIndex
    }

    /// The arguments for these quotas; `None` if they were chosen from another plan.
    pub(super) fn of(&self, chosen: Chosen) -> Option<Cow<'_, TierPlan>> {
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
    /// The script's arguments for subjects, at `now` or at the time of the server: of each its rows of
    /// alike operations. All that is the same in every call is only lent.
    pub(super) fn arguments(&self, now: Option<u64>, subjects: &[Asking<'_>]) -> Vec<Cow<'_, str>> {
        self.arguments_after(&self.arguments, now, subjects)
    }

    /// The script that knows no more than such a quota, if there is one.
    pub(super) fn lone_script(&self) -> Option<&'static Script> {
        self.lone.as_ref().map(|lone| lone.script)
    }

    /// The arguments of that script, or of the general one.
    pub(super) fn arguments_of(
        &self,
        script: &Script,
        now: Option<u64>,
        subjects: &[Asking<'_>],
    ) -> Vec<Cow<'_, str>> {
        let lone = self.lone.as_ref();
        let plan = match lone.filter(|lone| ptr::eq(lone.script, script)) {
            Some(lone) => &lone.arguments,
            None => &self.arguments,
        };
        self.arguments_after(plan, now, subjects)
    }

    fn arguments_after<'a>(
        &'a self,
        plan: &'a [String],
        now: Option<u64>,
        subjects: &[Asking<'_>],
    ) -> Vec<Cow<'a, str>> {
        let mut arguments = Vec::with_capacity(1 + plan.len() + 4 * subjects.len());
        arguments.push(now.map_or(Cow::Borrowed(""), number));
        arguments.extend(plan.iter().map(|text| Cow::from(text.as_str())));
        let mut before: Option<&[(Op, usize)]> = None;
        for Asking { rows, lease } in subjects {
            if let Some(lease) = lease {
                push_lease(&mut arguments, lease);
            }
            if before == Some(*rows) {
                arguments.push("=".into());
                continue;
            }
            let length_at = arguments.len();
            arguments.push("".into());
            for (op, count) in *rows {
                self.push(&mut arguments, op, *count);
            }
            arguments[length_at] = number((arguments.len() - length_at - 1) as u64);
            before = Some(rows);
        }
        arguments
    }

    fn push(&self, arguments: &mut Vec<Cow<'_, str>>, op: &Op, times: usize) {
        let (letter, cost) = match op {
            Op::Acquire(cost) => ("a", *cost),
            Op::Reserve(cost) => ("v", *cost),
            Op::Deny(cost) => ("d", *cost),
            Op::AcquireUpTo(most) => ("u", *most),
            Op::Peek(cost) => ("p", *cost),
            Op::Hit(cost) => ("h", *cost),
            Op::Count(cost) => ("n", *cost),
            Op::Refund(cost, receipt) => {
                let charged = receipt.as_ref().map_or(*cost, Receipt::charged);
                ("r", (*cost).min(charged))
            }
            Op::Settle(cost, receipt) => ("s", cost.saturating_sub(receipt.charged())),
            Op::Block(_) => ("b", 0),
            Op::Reset => ("x", 0),
        };
        arguments.extend([letter.into(), number(cost), number(times as u64)]);
        match op {
            Op::Refund(_, receipt) => self.push_receipt(arguments, receipt.as_ref()),
            Op::Settle(cost, receipt) => {
                self.push_receipt(arguments, Some(receipt));
                let back = receipt.charged().saturating_sub(*cost);
                arguments.extend([number(back), number(*cost)]);
            }
            Op::Block(length) => {
                let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
                arguments.extend(two_parts(nanos.min(MAX_REFILL_NANOS)));
            }
            _ => {}
        }
    }

    /// Where the charge is found, if it is not the newest; nothing of a quota that it did not
    /// charge, or that counts in another way or by other numbers by now.
    fn push_receipt(&self, arguments: &mut Vec<Cow<'_, str>>, receipt: Option<&Receipt>) {
        let Some(receipt) = receipt else {
            return arguments.push("".into());
        };
        arguments.push(number(receipt.charged_at().as_micros()));
        let charged_at = receipt.charged_at().as_nanos();
        for (at, quota) in self.measures.iter().enumerate() {
            let charge = receipt.charges().get(at);
            match charge.filter(|charge| quota.meter.made(charged_at, charge)) {
                Some(Charge { end, interval, .. }) => {
                    arguments.extend(two_parts(*end));
                    arguments.extend(two_parts(*interval));
                }
                None => arguments.extend([const { Cow::Borrowed("") }; 4]),
            }
        }
    }
}

impl QuotaPlan {
    fn new((quota, meter): (&Quota, &Meter)) -> Self {
        let told = match (quota.algorithm(), quota.refill_every_nanos()) {
            (Algorithm::TokenBucket, Some(step)) => Told::Stepped(step),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }, _) => Told::Level(Level {
                used: 0,
                refill: quota.capacity() * quota.interval_nanos(),
                interval: quota.interval_nanos(),
            }),
            (Algorithm::FixedWindow, _) => Told::Window,
            _ => Told::Numbers,
        };
        Self {
            kind: quota.kind(),
            told,
            has_soft_share: quota.extra() > 0,
            meter: *meter,
        }
    }
}

/// The mark that a clause follows, and the clause. The name is two whole numbers.
fn push_lease(arguments: &mut Vec<Cow<'_, str>>, lease: &LeaseClause) {
    let (name, _) = lease.name.as_chunks::<4>();
    let name = name.iter().map(|part| u32::from_be_bytes(*part));
    let LeaseClause {
        seq,
        spent,
        back,
        want,
        demand,
        ..
    } = *lease;
    arguments.push("c".into());
    let numbers = name.chain([seq, spent, back, want, demand]);
    arguments.extend(numbers.map(|part| number(u64::from(part))));
    let length = lease.length.min(LONGEST_LEASE).as_micros();
    arguments.push(number(u64::try_from(length).unwrap_or(u64::MAX)));
    arguments.push(if lease.force { "f" } else { "" }.into());
}

fn number(number: u64) -> Cow<'static, str> {
    number.min(LUA_MAX_INT).to_string().into()
}

fn two_parts(nanos: u64) -> [Cow<'static, str>; 2] {
    micros_and_rest(nanos).map(Cow::from)
}

fn arguments(
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
        let own = quotas.get(slot.at).filter(|own| slot.counts(slot.at, own));
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

/// The most that can count in the slot of `quota`, where that is more than it lets pass itself.
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

fn micros_and_rest(nanos: u64) -> [String; 2] {
    [(nanos / 1_000).to_string(), (nanos % 1_000).to_string()]
}
