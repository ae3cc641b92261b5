//! Arguments of the specialized scripts: for one bucket, one window, or a list of buckets and windows.

use super::counter_slots::Slot;
use tower_ratelimit_core::{
    algorithm::Most,
    limiter::tier_quotas::AllQuotas,
    quota::{Algorithm, Quota},
};
use tower_ratelimit_store::LUA_MAX_INT;

/// A specialized script, by the quotas that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecializedScript {
    Bucket,
    Window,
    Several,
}

/// The script for such quotas, and its arguments between the time and the operations.
#[derive(Debug, Clone)]
pub(super) struct SpecializedPlan {
    pub(super) script: SpecializedScript,
    pub(super) arguments: Vec<String>,
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
    pub(super) fn new(
        block_for: Option<u64>,
        slots: &[Slot],
        quotas: &[Quota],
        all: &AllQuotas,
    ) -> Option<Self> {
        if block_for.is_some() || slots.len() != quotas.len() {
            return None;
        }
        let counters = slots
            .iter()
            .zip(quotas)
            .map(|(slot, quota)| Counter::of(quota, all.most(slot.at, quota).max(Most::of(quota))));
        let counters: Vec<_> = counters.collect::<Option<_>>()?;
        let numbers = |counter: &Counter| [counter.length, counter.capacity, counter.most];
        let texts = |counter: &Counter| numbers(counter).map(|number| number.to_string());
        let (script, arguments) = match counters.as_slice() {
            [one] if one.letter == "t" => (SpecializedScript::Bucket, texts(one).to_vec()),
            [one] if one.letter == "f" || one.counts == 2 => {
                let letter = [one.letter.to_owned()].into_iter();
                (
                    SpecializedScript::Window,
                    letter.chain(texts(one)).collect(),
                )
            }
            all => {
                let each = all.iter().flat_map(|one| {
                    let letter = [one.letter.to_owned()].into_iter();
                    letter.chain(texts(one)).chain([one.counts.to_string()])
                });
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
