//! The call of a limiter: a list of charges, which it decides about together.

use std::time::Duration;

use super::tier::Tier;
use crate::{
    decision::{Op, Receipt},
    error::LimiterError,
    key::value::Key,
    quota::Priority,
};

/// The argument of a limiter: a charge for each limit that a request meets, all or nothing.
///
/// A list of one, for nearly all limiters. A [`JointLimiter`](super::JointLimiter) takes several: each of its limits
/// that has a charge is charged, the others are left as they are.
///
/// [`Acquire`](OpRef::Acquire), [`Reserve`](OpRef::Reserve) and [`AcquireUpTo`](OpRef::AcquireUpTo) take from all their
/// limits, or from none if one of these denies; limits that `AcquireUpTo` take equal units, at most the least of their
/// numbers. All other operations are applied in any case. The decision is a denial if one limit denies;
/// [`Decision::charged_by_each`](crate::Decision::charged_by_each) has the units that each took. If a limit does not
/// support its operation, the answer is an error and none is applied.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The charges, at most one for each limit.
    pub charges: &'a [Charge<'a>],
    /// How long ago the wait of the request has ended, since timers are late by a millisecond or two.
    ///
    /// A token bucket that is full gains nothing while the timer is late. A limiter may therefore charge it as of the
    /// end of the wait, but of no instant more than 5 ms ago. A [`LocalLimiter`](crate::LocalLimiter) does, alone and
    /// among several; other limiters charge as of now.
    pub late: Duration,
    /// The numbers that the caller reads.
    pub wants: Numbers,
}

/// The numbers that the caller of a limiter reads: a limiter need not find out others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Numbers {
    /// The numbers of a denial. Of a call that is allowed only the outcome is read: its decision may have no quotas, no receipt
    /// that a refund can use, and one part for all limits.
    OfDenials,
    /// The numbers of each decision.
    All,
}

/// An operation on a key of one limit.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// The index of the limit in its limiter. `None` is the only limit: a limiter of several refuses the charge.
    pub limit: Option<usize>,
    /// The key that the limit counts by.
    pub key: &'a Key,
    /// The quotas that measure the request.
    pub tier: &'a Tier,
    /// The class of the request.
    pub class: Priority,
    /// The operation.
    pub op: OpRef<'a>,
}

/// A [`Charge`] that owns its parts, for what waits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OwnedCharge {
    /// The index of the limit in its limiter; `None` for the only limit.
    pub limit: Option<usize>,
    /// The key that the limit counts by.
    pub key: Key,
    /// The quotas that measure the request.
    pub tier: Tier,
    /// The class of the request.
    pub class: Priority,
    /// The operation.
    pub op: Op,
}

impl OwnedCharge {
    /// The charge, borrowed.
    #[inline]
    pub const fn as_ref(&self) -> Charge<'_> {
        Charge {
            limit: self.limit,
            key: &self.key,
            tier: &self.tier,
            class: self.class,
            op: self.op.as_ref(),
        }
    }
}

/// An [`Op`] that borrows its receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpRef<'a> {
    /// [`Op::Acquire`].
    Acquire(u64),
    /// [`Op::Reserve`].
    Reserve(u64),
    /// [`Op::Deny`].
    Deny(u64),
    /// [`Op::AcquireUpTo`].
    AcquireUpTo(u64),
    /// [`Op::Peek`].
    Peek(u64),
    /// [`Op::Hit`].
    Hit(u64),
    /// [`Op::Spend`].
    Spend(u64),
    /// [`Op::Count`].
    Count(u64),
    /// [`Op::Settle`].
    Settle(u64, &'a Receipt),
    /// [`Op::Refund`].
    Refund(u64, Option<&'a Receipt>),
    /// [`Op::Block`].
    Block(Duration),
    /// [`Op::Reset`].
    Reset,
}

impl<'a> Call<'a> {
    /// A call with these charges.
    #[inline]
    pub const fn of(charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            late: Duration::ZERO,
            wants: Numbers::All,
        }
    }

    /// This call, for a caller that reads these numbers.
    #[must_use]
    pub const fn wants(self, wants: Numbers) -> Self {
        Self { wants, ..self }
    }

    /// This call, for a request whose wait has ended `late` ago.
    #[must_use]
    pub const fn late(self, late: Duration) -> Self {
        Self { late, ..self }
    }

    /// The only charge, for a limiter of one limit.
    ///
    /// # Errors
    ///
    /// If there is another number of charges.
    #[inline]
    pub fn one(&self) -> Result<&'a Charge<'a>, LimiterError> {
        match self.charges {
            [only] => Ok(only),
            several => Err(wrong_number(several.len())),
        }
    }

    /// The key and the operation of the only charge, for a limiter of one limit without tiers and classes.
    ///
    /// # Errors
    ///
    /// If there is another number of charges, or the charge is in another tier than [`Tier::DEFAULT`] or of another
    /// class than [`Priority::CRITICAL`].
    pub fn alone(&self) -> Result<(&'a Key, OpRef<'a>), LimiterError> {
        let charge = self.of_all_classes()?;
        if !charge.tier.is_default() {
            return Err(charge.tier.unknown());
        }
        Ok((charge.key, charge.op))
    }

    /// The only charge, whose request is of the class that stands for all: for a limiter of one limit without classes.
    ///
    /// # Errors
    ///
    /// If there is another number of charges, or the charge has another class than [`Priority::CRITICAL`].
    pub(super) fn of_all_classes(&self) -> Result<&'a Charge<'a>, LimiterError> {
        let charge = self.one()?;
        if !charge.class.is_critical() {
            return Err(LimiterError::unsupported(
                "the limiter supports no priorities; use a LocalLimiter or a RedisLimiter",
            ));
        }
        Ok(charge)
    }
}

