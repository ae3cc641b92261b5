//! The receipt: what a refund needs to know about a charge.

use std::{num::NonZeroU8, slice, sync::Arc};

use crate::{
    clock::Timestamp,
    quota::{Fitted, Kind},
};

/// The tier index of decisions that were made by a request's own quota.
pub(crate) const REQUEST_TIER: u16 = u16::MAX;

/// Proof of what was charged when, which a refund needs to find it again.
///
/// [`Decision::receipt`](crate::Decision::receipt) makes it. It gives back at most what its decision
/// charged, to the quotas that were charged, in the tier of the decision. A unit of a bucket fades
/// over the time in which the full bucket comes back, so that requests that are finished late do
/// not give others more than the bucket holds. For the same reason a bucket gets nothing once its
/// quota was changed to another rate, or to a burst or queue that could not have been charged as far
/// as that; windows and logs get their units back under any limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    charged_at: Timestamp,
    charged: u64,
    charges: Charges,
    tier: u16,
    /// The request's quota that stands in the place of a tier's.
    request: Option<Fitted>,
    degraded: bool,
    settled: ChargeEnd,
    /// The lease that the units were spent from.
    lease: Option<NonZeroU8>,
}

/// The end of a charge, in a settlement of several limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeEnd {
    /// At the units of the operation.
    AsAsked,
    /// Nothing of it is kept.
    #[cfg(feature = "rules")]
    GivenBack,
    /// All of it is kept, and counts.
    #[cfg(feature = "rules")]
    Kept,
    /// The response has no say in it.
    #[cfg(feature = "rules")]
    Untouched,
}

/// The charge to each quota, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Charges {
    /// One quota, the usual case, needs no allocation.
    One(Charge),
    Several(Arc<[Charge]>),
    /// Those of several limits, each by a receipt of its own.
    Joint(Arc<[LimitReceipt]>),
    None,
}

/// The receipt of one of several limits that charged together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitReceipt {
    /// The identity of the limit; 0 where it is not known.
    pub(crate) limit: u64,
    pub(crate) receipt: Receipt,
}

/// The counter of one quota that was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// How the counter counts: a counter of another kind was not charged.
    pub(crate) kind: Kind,
    /// The instant, in nanoseconds, at which the charge has flown back: a bucket's state after it.
    /// 0 for what is no bucket.
    pub(crate) end: u64,
    /// The nanoseconds in which one unit came at that time.
    pub(crate) interval: u64,
}

impl Receipt {
    /// A receipt for nothing.
    pub(super) const fn new(charged_at: Timestamp) -> Self {
        Self {
            charged_at,
            charged: 0,
            charges: Charges::None,
            tier: 0,
            request: None,
            degraded: false,
            settled: ChargeEnd::AsAsked,
            lease: None,
        }
    }

    /// `charged` units that were taken from each of `charges`.
    pub(super) fn with_charges(
        mut self,
        charged: u64,
        mut charges: impl ExactSizeIterator<Item = Charge>,
    ) -> Self {
        self.charged = charged;
        self.charges = match charges.len() {
            0 => Charges::None,
            1 => charges.next().map_or(Charges::None, Charges::One),
            _ => Charges::Several(charges.collect()),
        };
        self
    }

    /// The receipt for units that several limits charged, with that of each.
    pub(super) fn of_limits(
        mut self,
        charged: u64,
        limits: impl Iterator<Item = LimitReceipt>,
    ) -> Self {
        self.charged = charged;
        self.charges = Charges::Joint(limits.collect());
        self
    }

    /// The receipts of several limits that charged together; `None` for that of one.
    pub(crate) fn of_each(&self) -> Option<&[LimitReceipt]> {
        match &self.charges {
            Charges::Joint(receipts) => Some(receipts),
            _ => None,
        }
    }

    /// The share that the limit of this identity has in a receipt of several; `None` if it has none.
    pub(crate) fn of_limit(&self, limit: u64) -> Option<&Self> {
        let mut each = self.of_each()?.iter();
        let own = each.find(|of| limit != 0 && of.limit == limit)?;
        Some(&own.receipt)
    }

    /// The receipt for a settlement that ends the charge of each limit as `settled` says of its
    /// place.
    #[cfg(feature = "rules")]
    pub(crate) fn settled_each(mut self, settled: impl Fn(usize) -> ChargeEnd) -> Self {
        let each = self.of_each().unwrap_or_default().iter().enumerate();
        let each = each.map(|(at, of)| LimitReceipt {
            limit: of.limit,
            receipt: Self {
                settled: settled(at),
                ..of.receipt.clone()
            },
        });
        self.charges = Charges::Joint(each.collect());
        self
    }

    /// How this charge ends.
    pub(crate) const fn settled(&self) -> ChargeEnd {
        self.settled
    }

    /// When the units were charged.
    #[must_use]
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// How many units were charged: the most that a refund gives back.
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// The charge to each quota, in their order.
    pub(crate) fn charges(&self) -> &[Charge] {
        match &self.charges {
            Charges::One(charge) => slice::from_ref(charge),
            Charges::Several(charges) => charges,
            Charges::Joint(_) | Charges::None => &[],
        }
    }

    /// The receipt for as many units, of which no counter here was charged.
    #[cfg(feature = "redis")]
    pub(crate) fn of_nothing_here(mut self) -> Self {
        self.charges = Charges::None;
        self
    }

    /// The place of the decision's tier among those of the limiter, or [`REQUEST_TIER`].
    pub(crate) const fn tier(&self) -> u16 {
        self.tier
    }

    /// The quota of the request that was charged, if that had one of its own.
    pub(crate) const fn request(&self) -> Option<Fitted> {
        self.request
    }

    pub(super) const fn of_request(mut self, request: Option<Fitted>) -> Self {
        self.request = request;
        self
    }

    pub(super) const fn in_tier(mut self, tier: u16) -> Self {
        self.tier = tier;
        self
    }

    /// Whether the units were charged by what stands in for the limiter's store.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// The lease that the units were spent from.
    #[cfg(feature = "redis")]
    pub(crate) const fn lease(&self) -> Option<NonZeroU8> {
        self.lease
    }

    pub(super) const fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    pub(super) const fn leased(mut self, lease: Option<NonZeroU8>) -> Self {
        self.lease = lease;
        self
    }

    pub(super) const fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }
}
