//! The parts of a decision: the policies and the numbers of its quotas, and what each of several limits decided.

use std::{
    mem,
    ops::Range,
    slice,
    sync::{Arc, LazyLock},
};

use super::{Policy, QuotaStatus, REQUEST_TIER, Receipt, Ruling, Status};
use crate::{clock::Timestamp, error::LimiterError};

/// The status of each quota of a decision; made from one [`QuotaStatus`] or from several.
///
/// One quota, the usual case, is copied without an allocation, and without a reference count if its name is static. The
/// policies of several share one count.
#[derive(Debug, Clone)]
pub struct QuotaStatuses(Parts);

/// One enum, so that the drop of a lone quota compares one byte.
#[derive(Debug, Clone)]
enum Parts {
    /// Nobody reads the numbers.
    None,
    One(Policy, Status),
    Several(Source, Box<[Status]>),
}

#[derive(Debug, Clone)]
enum Source {
    /// One limit, of these quotas.
    Quotas(Arc<[Policy]>),
    /// Several limits that decided together.
    Limits(Box<[Part]>),
}

/// A limit's part of a decision of several limits.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The identity of the limit; 0 if unknown.
    pub limit: u64,
    pub policies: Arc<[Policy]>,
    /// The index of its first quota among those of all limits.
    pub(super) first: usize,
    pub(super) ruling: Ruling,
    /// Why the limit did not answer; the numbers of its quotas are not known then.
    pub error: Option<Arc<LimiterError>>,
}

impl Part {
    /// The indices of its quotas among those of all limits.
    pub(super) fn places(&self) -> Range<usize> {
        self.first..self.first + self.policies.len()
    }
}

impl From<QuotaStatus<'_>> for QuotaStatuses {
    fn from(quota: QuotaStatus<'_>) -> Self {
        Self(Parts::One(quota.policy.clone(), quota.status))
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
        let quotas = Source::Quotas(policies.collect());
        Self(Parts::Several(quotas, statuses.collect()))
    }
}

impl QuotaStatuses {
    /// The statuses of a decision whose numbers nobody reads.
    pub(crate) const NONE: Self = Self(Parts::None);

    #[inline]
    #[doc(hidden)]
    pub fn of_one(policy: &Policy, status: Status) -> Self {
        Self(Parts::One(policy.clone(), status))
    }

    /// The statuses of one limit.
    #[inline(always)]
    #[doc(hidden)]
    pub fn of_limit(policies: &Arc<[Policy]>, mut statuses: impl Iterator<Item = Status>) -> Self {
        if let [policy] = &**policies {
            return Self::of_one(policy, statuses.next().expect("every quota has a status"));
        }
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
        let quotas = Source::Quotas(Arc::clone(policies));
        Self(Parts::Several(quotas, statuses.into_boxed_slice()))
    }

