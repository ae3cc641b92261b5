//! The receipt: the facts of a charge that a refund needs, also as bytes for another process.

use std::{
    num::{NonZeroU8, NonZeroU64},
    slice,
    sync::Arc,
};

use super::Ruling;
use crate::{
    clock::Timestamp,
    little_endian::{push_u32, push_u64, take_u8, take_u32, take_u64},
    quota::{Fitted, Kind},
};

/// The tier index of decisions by a request's own quota.
#[doc(hidden)]
pub const REQUEST_TIER: u16 = u16::MAX;

/// The facts of a charge that a refund needs: time, units, quotas and tier. Made by
/// [`Decision::receipt`](crate::Decision::receipt).
///
/// A refund returns at most the decision's charge, to the quotas that were charged, in the tier of
/// the decision. The refund of a bucket's unit shrinks over the time in which the full bucket
/// refills, so that a late refund never gives a key more than the bucket holds. For the same reason a
/// bucket gets nothing back after its quota has changed to another rate, or to a burst or queue too
/// small for the charge. Windows and logs get their units back under any limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    charged_at: Timestamp,
    charged: u64,
    charges: Charges,
    tier: u16,
    /// The request's own quota, if it brought one.
    pub(super) request: Option<Fitted>,
    degraded: bool,
    lease: Option<NonZeroU8>,
}

/// The charge to each quota, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Charges {
    /// One quota, the usual case, needs no allocation.
    One(Charge),
    Several(Arc<[Charge]>),
    Joint(Arc<[LimitReceipt]>),
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
pub struct LimitReceipt {
    /// The identity of the limit; 0 where it is not known.
    pub limit: u64,
    pub receipt: Receipt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Charge {
    /// The kind of the counter. A refund skips a counter of another kind.
    pub(crate) kind: Kind,
    /// The instant in nanoseconds at which the bucket is full again after the charge; 0 for windows
    /// and logs.
    #[doc(hidden)]
    pub end: u64,
    /// Nanoseconds in which one unit refilled at that time.
    #[doc(hidden)]
    pub interval: u64,
}

impl Receipt {
    const fn new(charged_at: Timestamp) -> Self {
        Self {
            charged_at,
            charged: 0,
            charges: Charges::None,
            tier: 0,
            request: None,
            degraded: false,
            lease: None,
        }
    }

    pub(super) const fn of_ruling(ruling: &Ruling) -> Self {
        let mut receipt = Self::new(ruling.charged_at);
        receipt.tier = ruling.tier;
        receipt.degraded = ruling.degraded.is_some();
        receipt.lease = ruling.lease;
        receipt
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

    /// The receipt for units that several limits charged, from the receipt of each.
    pub(super) fn of_limits(ruling: &Ruling, limits: impl Iterator<Item = LimitReceipt>) -> Self {
        Self {
            charged: ruling.charged,
            charges: Charges::Joint(limits.collect()),
            ..Self::of_ruling(ruling)
        }
    }

    /// The receipts of several limits that charged together; `None` for a receipt of one limit.
    #[doc(hidden)]
    pub fn of_each(&self) -> Option<&[LimitReceipt]> {
        match &self.charges {
            Charges::Joint(receipts) => Some(receipts),
            _ => None,
        }
    }

    /// The part of the limit with this identity in a receipt of several limits; `None` if it has none.
    #[doc(hidden)]
    pub fn of_limit(&self, limit: u64) -> Option<&Self> {
        let mut each = self.of_each()?.iter();
        let own = each.find(|of| limit != 0 && of.limit == limit)?;
        Some(&own.receipt)
    }

    /// The instant of the charge, by the limiter's clock. A refund to a bucket shrinks with the time since.
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// The units charged: the most that a refund returns. Of several limits that were charged together, the
    /// least that one of them charged: see [`each`](Self::each).
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// The receipt of each limit that was charged, in their order: one of each for a decision of several
    /// limits that were [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all), otherwise this one.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &Self> {
        let each = self.of_each();
        let count = each.map_or(1, <[LimitReceipt]>::len);
        (0..count).map(move |place| each.map_or(self, |each| &each[place].receipt))
    }

