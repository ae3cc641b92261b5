//! The decision: an outcome, and how each quota stands.

use std::{num::NonZeroU8, ops::Range, time::Duration};

use super::{
    Degradation, Policy, QuotaStatus, QuotaStatuses, Receipt,
    micros::{Micros, whole_seconds},
    status::Status,
};
use crate::clock::Timestamp;

/// Whether a request may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request passes now.
    Allowed,
    /// The request passes after this wait.
    Delayed(Duration),
    /// The request does not pass.
    Denied,
}

/// A limiter's answer: the outcome, and how each quota stands.
///
/// Limiters of your own build one with [`allowed`](Self::allowed) or [`denied`](Self::denied).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub(super) quotas: QuotaStatuses,
    pub(super) delay: Option<Micros>,
    pub(super) charged: u64,
    pub(super) charged_at: Timestamp,
    /// The place of the tier among those of the limiter.
    pub(super) tier: u16,
    pub(super) denied: bool,
    pub(super) excess: bool,
    pub(super) blocked: bool,
    pub(super) degraded: Option<Degradation>,
    pub(super) uncounted: bool,
    /// The lease that the units are of.
    pub(super) lease: Option<NonZeroU8>,
}

impl Decision {
    /// The request passes, and `charged` units were taken at `at`.
    #[must_use]
    pub fn allowed(charged: u64, at: Timestamp, quotas: impl Into<QuotaStatuses>) -> Self {
        Self::new(Outcome::Allowed, charged, at, quotas.into())
    }

    /// The request does not pass, as was decided at `at`, and nothing was taken.
    #[must_use]
    pub fn denied(at: Timestamp, quotas: impl Into<QuotaStatuses>) -> Self {
        Self::new(Outcome::Denied, 0, at, quotas.into())
    }

    /// The request passes, and nobody was asked whether it may: nothing is known but the policies.
    pub(crate) fn uncounted(at: Timestamp, policies: &[Policy]) -> Self {
        let mut decision = Self::unmeasured(at, policies);
        decision.uncounted = true;
        decision
    }

    /// The request passes, and nothing is known of what is left.
    pub(crate) fn unmeasured(at: Timestamp, policies: &[Policy]) -> Self {
        let statuses = match policies {
            // A limiter need not name any, and a decision is about at least one.
            [] => QuotaStatuses::from(QuotaStatus::new(&Policy::new("default", 0))),
            [one] => QuotaStatuses::from(QuotaStatus::new(one)),
            several => several
                .iter()
                .map(QuotaStatus::new)
                .collect::<Vec<_>>()
                .into(),
        };
        Self::new(Outcome::Allowed, 0, at, statuses)
    }

    /// The answer of a limiter of ours; a hit may be charged although it is denied.
    #[inline]
    pub(crate) fn new(
        outcome: Outcome,
        charged: u64,
        charged_at: Timestamp,
        quotas: QuotaStatuses,
    ) -> Self {
        Self {
            quotas,
            delay: match outcome {
                Outcome::Delayed(wait) => Some(Micros::from_duration(wait)),
                Outcome::Allowed | Outcome::Denied => None,
            },
            charged,
            charged_at,
            tier: 0,
            denied: outcome == Outcome::Denied,
            excess: false,
            blocked: false,
            degraded: None,
            uncounted: false,
            lease: None,
        }
    }

