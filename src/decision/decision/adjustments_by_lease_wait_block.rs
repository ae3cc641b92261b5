//! Changes of a decision after the limiter made it: by time, leases, waits, blocks and excess.

#[cfg(feature = "shared")]
use std::num::NonZeroU8;
use std::time::Duration;

use super::{CountedBy, Decision, DenialCause};
#[cfg(feature = "shared")]
use crate::decision::{Degradation, Status};
use crate::{
    decision::rounding::{LONGEST, nanos_of, whole_micros},
    quota::Priority,
};

impl Decision {
    #[inline]
    pub(crate) const fn set_tier(&mut self, tier: u16) {
        self.tier = tier;
    }

    /// [`set_tier`](Self::set_tier), for a decision that is moved anyway.
    #[inline]
    pub(crate) const fn in_tier(mut self, tier: u16) -> Self {
        self.set_tier(tier);
        self
    }

    /// Sets the class of the request, and whether only the class caused a denial.
    #[inline]
    pub(crate) fn set_class(&mut self, class: Priority, shed: bool) {
        self.cause = if shed {
            DenialCause::Class
        } else {
            DenialCause::Quotas
        };
        for quota in self.quotas.as_mut_slice() {
            quota.class = class;
        }
    }

    /// Marks a denial as caused by the class of the request alone.
    pub(crate) const fn into_shed(mut self) -> Self {
        self.cause = DenialCause::Class;
        self
    }

    /// Marks the decision as made without the limiter's store.
    #[cfg(feature = "shared")]
    pub(crate) fn into_degraded(mut self, reason: Degradation) -> Self {
        self.degraded = Some(reason);
        self
    }

    /// Makes the decision one that takes `charged` units of a lease.
    #[cfg(feature = "shared")]
    pub(crate) const fn by_lease(mut self, charged: u64, lease: NonZeroU8) -> Self {
        (self.charged, self.lease) = (charged, Some(lease));
        self
    }

    /// Replaces the numbers of each quota. Denials and waits stay.
    #[cfg(feature = "shared")]
    pub(crate) fn remeasure(&mut self, statuses: impl Iterator<Item = Status>) {
        let quotas = self.quotas.as_mut_slice().iter_mut();
        quotas
            .zip(statuses)
            .for_each(|(quota, status)| *quota = quota.remeasured(status));
    }

    /// The decision after `elapsed` without another request: all waits are shorter.
    pub(crate) fn aged(mut self, elapsed: Duration) -> Self {
        (self.quotas).each_mut(self.charged_at, |policy, at, quota| {
            quota.age(policy, at, elapsed);
        });
        self
    }

    /// Adds the time that the request waited to the delay of an allowed decision.
    pub(crate) fn delayed_by(mut self, waited: Duration) -> Self {
        if self.is_allowed() && !waited.is_zero() {
            let waited = whole_micros(nanos_of(waited));
            self.delay = self.delay.saturating_add(waited).min(LONGEST);
        }
        self
    }

    /// Turns a denial into an allowed decision in excess.
    pub(crate) fn into_excess(mut self) -> Self {
        self.denied = false;
        self.delay = 0;
        self.excess = true;
        for quota in self.quotas.as_mut_slice() {
            quota.pardon();
        }
        self
    }

    /// Marks the decision about a request that passes despite a denial: its layer adds the fields to each response.
    pub(crate) const fn set_overflow(&mut self) {
        self.cause = match self.cause {
            DenialCause::Class => DenialCause::ClassOverflow,
            _ => DenialCause::Overflow,
        };
    }

    /// Whether the layer of the request adds the fields to its response, also to one that denies the request.
    pub(crate) const fn is_overflow(&self) -> bool {
        matches!(
            self.cause,
            DenialCause::Overflow | DenialCause::ClassOverflow
        )
    }

    /// Turns a denial into a decision that passes, with the numbers of the denial.
    pub(crate) const fn into_passing(mut self) -> Self {
        self.denied = false;
        self
    }

    pub(crate) fn into_blocked(mut self, block: Duration) -> Self {
        self.denied = true;
        self.delay = 0;
        self.cause = DenialCause::Block;
        for quota in self.quotas.as_mut_slice() {
            quota.block(block);
        }
        self
    }

    /// Denies for at least `wait`, by the quota at `place`.
    pub(crate) fn denied_for(mut self, place: usize, wait: Duration) -> Self {
        self.denied = true;
        self.delay = 0;
        self.charged = 0;
        if !self.is_counted() {
            self.counted_by = CountedBy::Other;
        }
        self.lease = None;
        if let Some(quota) = self.quotas.as_mut_slice().get_mut(place) {
            quota.deny_for(wait);
        }
        self
    }

    /// Adds `jitter` to the wait of each quota that denied.
    pub(crate) fn lengthen(&mut self, jitter: Duration) {
        if jitter.is_zero() {
            return;
        }
        for quota in self.quotas.as_mut_slice() {
            quota.lengthen(jitter);
        }
    }
}