    /// The charge to each quota, in their order.
    #[doc(hidden)]
    pub fn charges(&self) -> &[Charge] {
        match &self.charges {
            Charges::One(charge) => slice::from_ref(charge),
            Charges::Several(charges) => charges,
            Charges::Joint(_) | Charges::None => &[],
        }
    }

    /// The receipt without charges of counters, for a store that did not make them.
    #[doc(hidden)]
    #[must_use]
    pub fn of_nothing_here(mut self) -> Self {
        self.charges = Charges::None;
        self
    }

    /// The index of the decision's tier among those of the limiter, or [`REQUEST_TIER`].
    pub(crate) const fn tier(&self) -> u16 {
        self.tier
    }

    /// The request's own quota that was charged, if it brought one.
    pub(crate) const fn request(&self) -> Option<Fitted> {
        self.request
    }

    /// Whether the fallback charged the units instead of the limiter's store.
    #[doc(hidden)]
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    #[doc(hidden)]
    pub const fn lease(&self) -> Option<NonZeroU8> {
        self.lease
    }
}

const VERSION: u8 = 1;

impl Receipt {
    /// The receipt as bytes, about 50 for a limiter with one quota, for another process that uses the same
    /// counters, such as another node with the same store: [`from_bytes`](Self::from_bytes) reads them. They
    /// contain no key.
    ///
    /// `None` if only this process can refund the units: those of a lease, and those that were charged without
    /// the store while it did not respond. `None` also for a receipt of several limits, whose parts are in
    /// [`each`](Self::each).
    ///
    /// The bytes are not protected: whoever changes them can refund what was never charged. Authenticate
    /// bytes that leave your processes, together with the key that was charged.
    ///
    /// ```
    /// use tower_ratelimit::{
    ///     Key, LocalLimiter, Quota,
    ///     decision::{Op, Receipt},
    /// };
    ///
    /// let limiter = LocalLimiter::new(Quota::per_day(1_000).fixed_window());
    /// let alice = Key::from("alice");
    /// let bytes = limiter.acquire(&alice, 100).receipt().to_bytes().expect("one limit, in this process");
    ///
    /// let receipt = Receipt::from_bytes(&bytes).expect("the bytes of a receipt");
    /// assert_eq!(limiter.refund(&alice, 60, Some(receipt)).remaining(), Some(960));
    /// ```
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if self.degraded || self.lease.is_some() || self.of_each().is_some() {
            return None;
        }
        let mut bytes = vec![VERSION];
        push_u64(&mut bytes, self.charged_at.as_micros());
        push_u64(&mut bytes, self.charged);
        push_u32(&mut bytes, self.tier.into());
        bytes.push(self.request.is_some().into());
        if let Some(Fitted { capacity, interval }) = self.request {
            push_u64(&mut bytes, capacity);
            push_u64(&mut bytes, interval.get());
        }
        push_u32(&mut bytes, u32::try_from(self.charges().len()).ok()?);
        for charge in self.charges() {
            push_u32(&mut bytes, charge.kind.get());
            push_u64(&mut bytes, charge.end);
            push_u64(&mut bytes, charge.interval);
        }
        Some(bytes)
    }

    /// The receipt that [`to_bytes`](Self::to_bytes) wrote; `None` if the bytes are of no receipt, or of
    /// another version of the format.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let from = &mut rest;
        take_u8(from).filter(|version| *version == VERSION)?;
        let mut receipt = Self::new(Timestamp::from_micros(take_u64(from)?));
        let charged = take_u64(from)?;
        receipt.tier = u16::try_from(take_u32(from)?).ok()?;
        receipt.request = match take_u8(from)? {
            0 => None,
            1 => Some(Fitted {
                capacity: take_u64(from)?,
                interval: NonZeroU64::new(take_u64(from)?)?,
            }),
            _ => return None,
        };
        let charges = (0..take_u32(from)?).map(|_| {
            Some(Charge {
                kind: Kind::of_number(take_u32(from)?),
                end: take_u64(from)?,
                interval: take_u64(from)?,
            })
        });
        let charges = charges.collect::<Option<Vec<_>>>()?;
        rest.is_empty()
            .then(|| receipt.with_charges(charged, charges.into_iter()))
    }
}
