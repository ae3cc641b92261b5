//! The quotas of one tier, and the counters at which they count.

use std::borrow::Cow;

use crate::{
    algorithm::{Meter, Most},
    decision::Policy,
    error::{ConfigError, ConfigErrorKind},
    quota::{OwnedQuota, Quota},
};

/// Quotas that are charged together.
#[derive(Debug, Clone)]
pub(crate) struct Quotas {
    pub(crate) policies: Vec<Policy>,
    pub(crate) meters: Vec<Meter>,
    /// Where each of them counts.
    pub(crate) counters: Vec<usize>,
    /// Their places among the counters of all tiers.
    pub(super) places: Vec<usize>,
    pub(crate) quotas: Vec<Quota>,
    /// Whether each was given its name.
    pub(crate) named: Vec<bool>,
}

/// A counter: shared by the quotas that stand at one place of their tiers and count alike.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    pub(super) at: usize,
    /// The meter of the smallest limit among them.
    pub(super) meter: Meter,
    pub(super) quota: Quota,
}

/// The quotas of all tiers, with their places.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllQuotas {
    pub(crate) list: Vec<(usize, Quota)>,
    /// Those of other limiters that count at the same counters.
    pub(super) beside: Vec<(usize, Quota)>,
    /// Whether as much again may count beyond a capacity.
    #[cfg(feature = "redis")]
    pub(crate) has_debt: bool,
}

impl Quotas {
    pub(super) fn new(quotas: &[OwnedQuota]) -> Result<Self, ConfigError> {
        if quotas.is_empty() {
            return Err(ConfigError::new(
                ConfigErrorKind::QuotaList,
                "no quota at all; at least one is needed",
            ));
        }
        let mut named: Vec<(Cow<'static, str>, Quota)> = Vec::with_capacity(quotas.len());
        for quota in quotas {
            quota.check()?;
            let name = quota.name_in(quotas.len());
            if named.iter().any(|(known, _)| *known == name) {
                return Err(ConfigError::new(
                    ConfigErrorKind::QuotaList,
                    format!("two quotas are named {name:?}; names have to be unique"),
                ));
            }
            named.push((name, quota.quota()));
        }
        Ok(Self {
            meters: Vec::new(),
            counters: Vec::new(),
            places: (0..quotas.len()).collect(),
            policies: Policy::of_set(named),
            quotas: quotas.iter().map(OwnedQuota::quota).collect(),
            named: quotas.iter().map(|quota| quota.name().is_some()).collect(),
        })
    }

    /// The place of a quota that counts like one at another place of `other`, with which it shares
    /// nothing: a sign that two lists are in different orders.
    pub(super) fn crossed_with(&self, other: &Self) -> Option<usize> {
        let (own, other) = (&self.quotas, &other.quotas);
        let alike = |at: usize, there: usize| {
            let pair = (own.get(at), other.get(there));
            matches!(pair, (Some(one), Some(two)) if one.counts_like(two))
        };
        let mut places = 0..own.len().max(other.len());
        let all = places.clone();
        places.find(|at| {
            let mut others = all.clone().filter(|there| there != at);
            !alike(*at, *at) && others.any(|there| alike(*at, there) && !alike(there, there))
        })
    }

    /// The units that the smallest of them has when none is used.
    #[cfg(feature = "redis")]
    pub(crate) fn most_units(&self) -> u64 {
        let quotas = self.quotas.iter();
        let most = quotas.map(|quota| quota.capacity() + quota.extra());
        most.min().unwrap_or(0)
    }

    pub(super) fn count_by(&mut self, counters: &[Option<Counter>], all: &AllQuotas) {
        let counter_of = |(at, quota): (usize, &Quota)| {
            let counts = |counter: &Option<Counter>| {
                let counter = counter.as_ref();
                counter.is_some_and(|counter| counter.counts(at, quota))
            };
            let counter = counters.iter().position(counts);
            counter.expect("every quota has one")
        };
        let quotas = self.places.iter().copied().zip(&self.quotas);
        self.counters = quotas.clone().map(counter_of).collect();
        self.meters = quotas
            .map(|(at, quota)| Meter::new(quota, all.most(at, quota)))
            .collect();
    }

    pub(super) fn replace(&mut self, name: &str, quota: &OwnedQuota) -> Result<(), ConfigError> {
        quota.check()?;
        let at = self
            .policies
            .iter()
            .position(|policy| policy.name() == name);
        let at = at.ok_or_else(|| {
            let known: Vec<_> = self.policies.iter().map(Policy::name).collect();
            ConfigError::new(
                ConfigErrorKind::QuotaList,
                format!("no quota is named {name:?}; there are {known:?}"),
            )
        })?;
        if let Some(other) = quota.name().filter(|other| *other != name) {
            return Err(ConfigError::new(
                ConfigErrorKind::QuotaList,
                format!(
                    "the quota named {name:?} cannot become {other:?}: headers and metrics go on \
                     under one name; leave the new quota's name out"
                ),
            ));
        }
        self.policies[at] = self.policies[at].with_quota(&quota.quota());
        self.quotas[at] = quota.quota();
        Ok(())
    }
}

impl Counter {
    pub(super) fn new(at: usize, quota: &Quota) -> Self {
        Self {
            at,
            meter: Meter::new(quota, Most::of(quota)),
            quota: *quota,
        }
    }

    pub(super) fn counts(&self, at: usize, quota: &Quota) -> bool {
        self.at == at && self.quota.counts_like(quota)
    }

    /// Weighs by the smallest limit of those that share it.
    pub(super) fn measure_by(&mut self, all: &AllQuotas) {
        let sharing = all
            .list
            .iter()
            .filter(|(at, quota)| self.counts(*at, quota));
        let smallest = sharing.max_by_key(|(_, quota)| quota.interval_nanos());
        if let Some((at, quota)) = smallest {
            self.meter = Meter::new(quota, all.most(*at, quota));
        }
    }
}

impl AllQuotas {
    /// The most that can count at the counter of `quota`.
    pub(crate) fn most(&self, at: usize, quota: &Quota) -> Most {
        let sharing = self.list.iter().chain(&self.beside);
        let sharing = sharing.filter(|(place, other)| *place == at && other.counts_like(quota));
        let most = sharing.fold(Most::default(), |most, (_, other)| {
            most.max(Most::of(other))
        });
        #[cfg(feature = "redis")]
        if self.has_debt {
            return most.with_debt();
        }
        most
    }
}
