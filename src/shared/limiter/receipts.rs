//! Receipts of a limiter that all nodes share: its share of them, and those of one that was replaced.

use std::sync::{Arc, atomic::Ordering};

use super::SharedLimiter;
#[cfg(feature = "rules")]
use crate::limiter::tier_set::TierSet;
use crate::{decision::Op, error::LimiterError, shared::backend::StoreBackend};

impl<S: StoreBackend> SharedLimiter<S> {
    /// Another limiter takes its place.
    #[cfg(feature = "rules")]
    pub(in super::super) fn make_way_for(&self, next: &Self) {
        let own = self.with_limits(TierSet::clone);
        let charges_alike = next.with_limits(|next| own.charge_like(next));
        self.0.is_replaced.store(!charges_alike, Ordering::Relaxed);
    }

    /// The identity by which it finds its share in the receipt of several limits.
    pub(in super::super) fn limit_identity(&self) -> u64 {
        Arc::as_ptr(&self.0).addr() as u64
    }

    /// The operation by this limiter's share of the receipt, where that is of several. It gives
    /// nothing back to the counters of a limiter with other numbers.
    pub(super) fn by_own_receipt(&self, op: Op) -> Result<Op, LimiterError> {
        let op = op.of_limit(self.limit_identity())?.unwrap_or(op);
        if !self.0.is_replaced.load(Ordering::Relaxed) {
            return Ok(op);
        }
        Ok(match op {
            Op::Refund(_, Some(receipt)) => Op::Refund(0, Some(receipt)),
            Op::Settle(cost, receipt) => Op::Settle(cost.max(receipt.charged()), receipt),
            other => other,
        })
    }
}
