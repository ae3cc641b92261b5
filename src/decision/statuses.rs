//! The quotas of a decision, with one reference count for all their names.

use std::{mem, ops::Range, ptr, slice, sync::Arc};

use super::{
    LimitReceipt, Policy, QuotaStatus, REQUEST_TIER, Receipt,
    policy_name::{NameSet, Names, Share},
    quota_status_without_name::{Measure, Status},
};

/// The status of each quota of a decision; made from one [`QuotaStatus`] or from several.
///
/// Owned names of one set cost one reference count, however many quotas there are. The names of one
/// limiter of this crate are a set, and so is the name of a [`Policy::owned`].
#[derive(Debug, Clone)]
pub struct QuotaStatuses {
    list: List,
    /// The names of all quotas, in their order, or the shares of several limits; `None` if all
    /// names are static. Both are in one word, so that decisions with neither are dropped in fewer
    /// instructions.
    names: Option<Names>,
}

/// One quota, the usual case, needs no allocation.
#[derive(Debug, Clone)]
enum List {
    One(Status),
    Many(Box<[Status]>),
}

impl From<QuotaStatus<'_>> for QuotaStatuses {
    fn from(status: QuotaStatus<'_>) -> Self {
        Self {
            names: names_of(slice::from_ref(&status)),
            list: List::One(status.status),
        }
    }
}

/// # Panics
///
/// If the list is empty: a decision needs at least one quota.
impl From<Vec<QuotaStatus<'_>>> for QuotaStatuses {
    fn from(statuses: Vec<QuotaStatus<'_>>) -> Self {
        assert!(!statuses.is_empty(), "a decision needs at least one quota");
        Self {
            names: names_of(&statuses),
            list: List::Many(statuses.iter().map(|status| status.status).collect()),
        }
    }
}

/// The set that all names come from, or else a new set of the names; `None` if all are static.
fn names_of(statuses: &[QuotaStatus<'_>]) -> Option<Names> {
    let (set, _) = statuses.iter().find_map(|status| status.owned)?;
    let mut places = statuses.iter().enumerate();
    let in_place = places.all(|(at, status)| {
        let owned = status.owned;
        owned.is_some_and(|(names, place)| place == at && Arc::ptr_eq(names, set))
    });
    Some(if in_place {
        Arc::clone(set)
    } else {
        let names = statuses.iter().map(|status| Arc::from(status.name()));
        NameSet::new(names)
    })
}

impl QuotaStatuses {
    /// The status of a single quota. `policy` is its own set.
    #[inline]
    pub(crate) fn of_one(policy: &Policy, measure: &Measure) -> Self {
        Self {
            list: List::One(Status::measured(policy, measure)),
            names: policy.name.in_set().map(|(names, _)| Arc::clone(names)),
        }
    }

    /// The statuses of several quotas. `policies` is a whole set.
    pub(crate) fn of_set(policies: &[Policy], measures: impl Iterator<Item = Measure>) -> Self {
        let owned = policies.first().and_then(|policy| policy.name.in_set());
        // A loop, because the calls of zipped iterators are not inlined.
        let (mut statuses, mut measures) = (Vec::with_capacity(policies.len()), measures);
        for policy in policies {
            let Some(measure) = measures.next() else {
                break;
            };
            statuses.push(Status::measured(policy, &measure));
        }
        Self {
            list: List::Many(statuses.into_boxed_slice()),
            names: owned.map(|(names, _)| Arc::clone(names)),
        }
    }

    /// Moves the quotas out from behind a reference.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        let list = match &mut self.list {
            List::One(status) => List::One(*status),
            List::Many(statuses) => List::Many(mem::take(statuses)),
        };
        let names = self.names.take();
        Self { list, names }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Status] {
        match &self.list {
            List::One(status) => slice::from_ref(status),
            List::Many(statuses) => statuses,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [Status] {
        match &mut self.list {
            List::One(status) => slice::from_mut(status),
            List::Many(statuses) => statuses,
        }
    }

    /// The names of all quotas, unless all are static.
    pub(super) const fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// The receipts of several limits; `None` if one limit decided alone.
    pub(super) fn receipts(&self) -> Option<impl Iterator<Item = LimitReceipt>> {
        let shares = self.names.as_ref()?.shares();
        (!shares.is_empty()).then(|| receipts_of_limits(shares, self.as_slice()))
    }

    /// The shares of several limits; empty if one limit decided alone.
    pub(super) fn shares(&self) -> &[Share] {
        self.names.as_ref().map_or(&[], |names| names.shares())
    }

    /// The number of limits that decided together; 0 if one decided alone.
    pub(super) fn limits(&self) -> usize {
        self.shares().len()
    }

    /// The indices of one limit's quotas among those of all limits that decided together.
    pub(super) fn places_of(&self, limit: usize) -> Range<usize> {
        let shares = self.shares();
        let Some(share) = shares.get(limit) else {
            return 0..self.as_slice().len();
        };
        let before: usize = shares[..limit].iter().map(|share| share.quotas).sum();
        before..before + share.quotas
    }

    /// The index of the limit that has the quota at `place`; 0 if one limit decided alone.
    pub(super) fn limit_of(&self, place: usize) -> usize {
        let mut ends = self.shares().iter().scan(0, |end, share| {
            *end += share.quotas;
            Some(*end)
        });
        ends.position(|end| place < end).unwrap_or(0)
    }

    pub(super) fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = QuotaStatus<'_>> + DoubleEndedIterator + Clone {
        let places = self.as_slice().iter().enumerate();
        places.map(|(place, status)| self.view(place, status))
    }

    pub(super) fn of_joint(statuses: Vec<Status>, shares: Vec<Share>) -> Self {
        Self {
            list: List::Many(statuses.into_boxed_slice()),
            names: Some(NameSet::joint(shares)),
        }
    }

    fn view(&self, place: usize, status: &Status) -> QuotaStatus<'_> {
        QuotaStatus {
            status: *status,
            owned: self.names.as_ref().and_then(|names| names.find(place)),
        }
    }

    /// The name of the quota at `place` with this status.
    #[inline]
    pub(super) fn name<'a>(&'a self, place: usize, status: &Status) -> &'a str {
        let owned = self.names.as_ref().and_then(|names| names.find(place));
        owned.map_or(status.name, |(names, place)| &names[place])
    }

    pub(super) fn binding(&self) -> QuotaStatus<'_> {
        let (place, status) = self.binding_place();
        self.view(place, status)
    }

    #[inline]
    pub(super) fn binding_place(&self) -> (usize, &Status) {
        match &self.list {
            List::One(status) => (0, status),
            List::Many(statuses) => {
                let remaining = |place: usize| statuses[place].remaining();
                let place = Status::binding_of(statuses, remaining);
                (place, &statuses[place])
            }
        }
    }

    /// The status of a single quota, if `policies` is its policy alone.
    #[inline]
    pub(super) fn alone_of(&self, policies: &[Policy]) -> Option<&Status> {
        let (List::One(status), [policy]) = (&self.list, policies) else {
            return None;
        };
        let same = status.terms == policy.terms && self.are_named_like(slice::from_ref(policy));
        same.then_some(status)
    }

    #[inline]
    pub(super) fn are_of(&self, policies: &[Policy]) -> bool {
        let statuses = self.as_slice();
        let same_terms = |(status, policy): (&Status, &Policy)| status.terms == policy.terms;
        statuses.len() == policies.len()
            && statuses.iter().zip(policies).all(same_terms)
            && self.are_named_like(policies)
    }

    #[inline]
    fn are_named_like(&self, policies: &[Policy]) -> bool {
        let Some(names) = self.names.as_ref().filter(|names| names.owns_any()) else {
            let same = |(status, policy): (&Status, &Policy)| is_same(status.name, policy.name());
            return self.as_slice().iter().zip(policies).all(same);
        };
        let mut named = self.as_slice().iter().zip(policies).enumerate();
        let same =
            |(place, (status, policy)): (usize, (&Status, &Policy))| match policy.name.in_set() {
                Some((own, at)) if at == place && Arc::ptr_eq(own, names) => true,
                _ => is_same(self.name(place, status), policy.name()),
            };
        named.all(same)
    }
}

