//! Operations on each of several limits that follow a charge.

use super::{admission::Admission, charge_request::ChargeRequestRef};
use crate::{
    decision::Op,
    limiter::{Limiter, Pending},
    small_list::SmallList,
};

/// The operations on the limits that a request has a key for, in their order.
pub(super) type OpsOfEach = SmallList<LimitOp, 1>;

/// An operation on one limit that follows a charge. The default does nothing.
pub(super) struct LimitOp {
    pub(super) op: Op,
    /// The units that it refunds.
    pub(super) refunded: u64,
}

impl LimitOp {
    /// An operation that refunds nothing.
    pub(super) const fn charge(op: Op) -> Self {
        Self { op, refunded: 0 }
    }

    /// Whether it refunds units that the limiter's store has charged.
    pub(super) fn refunds_store(&self) -> bool {
        let receipt = self.op.receipt();
        self.refunded > 0 && receipt.is_some_and(|receipt| !receipt.is_degraded())
    }

    /// Whether it does nothing.
    pub(super) const fn is_none(&self) -> bool {
        matches!(self.op, Op::Refund(0, None))
    }
}

impl Default for LimitOp {
    fn default() -> Self {
        Self::charge(Op::Refund(0, None))
    }
}

impl<L: Limiter, R> Admission<L, R> {
    /// Applies an operation to each limit.
    pub(super) fn apply_ops(
        &self,
        charge: ChargeRequestRef<'_>,
        ops: &OpsOfEach,
    ) -> Pending<L::Future> {
        if let [only] = ops.as_slice() {
            return self.apply(charge, only.op.clone());
        }
        let ops = ops.as_slice().iter().map(|limit| limit.op.clone());
        self.apply_each(charge, &ops.collect::<Vec<_>>())
    }
}
