//! Arguments of the lone scripts: for one quota of one algorithm, or several buckets.

use super::slots::Slot;
use crate::{
    algorithm::Most,
    limiter::tier_quotas::AllQuotas,
    quota::{Algorithm, Quota},
    store::lua::LUA_MAX_INT,
};

/// A script for few operations, by the quotas that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shared) enum LoneScript {
    Bucket,
    /// Several buckets.
    Buckets,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
}

/// The script for a lone quota, and its arguments between the time and the operations.
#[derive(Debug, Clone)]
pub(super) struct LonePlan {
    pub(super) script: LoneScript,
    pub(super) arguments: Vec<String>,
}

/// The most nanoseconds in a lone bucket's script, where times are single numbers: the sum of two is
/// exact. These are 52 days.
const MAX_NANOS: u64 = 1 << 52;

/// A pattern in Lua has 32 captures, and a bucket takes two.
const MAX_BUCKETS: usize = 16;

impl LonePlan {
    /// The plan for one quota, or several buckets: `None` if the subject has other counters, if denials
    /// block, or if the numbers are too large for the script.
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
            Algorithm::TokenBucket => (LoneScript::Bucket, bucket(quota, most)),
            Algorithm::FixedWindow => (LoneScript::FixedWindow, fixed_window(quota, most)),
            Algorithm::SlidingWindow => (LoneScript::SlidingWindow, sliding_window(quota, most)),
            Algorithm::SlidingLog => (LoneScript::SlidingLog, sliding_log(quota)),
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
            script: LoneScript::Buckets,
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

/// Whether a product is exact in the scripts.
fn is_exact(one: u64, two: u64) -> bool {
    let product = one.checked_mul(two);
    product.is_some_and(|product| product <= LUA_MAX_INT)
}

/// The microseconds, if they are whole.
fn micros(nanos: u64) -> Option<u64> {
    nanos.is_multiple_of(1_000).then_some(nanos / 1_000)
}
