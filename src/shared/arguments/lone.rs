//! Arguments of the scripts that know one quota of one algorithm, or some buckets.

use super::slots::Slot;
use crate::{
    algorithm::Most,
    limiter::quotas::AllQuotas,
    quota::{Algorithm, Quota},
    redis::{
        script::{
            DECIDE_BUCKETS, DECIDE_LONE_BUCKET, DECIDE_LONE_FIXED_WINDOW, DECIDE_LONE_SLIDING_LOG,
            DECIDE_LONE_SLIDING_WINDOW, LUA_MAX_INT,
        },
        store::script::Script,
    },
};

/// The script for a lone quota, and its arguments between the time and the operations.
#[derive(Debug, Clone)]
pub(super) struct LonePlan {
    pub(super) script: &'static Script,
    pub(super) arguments: Vec<String>,
}

/// The nanoseconds up to which the script of a lone bucket may count in single numbers: the sum of two
/// such times is exact. These are 52 days.
const MAX_NANOS: u64 = 1 << 52;

/// A pattern in Lua has 32 captures, and a bucket takes two.
const MAX_BUCKETS: usize = 16;

impl LonePlan {
    /// For one quota, or several buckets, where no other counters stand beside theirs and nobody is blocked, if
    /// the numbers are so small that the script can reckon with them.
    pub(super) fn new(
        block_for: Option<u64>,
        slots: &[Slot],
        quotas: &[Quota],
        all: &AllQuotas,
    ) -> Option<Self> {
        if block_for.is_some() || slots.len() != quotas.len() {
            return None;
        }
        let ([slot], [quota]) = (slots, quotas) else {
            return Self::of_buckets(slots, quotas, all);
        };
        let most = all.most(slot.at, quota).max(Most::of(quota));
        let (script, numbers) = match quota.algorithm() {
            Algorithm::TokenBucket => (&DECIDE_LONE_BUCKET, bucket(quota, most)),
            Algorithm::FixedWindow => (&DECIDE_LONE_FIXED_WINDOW, fixed_window(quota, most)),
            Algorithm::SlidingWindow => (&DECIDE_LONE_SLIDING_WINDOW, sliding_window(quota, most)),
            Algorithm::SlidingLog => (&DECIDE_LONE_SLIDING_LOG, sliding_log(quota)),
            Algorithm::LeakyBucket { .. } => return None,
        };
        let numbers = numbers?.into_iter();
        Some(Self {
            script,
            arguments: numbers.map(|number| number.to_string()).collect(),
        })
    }

    fn of_buckets(slots: &[Slot], quotas: &[Quota], all: &AllQuotas) -> Option<Self> {
        let mut numbers = vec![slots.len() as u64];
        for (slot, quota) in slots.iter().zip(quotas) {
            let is_bucket = quota.algorithm() == Algorithm::TokenBucket;
            if slots.len() > MAX_BUCKETS || !is_bucket {
                return None;
            }
            numbers.extend(bucket(
                quota,
                all.most(slot.at, quota).max(Most::of(quota)),
            )?);
        }
        Some(Self {
            script: &DECIDE_BUCKETS,
            arguments: numbers.iter().map(u64::to_string).collect(),
        })
    }
}

fn bucket(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let times = [quota.interval_nanos(), Most::of(quota).nanos, most.nanos];
    let are_short = times.iter().all(|nanos| *nanos < MAX_NANOS);
    (are_short && quota.refill_every_nanos().is_none()).then(|| times.to_vec())
}

fn fixed_window(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let period = micros(quota.period_nanos())?;
    let capacity = quota.capacity() + quota.extra();
    Some(vec![period, capacity, quota.extra(), most.units])
}

fn sliding_window(quota: &Quota, most: Most) -> Option<Vec<u64>> {
    let slice = micros(quota.period_nanos()).filter(|_| quota.slice_count() == 1)?;
    let capacity = quota.capacity() + quota.extra();
    let (extra, interval) = (quota.extra(), quota.interval_nanos());
    let are_exact = is_exact(most.units, slice) && is_exact(capacity, interval);
    are_exact.then(|| vec![slice, capacity, extra, most.units, interval])
}

fn sliding_log(quota: &Quota) -> Option<Vec<u64>> {
    let period = micros(quota.period_nanos())?;
    let (extra, interval) = (quota.extra(), quota.interval_nanos());
    let capacity = quota.capacity() + extra;
    is_exact(capacity, interval).then(|| vec![period, capacity, extra, interval])
}

/// Whether a product is one that the scripts can reckon with.
fn is_exact(one: u64, two: u64) -> bool {
    let product = one.checked_mul(two);
    product.is_some_and(|product| product <= LUA_MAX_INT)
}

/// Whole microseconds, if these are.
fn micros(nanos: u64) -> Option<u64> {
    nanos.is_multiple_of(1_000).then_some(nanos / 1_000)
}
