//! The quotas of a decision: their policies, and the numbers of each.

use std::{mem, num::NonZeroU8, ops::Range, slice, sync::Arc};

use super::{LimitReceipt, Policy, QuotaStatus, REQUEST_TIER, Receipt, Status};
use crate::clock::Timestamp;

/// The status of each quota of a decision; made from one [`QuotaStatus`] or from several.
///
/// One quota, the usual case, is copied without an allocation, and without a reference count if its name is static. The
/// policies of several share one count.
#[derive(Debug, Clone)]
pub struct QuotaStatuses(List);

#[derive(Debug, Clone)]
enum List {
    One(Policy, Status),
    Several(Policies, Box<[Status]>),
}

/// One enum in the list, so that the drop of a lone quota compares one byte.
#[derive(Debug, Clone)]
enum Policies {
    Alone(Arc<[Policy]>),
    /// Several limits decided together.
    Joint(Box<[Part]>),
}

/// A limit's part of a joint decision: its quotas and its charge.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The identity of the limit; 0 if unknown.
    pub(super) limit: u64,
    pub(super) policies: Arc<[Policy]>,
    pub(super) charged: u64,
    pub(super) charged_at: Timestamp,
    pub(super) tier: u16,
    pub(super) degraded: bool,
    pub(super) lease: Option<NonZeroU8>,
}

impl From<QuotaStatus<'_>> for QuotaStatuses {
    fn from(quota: QuotaStatus<'_>) -> Self {
        Self(List::One(quota.policy.clone(), quota.status))
    }
}

/// # Panics
///
/// If the list is empty: a decision needs at least one quota.
impl From<Vec<QuotaStatus<'_>>> for QuotaStatuses {
    fn from(quotas: Vec<QuotaStatus<'_>>) -> Self {
        assert!(!quotas.is_empty(), "a decision needs at least one quota");
        let policies = quotas.iter().map(|quota| quota.policy.clone());
        let statuses = quotas.iter().map(|quota| quota.status);
        let policies = Policies::Alone(policies.collect());
        Self(List::Several(policies, statuses.collect()))
    }
}

impl QuotaStatuses {
    #[inline]
    pub(crate) fn of_one(policy: &Policy, status: Status) -> Self {
        Self(List::One(policy.clone(), status))
    }

    pub(crate) fn of_set(policies: &Arc<[Policy]>, statuses: impl Iterator<Item = Status>) -> Self {
        // A loop, because the calls of a collected iterator are not inlined.
        let mut all = Vec::with_capacity(policies.len());
        for status in statuses {
            all.push(status);
        }
        Self::of_several(policies, all)
    }

    /// The statuses of several quotas of one limit.
    #[inline(always)]
    pub(crate) fn of_several(policies: &Arc<[Policy]>, statuses: Vec<Status>) -> Self {
        let policies = Policies::Alone(Arc::clone(policies));
        Self(List::Several(policies, statuses.into_boxed_slice()))
    }

    pub(super) fn of_joint(parts: Vec<Part>, statuses: Vec<Status>) -> Self {
        let policies = Policies::Joint(parts.into());
        Self(List::Several(policies, statuses.into()))
    }

