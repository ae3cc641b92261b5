use std::{borrow::Cow, fmt::Write as _};

use sha2::{Digest, Sha256};

use crate::{
    decision::{Level, Policy},
    error::LimiterError,
    limiter::{Tier, quotas::Rules},
    op::Op,
    quota::{Algorithm, Quota},
};

/// The largest whole number up to which a Lua number counts exactly.
const MOST: u64 = (1 << 53) - 1;

/// What the script is told of the rules that are in force.
#[derive(Debug)]
pub(super) struct Plan {
    id: String,
    tiers: Vec<(Tier, TierPlan)>,
}

/// What the script is told of one tier's quotas.
#[derive(Debug)]
pub(super) struct TierPlan {
    pub(super) policies: Vec<Policy>,
    /// The level of a full bucket, for each quota of which the script tells the level.
    pub(super) full: Vec<Option<Level>>,
    /// All arguments between the time and the operations.
    arguments: Vec<String>,
}

/// What one algorithm counts. Quotas at one place that count alike share it, in whatever tier.
#[derive(Debug, Clone, Copy)]
struct Slot {
    at: usize,
    quota: Quota,
}

impl Plan {
    pub(super) fn new(rules: &Rules) -> Self {
        let slots = slots(rules);
        let tiers = rules.tiers.iter().map(|(tier, quotas)| {
            let plan = TierPlan {
                policies: quotas.policies.clone(),
                full: quotas.quotas().iter().map(full_level).collect(),
                arguments: arguments(rules.block_for, &slots, quotas.quotas()),
            };
            (*tier, plan)
        });
        Self {
            id: id(&slots),
            tiers: tiers.collect(),
        }
    }

    /// A few letters for the algorithms, periods and slices that are counted. They are part of a
    /// subject's key, so that two configurations never read each other's counts.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn tier(&self, tier: Tier) -> Result<&TierPlan, LimiterError> {
        let found = self.tiers.iter().find(|(known, _)| *known == tier);
        found.map(|(_, plan)| plan).ok_or_else(|| {
            LimiterError::unsupported(format!("the limiter was given no quota for {tier:?}"))
        })
    }
}

impl TierPlan {
    /// The script's arguments for rows of alike operations, at `now` or at the time of the server. What is the same in
    /// every call is only lent.
    pub(super) fn arguments(&self, now: Option<u64>, rows: &[(Op, usize)]) -> Vec<Cow<'_, str>> {
        let mut arguments = Vec::with_capacity(1 + self.arguments.len() + 4 * rows.len());
        arguments.push(number_or_empty(now));
        arguments.extend(self.arguments.iter().map(|text| Cow::from(text.as_str())));
        for (op, count) in rows {
            let (letter, cost, charged_at) = letters(Op::clone(op));
            arguments.push(letter.into());
            arguments.push(number_or_empty(Some(cost)));
            arguments.push(number_or_empty(charged_at));
            arguments.push(number_or_empty(Some(*count as u64)));
        }
        arguments
    }
}

fn number_or_empty(number: Option<u64>) -> Cow<'static, str> {
    number.map_or(Cow::Borrowed(""), |number| {
        number.min(MOST).to_string().into()
    })
}

fn letters(op: Op) -> (&'static str, u64, Option<u64>) {
    match op {
        Op::Acquire(cost) => ("a", cost, None),
        Op::AcquireUpTo(most) => ("u", most, None),
        Op::Peek(cost) => ("p", cost, None),
        Op::Hit(cost) => ("h", cost, None),
        Op::Refund(cost, receipt) => {
            let charged_at = receipt.map(|receipt| receipt.charged_at().as_micros());
            ("r", cost, charged_at)
        }
        Op::Reset => ("x", 0, None),
    }
}

/// The slots of all tiers, in the order of the quotas.
fn slots(rules: &Rules) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for at in 0..rules.tiers.width() {
        for (_, quotas) in rules.tiers.iter() {
            let Some(quota) = quotas.quotas().get(at) else {
                continue;
            };
            if !slots.iter().any(|slot| slot.counts(at, quota)) {
                slots.push(Slot { at, quota: *quota });
            }
        }
    }
    slots
}

impl Slot {
    fn counts(&self, at: usize, quota: &Quota) -> bool {
        self.at == at && self.quota.counts_like(quota)
    }

    fn letter(&self) -> &'static str {
        match self.quota.algorithm() {
            Algorithm::TokenBucket => "t",
            Algorithm::LeakyBucket { .. } => "l",
            Algorithm::FixedWindow => "f",
            Algorithm::SlidingWindow => "s",
            Algorithm::SlidingLog => "g",
        }
    }
}

fn arguments(block_for: Option<u64>, slots: &[Slot], quotas: &[Quota]) -> Vec<String> {
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
    }
    arguments
}

/// Only an even token bucket is nothing but its level.
fn full_level(quota: &Quota) -> Option<Level> {
    let is_even =
        quota.algorithm() == Algorithm::TokenBucket && quota.refill_every_nanos().is_none();
    is_even.then(|| Level {
        used: 0,
        refill: quota.capacity() * quota.interval_nanos(),
        interval: quota.interval_nanos(),
    })
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
            let slices = quota.get_slices().unwrap_or(1);
            let slice = quota.period_nanos() / 1_000 / u64::from(slices);
            [slice.to_string(), slices.to_string()]
        }
    }
}

fn micros_and_rest(nanos: u64) -> [String; 2] {
    [(nanos / 1_000).to_string(), (nanos % 1_000).to_string()]
}

fn id(slots: &[Slot]) -> String {
    let mut shapes = String::new();
    for slot in slots {
        let period = slot.quota.period_nanos();
        let slices = slot.quota.get_slices().unwrap_or(1);
        let (at, letter) = (slot.at, slot.letter());
        write!(shapes, "{at}{letter}{period}/{slices};").expect("a text takes all");
    }
    letters_of(&shapes)
}

/// Four letters that are the same for two different texts in one of a million pairs.
pub(super) fn letters_of(text: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(text);
    let bytes = digest.iter().take(4);
    bytes
        .map(|byte| char::from(LETTERS[usize::from(byte & 31)]))
        .collect()
}