/// Whether both names are equal. Nearly always both point to one text, which is cheaper to compare.
#[inline]
fn is_same(one: &str, other: &str) -> bool {
    ptr::eq(one, other) || one == other
}

impl PartialEq for QuotaStatuses {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for QuotaStatuses {}

fn receipts_of_limits<'a>(
    shares: &'a [Share],
    quotas: &'a [Status],
) -> impl Iterator<Item = LimitReceipt> + 'a {
    let mut rest = quotas;
    shares.iter().map(move |share| {
        let (own, others) = rest.split_at(share.quotas);
        rest = others;
        let receipt = Receipt::new(share.charged_at)
            .in_tier(share.tier)
            .degraded(share.degraded)
            .leased(share.lease);
        LimitReceipt {
            limit: share.limit,
            receipt: receipt.for_quotas(share.charged, own),
        }
    })
}

impl Receipt {
    /// The receipt for `charged` units, whose charge left the quotas in these states.
    pub(super) fn for_quotas(self, charged: u64, quotas: &[Status]) -> Self {
        let request = quotas.first().filter(|_| self.tier() == REQUEST_TIER);
        let receipt = self.of_request(request.map(Status::fitted));
        if charged == 0 {
            return receipt;
        }
        let now = receipt.charged_at().as_nanos();
        if receipt.is_leased() {
            return receipt.with_charges(charged, quotas.iter().map(Status::leased_charge));
        }
        receipt.with_charges(charged, quotas.iter().map(|quota| quota.charge(now)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Names;
    use crate::{Key, LocalLimiter, OwnedQuota, Quota, decision::QuotaStatuses};

    fn set(statuses: &QuotaStatuses) -> &Names {
        statuses.names.as_ref().expect("owned names")
    }

    #[test]
    fn decision_about_several_quotas_holds_one_reference_count() {
        let quotas = [1, 2, 3].map(|limit| Quota::per_day(limit).named_owned(limit.to_string()));
        let limiter = LocalLimiter::new(quotas);
        let first = limiter.acquire(&Key::global(), 1);
        let names = set(&first.quotas);
        let counts = Arc::strong_count(names);
        let second = limiter.acquire(&Key::global(), 1);
        assert_eq!(Arc::strong_count(names), counts + 1);
        assert!(Arc::ptr_eq(names, set(&second.quotas)));
        // Statuses that are built from views share the count, too.
        let again = QuotaStatuses::from(second.quotas().collect::<Vec<_>>());
        assert_eq!(Arc::strong_count(names), counts + 2);
        drop((second, again));
        assert_eq!(Arc::strong_count(names), counts);
        drop(limiter);
        assert_eq!(Arc::strong_count(names), 1);
    }

    #[test]
    fn static_names_have_no_reference_count() {
        let named = Quota::per_day(1).named("one");
        for quotas in [vec![named], vec![named, Quota::per_day(2).named("two")]] {
            let decision = LocalLimiter::new(quotas).acquire(&Key::global(), 1);
            assert!(decision.quotas.names.is_none());
        }
        let unnamed = LocalLimiter::new(OwnedQuota::from(Quota::per_day(1)));
        assert!(unnamed.acquire(&Key::global(), 1).quotas.names.is_none());
    }
}
