//! Limits of several limiters with one name: they share counters and the counters' largest value.

use std::borrow::Cow;

use super::TierSet;
use crate::limiter::tier_quotas::TierPlace;
#[cfg(all(feature = "redis", feature = "rules"))]
use crate::quota::Algorithm;
use crate::{algorithm::Most, quota::Quota};

/// A quota, with the name of its counter among limiters of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedQuota {
    counter: Vec<u8>,
    quota: Quota,
}

impl TierSet {
    /// The name of the counters at this place, if they have one. Without counter names it is the name of
    /// the default tier's quota.
    pub(super) fn counter_name(&self, TierPlace(at): TierPlace) -> Option<&str> {
        if let Some(names) = &self.counter_names {
            return names.get(at).map(String::as_str);
        }
        let default = self.default_tier();
        let named = default.named.get(at).copied().unwrap_or(false);
        named.then(|| default.policies[at].name())
    }

    /// The name of the counters at this place; the place itself for counters without a name.
    pub(crate) fn shared_name(&self, at: TierPlace) -> Cow<'_, [u8]> {
        match self.counter_name(at) {
            Some(name) => Cow::Borrowed(name.as_bytes()),
            None => Cow::Owned(at.0.to_le_bytes().to_vec()),
        }
    }

    /// The quotas of all tiers.
    pub(crate) fn named_quotas(&self) -> impl Iterator<Item = NamedQuota> {
        let list = self.all().list.into_iter();
        list.map(|(at, quota)| NamedQuota {
            counter: self.shared_name(at).into_owned(),
            quota,
        })
    }

    /// Raises the largest value of each counter to that of the largest of these quotas that share it.
    pub(crate) fn include_others(&mut self, others: &[NamedQuota]) {
        let own = self.all().list;
        let place = |other: &NamedQuota| {
            let mut own = own.iter();
            let (at, _) = own.find(|(at, quota)| {
                *self.shared_name(*at) == *other.counter && quota.counts_like(&other.quota)
            })?;
            Some((*at, other.quota))
        };
        self.others = others.iter().filter_map(place).collect();
        self.share_counters();
    }

    /// Whether `next` could have made all charges of these limits, at the counters that both share.
    #[cfg(all(feature = "redis", feature = "rules"))]
    pub(crate) fn charge_like(&self, next: &Self) -> bool {
        let (own, next) = (self.all(), next.all());
        own.list.iter().all(|(at, quota)| {
            let both =
                |(place, other): &&(TierPlace, Quota)| place == at && other.counts_like(quota);
            let mut intervals =
                (next.list.iter().filter(both)).map(|(_, one)| one.interval_nanos());
            let (before, after) = (own.most(*at, quota), next.most(*at, quota));
            match quota.algorithm() {
                _ if !next.list.iter().any(|other| both(&other)) => true,
                Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => {
                    after.nanos >= before.nanos
                        && intervals.any(|interval| interval == quota.interval_nanos())
                }
                _ => after.units >= before.units,
            }
        })
    }

    /// The largest value of each quota's counter, in the order of
    /// [`named_quotas`](Self::named_quotas).
    pub(crate) fn mosts(&self) -> Vec<Most> {
        let all = self.all();
        let list = all.list.iter();
        list.map(|(at, quota)| all.most(*at, quota)).collect()
    }
}