#[cold]
fn wrong_number(charges: usize) -> LimiterError {
    LimiterError::unsupported(format!(
        "{charges} charges for 1 limit: pass one, or call a JointLimiter of {charges} limits"
    ))
}

impl<'a> Charge<'a> {
    /// The operation on `key` of the only limit, in the default tier and of the class [`Priority::CRITICAL`].
    #[inline]
    pub const fn new(key: &'a Key, op: OpRef<'a>) -> Self {
        static DEFAULT_TIER: Tier = Tier::DEFAULT;
        Self {
            limit: None,
            key,
            tier: &DEFAULT_TIER,
            class: Priority::CRITICAL,
            op,
        }
    }

    /// This charge, of the limit with this index.
    #[must_use]
    pub const fn limit(self, limit: usize) -> Self {
        let limit = Some(limit);
        Self { limit, ..self }
    }

    /// The index of the limit; 0 for the only one.
    #[inline]
    pub(crate) const fn index(&self) -> usize {
        match self.limit {
            Some(limit) => limit,
            None => 0,
        }
    }

    /// This charge, by the quotas of `tier`.
    #[must_use]
    pub const fn tier(self, tier: &'a Tier) -> Self {
        Self { tier, ..self }
    }

    /// This charge, for a request of this class. Call only limiters that
    /// [support classes](crate::limiter::Facts::classes) with another one than [`Priority::CRITICAL`].
    #[must_use]
    pub const fn class(self, class: Priority) -> Self {
        Self { class, ..self }
    }

    /// This charge with another operation.
    #[must_use]
    pub const fn op(self, op: OpRef<'a>) -> Self {
        Self { op, ..self }
    }

    /// This charge with parts of its own.
    pub fn to_owned(&self) -> OwnedCharge {
        OwnedCharge {
            limit: self.limit,
            key: self.key.clone(),
            tier: self.tier.clone(),
            class: self.class,
            op: self.op.to_owned(),
        }
    }
}

impl<'a> OpRef<'a> {
    /// The operation with a receipt of its own.
    pub fn to_owned(self) -> Op {
        match self {
            Self::Acquire(cost) => Op::Acquire(cost),
            Self::Reserve(cost) => Op::Reserve(cost),
            Self::Deny(cost) => Op::Deny(cost),
            Self::AcquireUpTo(most) => Op::AcquireUpTo(most),
            Self::Peek(cost) => Op::Peek(cost),
            Self::Hit(cost) => Op::Hit(cost),
            Self::Spend(units) => Op::Spend(units),
            Self::Count(units) => Op::Count(units),
            Self::Settle(cost, receipt) => Op::Settle(cost, receipt.clone()),
            Self::Refund(cost, receipt) => Op::Refund(cost, receipt.cloned()),
            Self::Block(length) => Op::Block(length),
            Self::Reset => Op::Reset,
        }
    }

    /// The units of the operation; 0 for one without.
    #[inline]
    pub(crate) const fn units(self) -> u64 {
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

    pub(crate) const fn receipt(self) -> Option<&'a Receipt> {
        match self {
            Self::Refund(_, receipt) => receipt,
            Self::Settle(_, receipt) => Some(receipt),
            _ => None,
        }
    }

    /// The operation with another receipt in place of its own.
    pub(crate) const fn with_receipt(self, receipt: &'a Receipt) -> Self {
        match self {
            Self::Settle(cost, _) => Self::Settle(cost, receipt),
            Self::Refund(cost, _) => Self::Refund(cost, Some(receipt)),
            other => other,
        }
    }

    /// The operation with the part that the limit with this identity has in a receipt of several limits. An operation
    /// without such a receipt needs no change.
    ///
    /// # Errors
    ///
    /// If the receipt has no part of this limit.
    #[inline]
    pub(crate) fn of_limit(self, limit: u64) -> Result<Self, LimiterError> {
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
        Ok(self.with_receipt(own))
    }
}

impl Op {
    /// The operation as a [charge](Charge) has it.
    #[inline]
    pub const fn as_ref(&self) -> OpRef<'_> {
        match self {
            Self::Acquire(cost) => OpRef::Acquire(*cost),
            Self::Reserve(cost) => OpRef::Reserve(*cost),
            Self::Deny(cost) => OpRef::Deny(*cost),
            Self::AcquireUpTo(most) => OpRef::AcquireUpTo(*most),
            Self::Peek(cost) => OpRef::Peek(*cost),
            Self::Hit(cost) => OpRef::Hit(*cost),
            Self::Spend(units) => OpRef::Spend(*units),
            Self::Count(units) => OpRef::Count(*units),
            Self::Settle(cost, receipt) => OpRef::Settle(*cost, receipt),
            Self::Refund(cost, receipt) => OpRef::Refund(*cost, receipt.as_ref()),
            Self::Block(length) => OpRef::Block(*length),
            Self::Reset => OpRef::Reset,
        }
    }
}
