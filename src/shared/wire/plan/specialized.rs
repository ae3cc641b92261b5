//! Arguments of the specialized scripts: for one quota of one algorithm, several buckets, or a bucket and a window.

use super::counter_slots::Slot;
use crate::{
    algorithm::Most,
    limiter::tier_quotas::AllQuotas,
    quota::{Algorithm, Quota},
    store::LUA_MAX_INT,
};

/// A script for few operations, by the quotas that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shared) enum SpecializedScript {
    Bucket,
    Buckets,
    BucketFixedWindow,
    BucketSlidingWindow,
    FixedWindow,
    SlidingWindow,
    SeveralSlices,
    SlidingLog,
}

/// The script for a lone quota, and its arguments between the time and the operations.
#[derive(Debug, Clone)]
pub(super) struct SpecializedPlan {
    pub(super) script: SpecializedScript,
    pub(super) arguments: Vec<String>,
}

/// The most nanoseconds in a lone bucket's script, where times are single numbers: the sum of two is
/// exact. These are 52 days.
const MAX_NANOS: u64 = 1 << 52;

/// A pattern in Lua has 32 captures, and a bucket takes two.
const MAX_BUCKETS: usize = 16;

/// A window has one capture for each slice, and two more.
const MAX_SLICES: u32 = 30;

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
        if quotas.iter().any(|quota| quota.calendar().is_some()) {
            return None;
        }
        let most = |(slot, quota): (&Slot, &Quota)| all.most(slot.at, quota).max(Most::of(quota));
        let counters: Vec<_> = slots.iter().zip(quotas).map(most).zip(quotas).collect();
        let is_bucket = |quota: &Quota| quota.algorithm() == Algorithm::TokenBucket;
        match counters.as_slice() {
            [(most, quota)] => Self::of_one(quota, *most),
            all if quotas.iter().all(is_bucket) => Self::of_buckets(all),
            [bucket, window] if is_bucket(bucket.1) => Self::of_pair("b", *bucket, *window),
            [window, bucket] if is_bucket(bucket.1) => Self::of_pair("w", *bucket, *window),
            _ => None,
        }
    }

    fn of_one(quota: &Quota, most: Most) -> Option<Self> {
        let has_one_slice = quota.slice_count() == 1;
        let (script, numbers) = match quota.algorithm() {
            Algorithm::TokenBucket => (SpecializedScript::Bucket, bucket(quota, most)),
            Algorithm::FixedWindow => (SpecializedScript::FixedWindow, fixed_window(quota, most)),
            Algorithm::SlidingWindow if has_one_slice => (
                SpecializedScript::SlidingWindow,
                sliding_window(quota, most),
            ),
            Algorithm::SlidingWindow => (
                SpecializedScript::SeveralSlices,
                several_slices(quota, most),
            ),
            Algorithm::SlidingLog => (SpecializedScript::SlidingLog, sliding_log(quota)),
            Algorithm::LeakyBucket { .. } => return None,
        };
        let arguments = texts(numbers?).collect();
        Some(Self { script, arguments })
    }

    fn of_buckets(buckets: &[(Most, &Quota)]) -> Option<Self> {
        if buckets.len() > MAX_BUCKETS {
            return None;
        }
        let mut numbers = vec![buckets.len() as u64];
        for (most, quota) in buckets {
            numbers.extend(bucket(quota, *most)?);
        }
        Some(Self {
            script: SpecializedScript::Buckets,
            arguments: texts(numbers).collect(),
        })
    }

    /// The plan for a bucket and a window. `first` is the letter of the one that comes first.
    fn of_pair(
        first: &str,
        (bucket_most, bucket_quota): (Most, &Quota),
        (window_most, window): (Most, &Quota),
    ) -> Option<Self> {
        let (script, numbers) = match window.algorithm() {
            Algorithm::FixedWindow => (
                SpecializedScript::BucketFixedWindow,
                fixed_window(window, window_most),
            ),
            Algorithm::SlidingWindow if window.slice_count() == 1 => (
                SpecializedScript::BucketSlidingWindow,
                sliding_window(window, window_most),
            ),
            _ => return None,
        };
        let numbers = texts(bucket(bucket_quota, bucket_most)?).chain(texts(numbers?));
        Some(Self {
            script,
            arguments: std::iter::once(first.to_owned()).chain(numbers).collect(),
        })
    }
}

fn texts(numbers: Vec<u64>) -> impl Iterator<Item = String> {
    numbers.into_iter().map(|number| number.to_string())
}

fn bucket(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let own = Most::without_debt(quota);
    let times = [quota.interval_nanos(), own.nanos, most.nanos];
    let are_short = times.iter().all(|nanos| *nanos < MAX_NANOS);
    (are_short && quota.refill_every_nanos().is_none()).then(|| times.to_vec())
}

fn fixed_window(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let period = micros(quota.period_nanos())?;
    let capacity = quota.capacity() + quota.extra();
    Some(vec![period, capacity, quota.extra(), most.units])
}

fn sliding_window(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let slice = micros(quota.period_nanos())? / u64::from(quota.slice_count());
    let capacity = quota.capacity() + quota.extra();
    let (extra, interval) = (quota.extra(), quota.interval_nanos());
    let are_exact = is_exact(most.units, slice) && is_exact(capacity, interval);
    are_exact.then(|| vec![slice, capacity, extra, most.units, interval])
}

fn several_slices(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let slices = quota.slice_count();
    // The script adds all counts.
    let is_small = slices <= MAX_SLICES && is_exact(most.units, u64::from(slices + 1));
    let mut numbers = sliding_window(quota, most).filter(|_| is_small)?;
    numbers.push(u64::from(slices));
    Some(numbers)
}

fn sliding_log(quota: &Quota) -> Option<Vec<u64>> {
    let period = micros(quota.period_nanos())?;
    let (extra, interval) = (quota.extra(), quota.interval_nanos());
    let capacity = quota.capacity() + extra;
    is_exact(capacity, interval).then(|| vec![period, capacity, extra, interval])
}

/// Whether a product is exact in the scripts.
fn is_exact(one: u64, two: u64) -> bool {
    let product = one.checked_mul(two);
    product.is_some_and(|product| product <= LUA_MAX_INT)
}

/// The microseconds, if they are whole.
fn micros(nanos: u64) -> Option<u64> {
    nanos.is_multiple_of(1_000).then_some(nanos / 1_000)
}