    /// Moves the decision out from behind a reference. The rest is good for nothing but to be
    /// dropped: of several quotas it has none left.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self {
            quotas: self.quotas.take(),
            ..*self
        }
    }

    /// Whether the request may pass.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self.delay {
            _ if self.denied => Outcome::Denied,
            Some(wait) => Outcome::Delayed(wait.duration()),
            None => Outcome::Allowed,
        }
    }

    /// Whether the request does not pass.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        self.denied
    }

    /// Whether the request passes, now or after a wait.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.is_denied()
    }

    /// The units that were taken: 0 for a denial and for a look, what fitted for
    /// [`AcquireUpTo`](crate::Op::AcquireUpTo).
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// The time of the decision.
    #[must_use]
    pub const fn decided_at(&self) -> Timestamp {
        self.charged_at
    }

    /// The receipt that a later refund of these units needs. With several quotas it allocates.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let receipt = Receipt::new(self.charged_at)
            .in_tier(self.tier)
            .degraded(self.degraded.is_some())
            .leased(self.lease);
        match self.quotas.receipts() {
            Some(of_limits) => receipt.of_limits(self.charged, of_limits),
            None => receipt.for_quotas(self.charged, self.statuses()),
        }
    }

    /// How each quota stands, in the order in which they were listed.
    ///
    /// ```
    /// use tower_ratelimit::{Key, LocalLimiter, Quota};
    ///
    /// let limiter = LocalLimiter::new([Quota::per_second(10), Quota::per_day(1_000).named("daily")]);
    /// let decision = limiter.acquire(&Key::from("alice"), 1);
    /// let left = decision.quotas().map(|quota| (quota.name(), quota.remaining()));
    /// assert!(left.eq([("10-per-1s", Some(9)), ("daily", Some(999))]));
    /// ```
    #[must_use]
    pub fn quotas(
        &self,
    ) -> impl ExactSizeIterator<Item = QuotaStatus<'_>> + DoubleEndedIterator + Clone {
        self.quotas.iter()
    }

    /// The quotas' statuses, without names.
    #[inline]
    pub(crate) fn statuses(&self) -> &[Status] {
        self.quotas.as_slice()
    }

    /// The quota that binds: of those that denied, the one with the longest wait; if none did, the
    /// one with the least left in proportion to its limit. The first listed of equals.
    #[must_use]
    pub fn binding(&self) -> QuotaStatus<'_> {
        self.quotas.binding()
    }

    /// The binding quota's status, without its name.
    #[inline]
    pub(crate) fn binding_status(&self) -> &Status {
        self.quotas.binding_place().1
    }

    /// The same, after its place among the quotas.
    #[inline]
    pub(crate) fn binding_place(&self) -> (usize, &Status) {
        self.quotas.binding_place()
    }

    /// The place of the limit that binds among those that decided together.
    pub(crate) fn binding_limit(&self) -> usize {
        let (place, _) = self.binding_place();
        self.quotas.limit_of(place)
    }

    /// How many limits decided together; 0 where one decided alone.
    pub(crate) fn limits(&self) -> usize {
        self.quotas.limits()
    }

    /// The places of the quotas of one of the limits that decided together; of all quotas where one
    /// decided alone.
    pub(crate) fn places_of(&self, limit: usize) -> Range<usize> {
        self.quotas.places_of(limit)
    }

    /// The status of the one quota that `policies` describe, if the decision is about that one.
    #[inline]
    pub(crate) fn status_alone_of(&self, policies: &[Policy]) -> Option<&Status> {
        self.quotas.alone_of(policies)
    }

    /// Whether the decision is about these policies. One made by another tier's quotas is not, nor
    /// one made since a quota was changed.
    #[inline]
    pub(crate) fn is_about(&self, policies: &[Policy]) -> bool {
        self.quotas.are_of(policies)
    }

    /// How long until what was denied would pass if nothing else came: zero when it was allowed,
    /// `None` when it can never fit or the wait is unknown.
    ///
    /// At exactly this time the same request passes, a microsecond earlier it does not.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_denied() {
            self.binding_status().retry_after()
        } else {
            Some(Duration::ZERO)
        }
    }

    /// [`retry_after`](Self::retry_after) of a denial in whole seconds, rounded up, at least 1:
    /// what a `Retry-After` field says.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let wait = self.retry_after().filter(|_| self.is_denied())?;
        Some(whole_seconds(wait))
    }

    /// Units left of the binding quota, `None` where the limiter does not tell.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.binding_status().remaining()
    }

    /// Names of the quotas that denied.
    pub(crate) fn violated(&self) -> impl Iterator<Item = &str> + Clone {
        let denied = self.statuses().iter().enumerate();
        let denied = denied.filter(|(_, quota)| quota.is_denied());
        denied.map(|(place, quota)| self.quotas.name(place, quota))
    }

    /// How long the request waits in the queue of a
    /// [leaky bucket](crate::Algorithm::LeakyBucket), or waited for a
    /// [denial to end](crate::RateLimitLayer::wait); zero for all others.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        match self.outcome() {
            Outcome::Delayed(wait) => wait,
            Outcome::Allowed | Outcome::Denied => Duration::ZERO,
        }
    }

    /// Whether the request passes although a nominal limit is used up: in the extra share of a
    /// [soft](crate::Quota::soft) quota, or because an
    /// [elastic](crate::RateLimitLayer::elastic) layer let it.
    #[must_use]
    pub fn is_excess(&self) -> bool {
        self.excess || (self.is_allowed() && self.statuses().iter().any(Status::is_excess))
    }

    /// Whether the key is kept out for breaking its limit before, see
    /// [`LocalLimiterBuilder::block_for`](crate::limiter::LocalLimiterBuilder::block_for).
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether the limiter's store did not decide, and what stands in for it did: see
    /// [`OnFailure`](crate::OnFailure).
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.degraded.is_some()
    }

    /// Why the limiter's store did not decide; `None` when it did.
    #[must_use]
    pub const fn degraded_by(&self) -> Option<Degradation> {
        self.degraded
    }

    /// Whether the limiter was asked: false for a request that passed because the layer was
    /// [switched off](crate::RateLimitLayer::enabled), skipped it, put it into
    /// [`Tier::UNLIMITED`](crate::limiter::Tier::UNLIMITED), or only watches and could not ask.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        !self.uncounted
    }

    /// Whether the limiter let the request pass with no call to its store: with units that it holds in
    /// this process, see [`Mode::leased`](crate::shared::Mode::leased), or ahead of the store, see
    /// [`Mode::eventual`](crate::shared::Mode::eventual).
    #[cfg(feature = "redis")]
    #[must_use]
    pub const fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Notes by which of the limiter's tiers it was decided.
    #[inline]
    pub(crate) const fn in_tier(mut self, tier: u16) -> Self {
        self.tier = tier;
        self
    }

    /// Marks a decision as one that the limiter's store had no part in, for this reason.
    #[cfg(feature = "redis")]
    pub(crate) fn into_degraded(mut self, reason: Degradation) -> Self {
        self.degraded = Some(reason);
        self
    }

    /// The decision that takes `charged` units of a lease, this time after the one that told how the
    /// quotas stood; by now they have this many more units left, or fewer.
    #[cfg(feature = "redis")]
    pub(crate) fn of_lease(
        self,
        (charged, lease): (u64, NonZeroU8),
        elapsed: Duration,
        more: i64,
    ) -> Self {
        let mut decision = self.aged(elapsed);
        for quota in decision.quotas.as_mut_slice() {
            quota.pardon();
            match more {
                0.. => quota.raise(more.unsigned_abs()),
                _ => quota.lower(more.unsigned_abs()),
            }
        }
        decision.charged_at = decision.charged_at.saturating_add(elapsed);
        (decision.charged, decision.lease) = (charged, Some(lease));
        (decision.denied, decision.delay, decision.blocked) = (false, None, false);
        decision
    }

    /// The same this time later, as far as something is as good as new by then.
    #[cfg(feature = "redis")]
    pub(crate) fn renewed(mut self, elapsed: Duration) -> Self {
        for quota in self.quotas.as_mut_slice() {
            quota.renew(elapsed);
        }
        self
    }

    /// Tells so many units more as left.
    #[cfg(feature = "redis")]
    pub(crate) fn raise(&mut self, units: u64) {
        for quota in self.quotas.as_mut_slice() {
            quota.raise(units);
        }
    }

    /// The decision about the next one of requests that are alike and pass, if this one is about
    /// the one before: only the level has moved on.
    #[cfg(feature = "redis")]
    pub(crate) fn next_alike(&self) -> Self {
        self.nth_alike(1)
    }

    /// The decision about the one of requests that are alike that this many come before.
    #[cfg(feature = "redis")]
    pub(crate) fn nth_alike(&self, before: u64) -> Self {
        let mut next = self.clone();
        for quota in next.quotas.as_mut_slice() {
            quota.lower(self.charged.saturating_mul(before));
        }
        next
    }

    /// The same decision after `elapsed`, in which nothing came: all that is waited for is nearer.
    pub(crate) fn aged(mut self, elapsed: Duration) -> Self {
        for quota in self.quotas.as_mut_slice() {
            quota.age(elapsed);
        }
        self
    }

    /// Marks a decision as one that the request waited for.
    pub(crate) fn delayed_by(mut self, waited: Duration) -> Self {
        if self.is_allowed() && !waited.is_zero() {
            let waited = Micros::from_duration(waited);
            let delay = self
                .delay
                .map_or(waited, |delay| delay.saturating_add(waited));
            self.delay = Some(delay);
        }
        self
    }

    /// Marks a decision as let through in spite of a denial.
    pub(crate) fn into_excess(mut self) -> Self {
        self.denied = false;
        self.delay = None;
        self.excess = true;
        for quota in self.quotas.as_mut_slice() {
            quota.pardon();
        }
        self
    }

    /// Denies for at least `block`.
    pub(crate) fn into_blocked(mut self, block: Duration) -> Self {
        self.denied = true;
        self.delay = None;
        self.blocked = true;
        for quota in self.quotas.as_mut_slice() {
            quota.block(block);
        }
        self
    }

    /// Denies for at least `wait`, by the quota at this place.
    pub(crate) fn denied_for(mut self, place: usize, wait: Duration) -> Self {
        self.denied = true;
        self.delay = None;
        self.charged = 0;
        self.uncounted = false;
        self.lease = None;
        if let Some(quota) = self.quotas.as_mut_slice().get_mut(place) {
            quota.deny_for(wait);
        }
        self
    }

    /// Makes everyone who was denied wait this much longer.
    pub(crate) fn lengthen(&mut self, jitter: Duration) {
        if jitter.is_zero() {
            return;
        }
        for quota in self.quotas.as_mut_slice() {
            quota.lengthen(jitter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Decision;

    /// A longer one is copied by a call, and passes through several hands.
    #[test]
    fn decision_is_short() {
        assert!(size_of::<Decision>() <= 128);
    }
}
