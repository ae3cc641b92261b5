//! Operations of a limiter on a key.

use std::time::Duration;

use crate::{decision::Receipt, error::LimiterError};

/// An operation of a [`Limiter`](crate::Limiter) on a key.
///
/// While a key is blocked, all operations are denied, whatever the cost, except
/// [`Settle`](Self::Settle), [`Refund`](Self::Refund), [`Reset`](Self::Reset) and a
/// [`Block`](Self::Block) that ends the block.
///
/// It owns the receipt of an earlier charge, or borrows it, as an [`OpRef`]. Where its use does not tell which, as in a
/// `println!`, write `<Op>::Acquire(1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op<R = Receipt> {
    /// Take this many units if they are available, all or nothing. Where the limiter
    /// [blocks](crate::limiter::LocalLimiterBuilder::block_for), a denial of a cost that could fit
    /// starts a block.
    Acquire(u64),
    /// Take like `Acquire`; a denial starts no block. A [`Settle`](Self::Settle) or a
    /// [`Deny`](Self::Deny) follows.
    Reserve(u64),
    /// Decide like `Acquire` and take nothing. A denial starts the block that a denied `Acquire`
    /// would have started.
    Deny(u64),
    /// Take what is available, at most this many units; denied when there are none.
    AcquireUpTo(u64),
    /// Decide like `Acquire` and take nothing.
    Peek(u64),
    /// Take this many units whether or not they are available, down to exhaustion and no further. The
    /// outcome is that of `Acquire`, without a delay.
    Hit(u64),
    /// Take this many units that were used already, whether or not they are available: beyond the
    /// capacity as far as the quota's [debt](crate::Quota::debt) goes, and no further. Without a debt this
    /// is a `Hit`. A class of requests spends from the whole limit. The outcome is that of `Acquire`,
    /// without a delay; a denial starts no block.
    ///
    /// A limiter with a leaky bucket or with
    /// [`block_for`](crate::limiter::LocalLimiterBuilder::block_for) does not
    /// [support](crate::limiter::Facts::supports) this operation.
    Spend(u64),
    /// Add this many units to fixed windows whatever the outcome, also beyond the limit, up to a count
    /// of 2^53 − 1. Denied exactly if the count then exceeds the limit, also if 0 are added.
    /// [`QuotaStatus::used`](crate::decision::QuotaStatus::used) is the count. A denial starts no block.
    ///
    /// All quotas must be [uncapped](crate::Quota::uncapped). A limiter with another quota does not
    /// [support](crate::limiter::Facts::supports) this operation.
    Count(u64),
    /// End the reservation with this receipt at this many units: a surplus is refunded, missing units
    /// are [spent](Self::Spend). If the limiter blocks, units above 0 count towards the block. The outcome is never a
    /// denial.
    Settle(u64, R),
    /// Refund this many units. With the receipt of the decision that charged them, at most that
    /// decision's charge returns to the counters that it was taken from. Without a receipt, the units
    /// return to the newest charge.
    ///
    /// Use a receipt for one refund only: limiters do not record which receipts were used.
    Refund(u64, Option<R>),
    /// Deny the key everything for this time from now on; zero ends a block. More than 18 years are an error.
    Block(Duration),
    /// Forget the key and end its block.
    Reset,
}

/// An [`Op`] that borrows its receipt.
pub type OpRef<'a> = Op<&'a Receipt>;

impl Op {
    /// Whether it may return units or move a block: then a cached denial may be wrong.
    #[doc(hidden)]
    pub const fn may_end_denials(&self) -> bool {
        matches!(
            self,
            Self::Refund(..) | Self::Settle(..) | Self::Block(_) | Self::Reset
        )
    }

    /// The letter of the operation in calls of a store's script, and its cost there.
    #[doc(hidden)]
    pub fn letter_and_cost(&self) -> (&'static str, u64) {
        match self {
            Self::Acquire(cost) => ("a", *cost),
            Self::Reserve(cost) => ("v", *cost),
            Self::Deny(cost) => ("d", *cost),
            Self::AcquireUpTo(most) => ("u", *most),
            Self::Peek(cost) => ("p", *cost),
            Self::Hit(cost) => ("h", *cost),
            Self::Spend(cost) => ("o", *cost),
            Self::Count(cost) => ("n", *cost),
            Self::Refund(cost, receipt) => {
                let charged = receipt.as_ref().map_or(*cost, Receipt::charged);
                ("r", (*cost).min(charged))
            }
            Self::Settle(cost, receipt) => ("s", cost.saturating_sub(receipt.charged())),
            Self::Block(_) => ("b", 0),
            Self::Reset => ("x", 0),
        }
    }

