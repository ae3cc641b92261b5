use std::time::Duration;

use super::Tier;
use crate::{
    algorithm::{Bucket, ClockSkew, Meter, State},
    decision::Policy,
    error::{ConfigError, ConfigErrorKind, LimiterError},
    quota::{IntoQuotas, MAX_REFILL_NANOS, Quota},
};

/// The quotas that are in force, for each tier.
#[derive(Debug, Clone, Default)]
pub(super) struct Tiers {
    /// The first one is the default.
    tiers: Vec<(Tier, Quotas)>,
}

/// What is in force.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) tiers: Tiers,
    /// How long a key that broke its limit stays out, in nanoseconds.
    pub(super) block_for: Option<u64>,
}

impl Rules {
    /// The one quota, if all there is to count for a key is one instant for it.
    pub(super) fn lone_bucket(&self) -> Option<(Bucket, Policy)> {
        if self.block_for.is_some() {
            return None;
        }
        let [(_, quotas)] = self.tiers.tiers.as_slice() else {
            return None;
        };
        let ([quota], [policy]) = (quotas.quotas.as_slice(), quotas.policies.as_slice()) else {
            return None;
        };
        let bucket = Bucket::new(quota, ClockSkew::Threads)?;
        Some((bucket, *policy))
    }

    /// How much is lost with the states of a key: 0 for nothing, the most for one that is
    /// exhausted or blocked in any respect. `counted_by` is the tier that each state is of.
    pub(super) fn loss_of(
        &self,
        states: &[State],
        counted_by: impl Fn(usize) -> TierIndex,
        blocked_until: u64,
        now: u64,
    ) -> u64 {
        if blocked_until > now {
            return u64::MAX;
        }
        let each = states.iter().enumerate().map(|(at, state)| {
            let quotas = self.tiers.quotas(counted_by(at));
            let meter = quotas.meters.get(at);
            meter.map_or(0, |meter| meter.loss_of(state, now))
        });
        each.max().unwrap_or(0)
    }
}

/// Where a tier stands among the tiers; the default one is the first.
pub(super) type TierIndex = u32;

/// Quotas that are charged together.
#[derive(Debug, Clone)]
pub(super) struct Quotas {
    pub(super) policies: Vec<Policy>,
    pub(super) meters: Vec<Meter>,
    quotas: Vec<Quota>,
}

impl Quotas {
    /// # Errors
    ///
    /// When there are none, one of them makes no sense, or two have one name.
    pub(super) fn new(quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        let quotas = quotas.into_quotas();
        if quotas.is_empty() {
            return Err(ConfigError::new(
                ConfigErrorKind::Names,
                "no quota at all; at least one is needed",
            ));
        }
        let mut policies: Vec<Policy> = Vec::with_capacity(quotas.len());
        for quota in &quotas {
            quota.check()?;
            let name = quota.name_in(quotas.len());
            if policies.iter().any(|policy| policy.name() == name) {
                return Err(ConfigError::new(
                    ConfigErrorKind::Names,
                    format!("two quotas are named {name:?}; names have to be unique"),
                ));
            }
            policies.push(Policy::of_quota(name, quota));
        }
        Ok(Self {
            meters: quotas.iter().map(meter).collect(),
            policies,
            quotas,
        })
    }

    #[cfg(feature = "redis")]
    pub(super) fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Replaces the quota of this name, and says where it stood and whether what was counted for
    /// it goes on to count.
    fn replace(&mut self, name: &str, quota: Quota) -> Result<Replaced, ConfigError> {
        quota.check()?;
        let at = self
            .policies
            .iter()
            .position(|policy| policy.name() == name);
        let at = at.ok_or_else(|| {
            let known: Vec<_> = self.policies.iter().map(Policy::name).collect();
            ConfigError::new(
                ConfigErrorKind::Names,
                format!("no quota is named {name:?}; there are {known:?}"),
            )
        })?;
        let keeps_state = self.quotas[at].counts_like(&quota);
        let name = self.policies[at].name();
        self.policies[at] = Policy::of_quota(name, &quota);
        self.meters[at] = meter(&quota);
        self.quotas[at] = quota;
        Ok(Replaced { at, keeps_state })
    }
}

/// What a change of quota did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replaced {
    pub(super) at: usize,
    pub(super) keeps_state: bool,
}

impl Tiers {
    /// # Errors
    ///
    /// When there is a tier of this name already.
    pub(super) fn add(&mut self, tier: Tier, quotas: Quotas) -> Result<(), ConfigError> {
        if self.tiers.iter().any(|(known, _)| *known == tier) {
            return Err(ConfigError::new(
                ConfigErrorKind::Names,
                format!("two tiers are {tier:?}"),
            ));
        }
        self.tiers.push((tier, quotas));
        Ok(())
    }

    pub(super) fn default_tier(&self) -> &Quotas {
        &self.tiers[0].1
    }

    pub(super) fn replace(&mut self, name: &str, quota: Quota) -> Result<Replaced, ConfigError> {
        self.tiers[0].1.replace(name, quota)
    }

    /// Where `tier` stands.
    pub(super) fn find(&self, tier: Tier) -> Result<TierIndex, LimiterError> {
        let found = self.tiers.iter().position(|(known, _)| *known == tier);
        found.map(|at| at as TierIndex).ok_or_else(|| {
            LimiterError::unsupported(format!("the limiter was given no quota for {tier:?}"))
        })
    }

    #[cfg(feature = "redis")]
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Tier, Quotas)> {
        self.tiers.iter()
    }

    pub(super) fn quotas(&self, tier: TierIndex) -> &Quotas {
        &self.tiers[tier as usize].1
    }

    /// Whether what was counted for the quotas that two tiers have at one place means the same.
    pub(super) fn count_alike(&self, at: usize, one: TierIndex, other: TierIndex) -> bool {
        let quota = |tier| self.quotas(tier).quotas.get(at);
        match (quota(one), quota(other)) {
            (Some(one), Some(other)) => one.counts_like(other),
            _ => false,
        }
    }

    pub(super) fn are_several(&self) -> bool {
        self.tiers.len() > 1
    }

    /// The most quotas that a tier has.
    pub(super) fn width(&self) -> usize {
        let widths = self.tiers.iter().map(|(_, quotas)| quotas.meters.len());
        widths.max().unwrap_or(1)
    }
}

/// The meter of a key that is locked.
fn meter(quota: &Quota) -> Meter {
    Meter::new(quota, ClockSkew::None)
}

/// A block in nanoseconds, if it is not too long.
pub(super) fn checked_block(block: Duration) -> Result<u64, ConfigError> {
    let nanos = u64::try_from(block.as_nanos()).unwrap_or(u64::MAX);
    if nanos > MAX_REFILL_NANOS {
        return Err(ConfigError::new(
            ConfigErrorKind::Overflow,
            format!("a block of {block:?} is longer than 18 years, the most that is accepted"),
        ));
    }
    Ok(nanos)
}