    /// Moves the quotas out from behind a reference.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn take(&mut self) -> Self {
        mem::replace(self, Self::NONE)
    }

    #[inline]
    #[doc(hidden)]
    pub fn as_slice(&self) -> &[Status] {
        match &self.0 {
            Parts::None => &[],
            Parts::One(_, status) => slice::from_ref(status),
            Parts::Several(_, statuses) => statuses,
        }
    }

    #[inline]
    #[doc(hidden)]
    pub fn as_mut_slice(&mut self) -> &mut [Status] {
        match &mut self.0 {
            Parts::None => &mut [],
            Parts::One(_, status) => slice::from_mut(status),
            Parts::Several(_, statuses) => statuses,
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
            Parts::None => {}
            Parts::One(policy, status) => change(policy, at, status),
            Parts::Several(Source::Quotas(policies), statuses) => {
                let both = policies.iter().zip(statuses);
                both.for_each(|(policy, status)| change(policy, at, status));
            }
            Parts::Several(Source::Limits(parts), statuses) => {
                for part in &*parts {
                    let at = part.ruling.charged_at.as_nanos();
                    let both = part.policies.iter().zip(&mut statuses[part.places()]);
                    both.for_each(|(policy, status)| change(policy, at, status));
                }
            }
        }
    }

    /// The parts of several limits; empty if one limit decided alone.
    #[doc(hidden)]
    pub fn policies(&self) -> Arc<[Policy]> {
        match &self.0 {
            Parts::Several(Source::Quotas(policies), _) => Arc::clone(policies),
            _ => self.each_policy().cloned().collect(),
        }
    }

    #[inline(always)]
    pub(super) fn of_limits(parts: Vec<Part>, statuses: Vec<Status>) -> Self {
        let limits = Source::Limits(parts.into());
        Self(Parts::Several(limits, statuses.into()))
    }

    /// The parts of several limits, and their statuses.
    pub(super) const fn limits_mut(&mut self) -> Option<(&mut [Part], &mut [Status])> {
        match &mut self.0 {
            Parts::Several(Source::Limits(parts), statuses) => Some((parts, statuses)),
            _ => None,
        }
    }

    pub(super) const fn parts(&self) -> &[Part] {
        match &self.0 {
            Parts::Several(Source::Limits(parts), _) => parts,
            _ => &[],
        }
    }

    pub(super) const fn parts_mut(&mut self) -> &mut [Part] {
        match self.limits_mut() {
            Some((parts, _)) => parts,
            None => &mut [],
        }
    }

    /// The indices of one limit's quotas among those of all limits that decided together.
    #[doc(hidden)]
    pub fn places_of(&self, limit: usize) -> Range<usize> {
        let part = self.parts().get(limit);
        part.map_or(0..self.as_slice().len(), Part::places)
    }

    /// The index of the limit that has the quota at `place`; 0 if one limit decided alone.
    #[doc(hidden)]
    pub fn limit_of(&self, place: usize) -> usize {
        let after = self.parts().partition_point(|part| part.first <= place);
        after.saturating_sub(1)
    }

    fn policy(&self, place: usize) -> &Policy {
        static UNKNOWN: LazyLock<Policy> = LazyLock::new(|| Policy::new("default", 0));
        match &self.0 {
            Parts::None => &UNKNOWN,
            Parts::One(policy, _) => policy,
            Parts::Several(Source::Quotas(policies), _) => &policies[place],
            Parts::Several(Source::Limits(parts), _) => {
                let part = &parts[self.limit_of(place)];
                &part.policies[place - part.first]
            }
        }
    }

    #[doc(hidden)]
    pub fn quota(&self, place: usize) -> QuotaStatus<'_> {
        QuotaStatus {
            policy: self.policy(place),
            status: self
                .as_slice()
                .get(place)
                .copied()
                .unwrap_or(Status::UNKNOWN),
        }
    }

    pub(super) fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = QuotaStatus<'_>> + DoubleEndedIterator + Clone {
        (0..self.as_slice().len()).map(|place| self.quota(place))
    }

    /// Each policy, in the order of the statuses.
    #[inline]
    pub(super) fn each_policy(&self) -> impl Iterator<Item = &Policy> + Clone {
        let of_one: &[Policy] = match &self.0 {
            Parts::One(policy, _) => slice::from_ref(policy),
            Parts::Several(Source::Quotas(policies), _) => policies,
            Parts::None | Parts::Several(Source::Limits(_), _) => &[],
        };
        let of_limits = self.parts().iter().flat_map(|part| &*part.policies);
        of_one.iter().chain(of_limits)
    }

    /// Calls `each` with the index, the policy and the numbers of each quota.
    // Loops within each other: an iterator over the limits compares more at each quota.
    #[inline(always)]
    pub(super) fn for_each<'a>(&'a self, mut each: impl FnMut(usize, &'a Policy, &'a Status)) {
        match &self.0 {
            Parts::None => {}
            Parts::One(policy, status) => each(0, policy, status),
            Parts::Several(Source::Quotas(policies), statuses) => {
                for (place, (policy, status)) in policies.iter().zip(statuses).enumerate() {
                    each(place, policy, status);
                }
            }
            Parts::Several(Source::Limits(parts), statuses) => {
                for part in parts {
                    let own = part.policies.iter().zip(&statuses[part.places()]);
                    for (place, (policy, status)) in (part.first..).zip(own) {
                        each(place, policy, status);
                    }
                }
            }
        }
    }

    /// The index of the binding quota.
    #[inline]
    #[doc(hidden)]
    pub fn binding_place(&self) -> usize {
        if !matches!(self.0, Parts::Several(..)) {
            return 0;
        }
        let mut binding: Option<(usize, &Policy, &Status)> = None;
        self.for_each(|place, policy, status| {
            if binding.is_none_or(|(_, of, other)| status.binds_more_than(policy, (of, other))) {
                binding = Some((place, policy, status));
            }
        });
        binding.map_or(0, |(place, ..)| place)
    }

    /// The status of a single quota, if `policies` is its policy alone.
    #[inline]
    pub(super) fn alone_of(&self, policies: &[Policy]) -> Option<&Status> {
        match (&self.0, policies) {
            (Parts::One(policy, status), [one]) if policy == one => Some(status),
            _ => None,
        }
    }
}

impl PartialEq for QuotaStatuses {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for QuotaStatuses {}

impl Receipt {
    /// The receipt for the units that a limit charged, which left its quotas in these states.
    #[doc(hidden)]
    pub fn of<'a>(
        ruling: &Ruling,
        mut quotas: impl ExactSizeIterator<Item = QuotaStatus<'a>> + Clone,
    ) -> Self {
        let mut receipt = Self::of_ruling(ruling);
        let is_leased = ruling.lease.is_some();
        let charges = quotas.clone().map(move |quota| quota.charge(is_leased));
        let request = quotas.next().filter(|_| ruling.tier == REQUEST_TIER);
        receipt.request = request.map(|quota| quota.fitted());
        if ruling.charged == 0 {
            return receipt;
        }
        receipt.with_charges(ruling.charged, charges)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Parts, Source};
    use crate::{
        Key, LocalLimiter, Quota,
        decision::{Decision, policy::Name},
    };

    #[test]
    fn decision_about_several_quotas_holds_one_reference_count() {
        let quotas = [1, 2, 3].map(|limit| Quota::per_day(limit).named_owned(limit.to_string()));
        let limiter = LocalLimiter::new(quotas);
        let first = limiter.acquire(&Key::global(), 1);
        let Parts::Several(Source::Quotas(policies), _) = &first.quotas.0 else {
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
            Parts::One(policy, _) => policy.name,
            _ => panic!("one quota"),
        };
        for quota in [Quota::per_day(1).named("one"), Quota::per_day(1)] {
            let decision = LocalLimiter::new(quota).acquire(&Key::global(), 1);
            assert!(matches!(name(decision), Name::Static(_)));
        }
    }
}
