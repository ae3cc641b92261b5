//! Receipts: a limiter's share of a joint receipt, and receipts of a replaced limiter.

use std::sync::{Arc, atomic::Ordering};

use super::SharedLimiter;
#[cfg(all(feature = "redis", feature = "rules"))]
use crate::limiter::tier_set::TierSet;
use crate::{error::LimiterError, limiter::OpRef, shared::store_backend::StoreBackend};

impl<S: StoreBackend> SharedLimiter<S> {
    /// Records that `next` replaces this limiter.
    #[cfg(all(feature = "redis", feature = "rules"))]
    pub(in super::super) fn set_replacement(&self, next: &Self) {
        let own = self.with_limits(TierSet::clone);
        let charges_alike = next.with_limits(|next| own.charge_like(next));
        self.0.is_replaced.store(!charges_alike, Ordering::Relaxed);
    }

    pub(in super::super) fn limit_identity(&self) -> u64 {
        Arc::as_ptr(&self.0).addr() as u64
    }

    /// Replaces a joint receipt by this limiter's share of it. If a limiter with other numbers has
    /// replaced this one, the operation refunds nothing.
    pub(super) fn by_own_receipt<'a>(&self, op: OpRef<'a>) -> Result<OpRef<'a>, LimiterError> {
        let op = op.of_limit(self.limit_identity())?;
        if !self.0.is_replaced.load(Ordering::Relaxed) {
            return Ok(op);
        }
        Ok(match op {
            OpRef::Refund(_, Some(receipt)) => OpRef::Refund(0, Some(receipt)),
            OpRef::Settle(cost, receipt) => OpRef::Settle(cost.max(receipt.charged()), receipt),
            other => other,
        })
    }
}
