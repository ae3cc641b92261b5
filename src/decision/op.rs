//! Operations: what a limiter can be asked about a key.

use std::time::Duration;

use crate::{decision::Receipt, error::LimiterError};

/// An operation: what a [`Limiter`](crate::Limiter) is asked to do.
///
/// While a key is blocked, everything that asks whether a cost fits is denied, whatever the cost:
/// all operations but [`Settle`](Self::Settle), [`Refund`](Self::Refund), [`Reset`](Self::Reset)
/// and a [`Block`](Self::Block) that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Take this many units if they are available, all or nothing. Where the limiter
    /// [blocks](crate::limiter::LocalLimiterBuilder::block_for), a denial of a cost that could fit
    /// starts a block.
    Acquire(u64),
    /// Take like `Acquire`, but a denial starts no block: another question follows, a
    /// [`Settle`](Self::Settle) or a [`Deny`](Self::Deny).
    Reserve(u64),
    /// Say what `Acquire` would say, take nothing, and start the block that its denial would have
    /// started.
    Deny(u64),
    /// Take what is available, at most this many units; denied when there are none.
    AcquireUpTo(u64),
    /// Say what `Acquire` would say, and take nothing.
    Peek(u64),
    /// Take this many units whether or not they are available, down to exhaustion and no further;
    /// say what `Acquire` would have said, but nobody waits for it.
    Hit(u64),
    /// Add this many units to fixed windows whatever the outcome, beyond the limit too, up to a count
    /// of 2^53 − 1; denied exactly if the count is then beyond the limit, also when 0 are added.
    /// [`QuotaStatus::used`](crate::QuotaStatus::used) tells the count. No denial starts a block.
    ///
    /// Only quotas that are [uncapped](crate::Quota::uncapped) count so; a limiter with another is
    /// asked for what it does not [support](crate::Limiter::supports).
    Count(u64),
    /// End a reservation, whose receipt this is, at this many units: what was charged beyond them
    /// is given back, what is missing is hit. Where the limiter blocks, units above 0 count towards
    /// the block. The outcome is how the key stands, never a denial.
    Settle(u64, Receipt),
    /// Give this many units back. With the receipt of the decision that charged them, at most what
    /// that decision charged goes back to where it came from; without one, they go back to the
    /// newest charge.
    ///
    /// A receipt is for one refund: nobody remembers which were used.
    Refund(u64, Option<Receipt>),
    /// Deny the key everything for this long from now on, at most 18 years; zero ends a block.
    Block(Duration),
    /// Forget the key and end its block.
    Reset,
}

impl Op {
    /// The receipt that is presented.
    pub(crate) const fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Refund(_, Some(receipt)) | Self::Settle(_, receipt) => Some(receipt),
            _ => None,
        }
    }

    /// The operation by the share that the limit of this identity has in the receipt, if that is one
    /// of several limits; `None` if the operation is good as it is.
    ///
    /// # Errors
    ///
    /// When the receipt is of several other limits.
    #[inline]
    pub(crate) fn of_limit(&self, limit: u64) -> Result<Option<Self>, LimiterError> {
        match self.receipt() {
            Some(receipt) if receipt.of_each().is_some() => self.by_share(receipt, limit).map(Some),
            _ => Ok(None),
        }
    }

    #[cold]
    fn by_share(&self, receipt: &Receipt, limit: u64) -> Result<Self, LimiterError> {
        let own = receipt.of_limit(limit).cloned().ok_or_else(|| {
            LimiterError::unsupported(
                "the receipt is of several limits that were charged together, and this is none of \
                 them: hand it to their JointLimiter with their Key::joint, or to one of its \
                 limiters()",
            )
        })?;
        Ok(match self {
            Self::Settle(cost, _) => Self::Settle(*cost, own),
            Self::Refund(cost, _) => Self::Refund(*cost, Some(own)),
            other => other.clone(),
        })
    }
}
