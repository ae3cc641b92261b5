//! Limiters of one store that are charged together.

use super::{limiter::LocalLimiter, store::StoreCall};
use crate::{
    decision::{Decision, Op},
    error::LimiterError,
    limiter::Tier,
};

impl LocalLimiter {
    /// Does operations of several limiters of one store in one step, each on the key of these bytes.
    pub(crate) fn decide_many<'a>(
        calls: impl Iterator<Item = (&'a Self, &'a [u8], &'a Tier, &'a Op)> + Clone,
    ) -> Result<Decision, LimiterError> {
        let mut stored = calls.clone().filter_map(|(limiter, ..)| limiter.stored());
        let Some((store, _)) = stored.next() else {
            return Err(LimiterError::unsupported("no limiter in a store"));
        };
        let table = store.table();
        let calls = calls.filter_map(|(limiter, key, tier, op)| {
            let (_, limit) = limiter.stored()?;
            let key = table.hasher.hash_bytes(key);
            Some(StoreCall {
                limit,
                key,
                tier,
                op,
            })
        });
        table.decide_many(calls)
    }

    pub(crate) fn shares_store_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some((store, _)), Some((other, _))) => store.is(other),
            _ => false,
        }
    }

    /// The identity by which it finds its share in the receipt of several limits; 0 for one that is in
    /// no store, and has none.
    pub(crate) fn limit_identity(&self) -> u64 {
        self.stored().map_or(0, |(store, limit)| {
            limit.tag() ^ std::ptr::from_ref(store.table()).addr() as u64
        })
    }

    /// Whether both count in the same entries of one store.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some((_, limit)), Some((_, other))) => limit.counts_with(other),
            _ => false,
        }
    }

    /// Whether it is in a store and was given quotas for this tier.
    pub(crate) fn has_tier(&self, tier: &Tier) -> bool {
        self.stored()
            .is_some_and(|(_, limit)| limit.read().limits.knows(tier))
    }
}
