//! Receipts as bytes, for a settlement in another process.

use std::num::NonZeroU64;

use super::{Charge, Receipt};
use crate::{
    clock::Timestamp,
    number_bytes::{push_u32, push_u64, take_u8, take_u32, take_u64},
    quota::{Fitted, Kind},
};

const VERSION: u8 = 1;

const CHARGE: usize = 4 + 8 + 8;

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
        let count = usize::try_from(take_u32(from)?).ok()?;
        let (charges, []) = rest.as_chunks::<CHARGE>() else {
            return None;
        };
        if charges.len() != count {
            return None;
        }
        let charges = charges
            .iter()
            .map(read_charge)
            .collect::<Option<Vec<_>>>()?;
        Some(receipt.with_charges(charged, charges.into_iter()))
    }
}

fn read_charge(bytes: &[u8; CHARGE]) -> Option<Charge> {
    let from = &mut bytes.as_slice();
    Some(Charge {
        kind: Kind::of_number(take_u32(from)?),
        end: take_u64(from)?,
        interval: take_u64(from)?,
    })
}