    /// Moves the quotas out from behind a reference.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        let nothing = List::Several(Policies::Joint(Box::default()), Box::default());
        Self(mem::replace(&mut self.0, nothing))
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Status] {
        match &self.0 {
            List::One(_, status) => slice::from_ref(status),
            List::Several(_, statuses) => statuses,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [Status] {
        match &mut self.0 {
            List::One(_, status) => slice::from_mut(status),
            List::Several(_, statuses) => statuses,
        }
    }

    /// Changes each status by its policy and the nanosecond of its decision: `at`, if one limit decided alone.
    pub(super) fn each_mut(
        &mut self,
        at: Timestamp,
        mut change: impl FnMut(&Policy, u64, &mut Status),
    ) {
        let at = at.as_nanos();
        match &mut self.0 {
            List::One(policy, status) => change(policy, at, status),
            List::Several(Policies::Alone(policies), statuses) => {
                let both = policies.iter().zip(statuses);
                both.for_each(|(policy, status)| change(policy, at, status));
            }
            List::Several(Policies::Joint(parts), statuses) => {
                let mut statuses = statuses.iter_mut();
                for part in &*parts {
                    let both = part.policies.iter().zip(&mut statuses);
                    both.for_each(|(policy, status)| {
                        change(policy, part.charged_at.as_nanos(), status)
                    });
                }
            }
        }
    }

    /// The parts of several limits; empty if one limit decided alone.
    pub(super) fn parts(&self) -> &[Part] {
        match &self.0 {
            List::Several(Policies::Joint(parts), _) => parts,
            List::One(..) | List::Several(..) => &[],
        }
    }

    #[cfg(any(feature = "redis", feature = "rules"))]
    pub(super) fn policies(&self) -> Arc<[Policy]> {
        match &self.0 {
            List::One(policy, _) => Arc::new([policy.clone()]),
            List::Several(Policies::Alone(policies), _) => Arc::clone(policies),
            List::Several(..) => (self.parts().iter())
                .flat_map(|part| part.policies.iter().cloned())
                .collect(),
        }
    }

    /// The indices of one limit's quotas among those of all limits that decided together.
    pub(super) fn places_of(&self, limit: usize) -> Range<usize> {
        let parts = self.parts();
        let Some(part) = parts.get(limit) else {
            return 0..self.as_slice().len();
        };
        let before: usize = parts[..limit].iter().map(|part| part.policies.len()).sum();
        before..before + part.policies.len()
    }

    /// The index of the limit that has the quota at `place`; 0 if one limit decided alone.
    pub(super) fn limit_of(&self, place: usize) -> usize {
        part_of(self.parts(), place).0
    }

    fn policy(&self, place: usize) -> &Policy {
        match &self.0 {
            List::One(policy, _) => policy,
            List::Several(Policies::Alone(policies), _) => &policies[place],
            List::Several(..) => {
                let (limit, place) = part_of(self.parts(), place);
                &self.parts()[limit].policies[place]
            }
        }
    }

    pub(super) fn quota(&self, place: usize) -> QuotaStatus<'_> {
        QuotaStatus {
            policy: self.policy(place),
            status: self.as_slice()[place],
        }
    }

    pub(super) fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = QuotaStatus<'_>> + DoubleEndedIterator + Clone {
        (0..self.as_slice().len()).map(|place| self.quota(place))
    }

    /// The index of the binding quota. `remaining` returns the units left of the quota at an index.
    pub(super) fn binding_place_by(&self, remaining: impl Fn(usize) -> Option<u64>) -> usize {
        let left = |quota: &QuotaStatus<'_>, place| remaining(place).unwrap_or(quota.limit());
        let mut binding = 0;
        for place in 1..self.as_slice().len() {
            let (own, other) = (self.quota(place), self.quota(binding));
            if own.binds_more_than(&other, || [left(&own, place), left(&other, binding)]) {
                binding = place;
            }
        }
        binding
    }

    #[inline]
    pub(super) fn binding_place(&self) -> usize {
        match &self.0 {
            List::One(..) => 0,
            List::Several(_, statuses) => {
                self.binding_place_by(|place| statuses[place].remaining())
            }
        }
    }

    /// The status of a single quota, if `policies` is its policy alone.
    #[inline]
    pub(super) fn alone_of(&self, policies: &[Policy]) -> Option<&Status> {
        match (&self.0, policies) {
            (List::One(policy, status), [one]) if policy == one => Some(status),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn are_of(&self, policies: &[Policy]) -> bool {
        match &self.0 {
            List::One(policy, _) => slice::from_ref(policy) == policies,
            List::Several(Policies::Alone(own), _) => **own == *policies,
            List::Several(..) => {
                let own = self.parts().iter().flat_map(|part| &*part.policies);
                own.eq(policies)
            }
        }
    }
}

/// The index of the limit that has the quota at `place`, and the quota's index in it.
fn part_of(parts: &[Part], mut place: usize) -> (usize, usize) {
    let mut limit = 0;
    while let Some(part) = parts.get(limit).filter(|part| place >= part.policies.len()) {
        place -= part.policies.len();
        limit += 1;
    }
    (limit, place)
}

impl PartialEq for QuotaStatuses {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for QuotaStatuses {}

impl Part {
    /// The receipt of the limit, whose charge left `quotas`.
    pub(super) fn receipt<'a>(
        &self,
        quotas: impl ExactSizeIterator<Item = QuotaStatus<'a>> + Clone,
    ) -> LimitReceipt {
        let receipt = Receipt::new(self.charged_at)
            .in_tier(self.tier)
            .degraded(self.degraded)
            .leased(self.lease);
        LimitReceipt {
            limit: self.limit,
            receipt: receipt.for_quotas(self.charged, quotas),
        }
    }
}

impl Receipt {
    /// The receipt for `charged` units, whose charge left the quotas in these states.
    pub(super) fn for_quotas<'a>(
        self,
        charged: u64,
        mut quotas: impl ExactSizeIterator<Item = QuotaStatus<'a>> + Clone,
    ) -> Self {
        let is_leased = self.is_leased();
        let charges = quotas.clone().map(move |quota| quota.charge(is_leased));
        let request = quotas.next().filter(|_| self.tier() == REQUEST_TIER);
        let receipt = self.of_request(request.map(|quota| quota.fitted()));
        if charged == 0 {
            return receipt;
        }
        receipt.with_charges(charged, charges)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{List, Policies};
    use crate::{
        Key, LocalLimiter, Quota,
        decision::{Decision, policy::Name},
    };

    #[test]
    fn decision_about_several_quotas_holds_one_reference_count() {
        let quotas = [1, 2, 3].map(|limit| Quota::per_day(limit).named_owned(limit.to_string()));
        let limiter = LocalLimiter::new(quotas);
        let first = limiter.acquire(&Key::global(), 1);
        let List::Several(Policies::Alone(policies), _) = &first.quotas.0 else {
            panic!("several quotas");
        };
        let counts = Arc::strong_count(policies);
        let second = limiter.acquire(&Key::global(), 1);
        assert_eq!(Arc::strong_count(policies), counts + 1);
        drop((second, limiter));
        assert_eq!(Arc::strong_count(policies), 1);
    }

    #[test]
    fn a_static_name_has_no_reference_count() {
        let name = |decision: Decision| match decision.quotas.0 {
            List::One(policy, _) => policy.name,
            _ => panic!("one quota"),
        };
        for quota in [Quota::per_day(1).named("one"), Quota::per_day(1)] {
            let decision = LocalLimiter::new(quota).acquire(&Key::global(), 1);
            assert!(matches!(name(decision), Name::Static(_)));
        }
    }
}