    /// The operation as a [charge](crate::limiter::Charge) has it.
    #[inline]
    pub fn as_ref(&self) -> OpRef<'_> {
        self.with_receipt(|own| own)
    }

    /// A bit for the kind of the operation: that of its letter.
    pub(crate) fn bit(&self) -> u32 {
        1 << (self.letter_and_cost().0.as_bytes()[0] - b'a')
    }

    #[doc(hidden)]
    pub fn receipt(&self) -> Option<&Receipt> {
        self.as_ref().receipt()
    }

    /// Whether units that were taken or used before are returned or counted: a limit that fails takes nothing from
    /// the answers of others.
    #[doc(hidden)]
    pub const fn ends_a_charge(&self) -> bool {
        matches!(
            self,
            Self::Settle(..) | Self::Refund(..) | Self::Hit(_) | Self::Spend(_)
        )
    }
}

impl<R> Op<R> {
    /// The operation with what this makes of its receipt.
    #[inline]
    fn with_receipt<'o, T>(&'o self, receipt: impl FnOnce(&'o R) -> T) -> Op<T> {
        match self {
            Self::Acquire(cost) => Op::Acquire(*cost),
            Self::Reserve(cost) => Op::Reserve(*cost),
            Self::Deny(cost) => Op::Deny(*cost),
            Self::AcquireUpTo(most) => Op::AcquireUpTo(*most),
            Self::Peek(cost) => Op::Peek(*cost),
            Self::Hit(cost) => Op::Hit(*cost),
            Self::Spend(units) => Op::Spend(*units),
            Self::Count(units) => Op::Count(*units),
            Self::Settle(cost, own) => Op::Settle(*cost, receipt(own)),
            Self::Refund(cost, own) => Op::Refund(*cost, own.as_ref().map(receipt)),
            Self::Block(length) => Op::Block(*length),
            Self::Reset => Op::Reset,
        }
    }
}

impl<'a> OpRef<'a> {
    /// The operation with a receipt of its own.
    pub fn to_owned(self) -> Op {
        self.with_receipt(|own| Receipt::clone(own))
    }

    /// The units of the operation; 0 for one without.
    #[inline]
    #[doc(hidden)]
    pub const fn units(self) -> u64 {
        match self {
            Self::Acquire(units)
            | Self::Reserve(units)
            | Self::Deny(units)
            | Self::AcquireUpTo(units)
            | Self::Peek(units)
            | Self::Hit(units)
            | Self::Spend(units)
            | Self::Count(units)
            | Self::Settle(units, _)
            | Self::Refund(units, _) => units,
            Self::Block(_) | Self::Reset => 0,
        }
    }

    #[doc(hidden)]
    pub const fn receipt(self) -> Option<&'a Receipt> {
        match self {
            Self::Refund(_, receipt) => receipt,
            Self::Settle(_, receipt) => Some(receipt),
            _ => None,
        }
    }

    /// The operation with the part that the limit with this identity has in a receipt of several limits. An operation
    /// without such a receipt needs no change.
    ///
    /// # Errors
    ///
    /// If the receipt has no part of this limit.
    #[inline]
    #[doc(hidden)]
    pub fn of_limit(self, limit: u64) -> Result<Self, LimiterError> {
        match self.receipt() {
            Some(receipt) if receipt.of_each().is_some() => self.by_part(receipt, limit),
            _ => Ok(self),
        }
    }

    #[cold]
    fn by_part(self, receipt: &'a Receipt, limit: u64) -> Result<Self, LimiterError> {
        let own = receipt.of_limit(limit).ok_or_else(|| {
            LimiterError::unsupported(
                "the receipt is of several limits that were charged together, and this limit is not \
                 among them: refund it by their JointLimiter with their keys, or by one of its limiters()",
            )
        })?;
        Ok(self.with_receipt(|_| own))
    }
}
