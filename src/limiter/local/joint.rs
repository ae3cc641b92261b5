//! Joint decisions of several limiters in one store.

use super::{
    limiter::LocalLimiter,
    store::{StoreCall, StoreTable},
};
use crate::{
    decision::Decision,
    error::LimiterError,
    limiter::{Tier, type_erased_member::MemberCall},
};

impl LocalLimiter {
    /// Applies operations of several limiters of one store in one step.
    pub(crate) fn decide_many<'a>(
        calls: impl Iterator<Item = MemberCall<'a, Self>>,
    ) -> Result<Decision, LimiterError> {
        StoreTable::decide_many(calls.filter_map(|call| {
            let (store, limit) = call.limiter.stored()?;
            let table = store.table();
            let call = StoreCall {
                limit,
                key: table.hasher.hash_bytes(call.key),
                tier: call.tier,
                op: call.op,
                late: call.late,
            };
            Some((table, call))
        }))
    }

    pub(crate) fn shares_store_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some((store, _)), Some((other, _))) => store.is(other),
            _ => false,
        }
    }

    /// The identity of this limiter's share in a joint receipt; 0 for a limiter outside a store, which
    /// has no share.
    pub(crate) fn limit_identity(&self) -> u64 {
        self.stored()
            .map_or(0, |(store, limit)| store.table().identity_of(limit))
    }

    /// Whether both count with the same counters of one store.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some((_, limit)), Some((_, other))) => limit.counts_with(other),
            _ => false,
        }
    }

    /// Whether the limiter is in a store and has quotas for this tier.
    pub(crate) fn has_tier(&self, tier: &Tier) -> bool {
        self.stored()
            .is_some_and(|(_, limit)| limit.read().limits.knows(tier))
    }
}
