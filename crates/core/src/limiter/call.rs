//! The call of a limiter: a list of charges, which it decides about together.

use std::time::Duration;

use super::tier::Tier;
pub use crate::decision::operation::OpRef;
use crate::{
    algorithm::{Judgement, TokenBucket, Verdict},
    clock::Timestamp,
    decision::{Decision, Op, Policy, QuotaStatuses, Ruling, Status},
    error::LimiterError,
    key::Key,
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
/// [`Decision::charged_by_each`](crate::Decision::charged_by_each) has the units that each took. Limits that
/// [overflow](Charge::overflows) are charged with the others or left out. If a limit does not support its operation, the
/// answer is an error and none is applied.
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
    /// The numbers of a denial, and of a request that waits. Of one that passes at once only that is read: its decision may
    /// have no quotas, no receipt that a refund can use, and one part for all limits.
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
    /// Whether the call may pass although this limit denies: see [`overflows`](Self::overflows).
    pub overflows: bool,
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
    /// Whether the call may pass although this limit denies.
    pub overflows: bool,
}

impl OwnedCharge {
    /// `charge` with this operation.
    #[doc(hidden)]
    pub fn new(charge: &Charge<'_>, op: Op) -> Self {
        Self {
            limit: charge.limit,
            key: charge.key.clone(),
            tier: charge.tier.clone(),
            class: charge.class,
            op,
            overflows: charge.overflows,
        }
    }

    /// The charge, borrowed.
    #[inline]
    pub fn as_ref(&self) -> Charge<'_> {
        Charge {
            limit: self.limit,
            key: &self.key,
            tier: &self.tier,
            class: self.class,
            op: self.op.as_ref(),
            overflows: self.overflows,
        }
    }
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
            overflows: false,
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
    #[doc(hidden)]
    pub const fn index(&self) -> usize {
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

    /// This charge, of a limit that does not hold the others back if it denies: they take their units without it, and
    /// the call is not a denial, unless all its limits deny. A key that is blocked, or that the denial blocks, is a denial
    /// nevertheless. If another limit denies the call, this one does not.
    ///
    /// For [`Acquire`](OpRef::Acquire), [`Reserve`](OpRef::Reserve), [`Peek`](OpRef::Peek) and [`Deny`](OpRef::Deny);
    /// other operations are the same with it.
    #[must_use]
    pub const fn overflows(self, overflows: bool) -> Self {
        Self { overflows, ..self }
    }

    /// Whether the call may pass although this charge is denied.
    #[inline]
    #[doc(hidden)]
    pub const fn may_overflow(&self) -> bool {
        let op = self.op;
        self.overflows
            && matches!(
                op,
                OpRef::Acquire(_) | OpRef::Reserve(_) | OpRef::Peek(_) | OpRef::Deny(_)
            )
    }

    /// This charge with parts of its own.
    pub fn to_owned(&self) -> OwnedCharge {
        OwnedCharge::new(self, self.op.to_owned())
    }
}

/// A charge of a token bucket: all that its decision follows from.
#[derive(Debug, Clone, Copy)]
pub struct Charged<'a> {
    pub(super) bucket: &'a TokenBucket,
    pub(super) policy: &'a Policy,
    pub class: Priority,
    /// Nanoseconds until the bucket is full.
    pub used: u64,
    /// Nanoseconds until the units fit: 0 if they were taken.
    pub(super) wait: u64,
    pub units: u64,
    pub(super) at: Timestamp,
    /// `at` in nanoseconds.
    pub(super) now: u64,
}

impl Charged<'_> {
    /// Whether the units were taken.
    #[inline]
    pub const fn is_taken(&self) -> bool {
        self.wait == 0
    }

    #[inline(always)]
    pub fn decision(&self) -> Decision {
        let Self { bucket, class, .. } = *self;
        let (verdict, charged) = if self.is_taken() {
            (Verdict::FITS, self.units)
        } else {
            (Verdict::After(self.wait), 0)
        };
        let (part, shed);
        let of_class = if class.is_critical() {
            shed = false;
            bucket
        } else {
            let state = self.now.saturating_add(self.used);
            shed = !verdict.fits() && bucket.verdict(state, self.now, self.units).fits();
            part = bucket.part(class);
            &part
        };
        let judgement = Judgement {
            verdict,
            charged,
            shed,
        };
        let status = verdict.explain(of_class.status(self.used, self.now));
        decision_about(self.policy, status, &judgement, self.at, class)
    }
}

#[inline(always)]
pub(super) fn decision_about(
    policy: &Policy,
    status: Status,
    judgement: &Judgement,
    at: Timestamp,
    class: Priority,
) -> Decision {
    let quotas = QuotaStatuses::of_one(policy, status);
    let ruling = Ruling::measured(judgement.outcome(), judgement.charged, at, 0);
    let mut decision = Decision::of(ruling, quotas);
    if !class.is_critical() {
        decision.set_class(class, judgement.shed);
    }
    decision
}
