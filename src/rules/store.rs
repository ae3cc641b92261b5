//! The place where rules count, and the limiter of each rule there.

#[cfg(feature = "redis")]
use std::time::Duration;

#[cfg(feature = "redis")]
use super::compile::OnStoreFailure;
use super::{
    allowance::QuotaSet,
    changes::CountAt,
    compile::StoreSettings,
    problem::{Problem, ProblemCode, RulesError},
    rule::Rule,
};
use crate::{
    clock::SharedClock,
    decision::Policy,
    error::ConfigError,
    limiter::{AnyLimiter, Limiter as _, LocalLimiter, LocalStore, Tier},
    quota::{OwnedQuota, Quota},
};
#[cfg(feature = "redis")]
use crate::{
    quota::Algorithm,
    redis::{RedisStore, key_name::accepted_name},
    shared::{OnFailure, RedisLimiter},
};

/// How long a denial by Redis is held to at most: then a reset by an operator at any node is seen.
#[cfg(feature = "redis")]
const LONGEST_DENIAL: Duration = Duration::from_secs(1);

/// The place where rules count: a [`LocalStore`], or a `RedisStore` that all nodes share.
#[derive(Debug, Clone)]
pub struct RulesStore(Place);

#[derive(Debug, Clone)]
enum Place {
    Local(LocalStore),
    #[cfg(feature = "redis")]
    Redis(RedisStore),
}

impl From<LocalStore> for RulesStore {
    fn from(store: LocalStore) -> Self {
        Self(Place::Local(store))
    }
}

#[cfg(feature = "redis")]
impl From<RedisStore> for RulesStore {
    fn from(store: RedisStore) -> Self {
        Self(Place::Redis(store))
    }
}

/// The limiter of a rule, of which each set of quotas is a tier.
#[derive(Debug, Clone)]
pub(super) enum RuleLimiter {
    Local(LocalLimiter),
    #[cfg(feature = "redis")]
    Redis(RedisLimiter),
}

impl RuleLimiter {
    /// Changes the quota of this policy in the default tier.
    pub(super) fn set_quota(&self, policy: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        match self {
            Self::Local(limiter) => limiter.set_quota(policy, quota),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.set_quota(policy, quota),
        }
    }

    /// The quota in force of this policy in the default tier.
    pub(super) fn quota(&self, policy: &str) -> Option<Quota> {
        match self {
            Self::Local(limiter) => limiter.with_limits(|limits| limits.quota(policy)),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.with_limits(|limits| limits.quota(policy)),
        }
    }

    /// Another limiter of the rule takes its place. In this process both count by the larger maximum
    /// until the last request of this one has ended.
    #[cfg(feature = "redis")]
    pub(super) fn make_way_for(&self, next: &Self) {
        if let (Self::Redis(own), Self::Redis(next)) = (self, next) {
            own.make_way_for(next);
        }
    }

    /// The same limiter without its type.
    pub(super) fn to_any(&self) -> AnyLimiter {
        match self {
            Self::Local(limiter) => AnyLimiter::new(limiter.clone()),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => AnyLimiter::new(limiter.clone()),
        }
    }

    /// The policies of the default tier.
    pub(super) fn policies(&self) -> &[Policy] {
        match self {
            Self::Local(limiter) => limiter.policies(),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.policies(),
        }
    }
}

/// The tier of the set of quotas at a place; `first` is the place of the default ones.
pub(super) fn tier_of(place: usize, first: usize) -> Tier {
    match place == first {
        true => Tier::DEFAULT,
        false => Tier::named_owned(place.to_string()),
    }
}

impl RulesStore {
    /// The store of rules for which the application has none.
    pub(super) fn own(settings: &StoreSettings, clock: &SharedClock) -> Result<Self, RulesError> {
        let mut builder = LocalStore::builder().shared_clock(clock.clone());
        if let Some(max_keys) = settings.max_keys {
            builder = builder.max_keys(max_keys);
        }
        let refused = |error: ConfigError| {
            let problem = Problem::without_place(ProblemCode::R01, error.to_string());
            RulesError::new(vec![problem])
        };
        builder.build().map(Self::from).map_err(refused)
    }

    /// The table, if it is one of this process.
    pub(super) const fn local(&self) -> Option<&LocalStore> {
        match &self.0 {
            Place::Local(store) => Some(store),
            #[cfg(feature = "redis")]
            Place::Redis(_) => None,
        }
    }

    /// How counters are told apart there.
    pub(super) const fn count_at(&self) -> CountAt {
        match self.0 {
            Place::Local(_) => CountAt::Names,
            #[cfg(feature = "redis")]
            Place::Redis(_) => CountAt::Places,
        }
    }

    /// The clock that it counts by, if that is one of this process.
    pub(super) fn clock(&self) -> Option<&SharedClock> {
        match &self.0 {
            Place::Local(store) => Some(store.clock()),
            #[cfg(feature = "redis")]
            Place::Redis(_) => None,
        }
    }

    /// The limiters of all rules, by their places.
    ///
    /// # Errors
    ///
    /// When a rule cannot be counted here.
    pub(super) fn limiters(
        &self,
        rules: &[Rule],
        settings: &StoreSettings,
    ) -> Result<Box<[Option<RuleLimiter>]>, RulesError> {
        #[cfg(feature = "redis")]
        self.check(rules)?;
        let limiter = |rule: &Rule| {
            let refused = |error: ConfigError| {
                let problem = Problem::new(ProblemCode::R04, &rule.spot, error.to_string());
                RulesError::new(vec![problem])
            };
            self.limiter(rule, settings).map_err(refused)
        };
        rules.iter().map(limiter).collect()
    }

    #[cfg_attr(not(feature = "redis"), allow(unused_variables))]
    fn limiter(
        &self,
        rule: &Rule,
        settings: &StoreSettings,
    ) -> Result<Option<RuleLimiter>, ConfigError> {
        let places = rule.allowance.places();
        let Some(((_, first), others)) = places.split_first() else {
            return Ok(None);
        };
        Ok(Some(match &self.0 {
            Place::Local(store) => RuleLimiter::Local(local(rule, first, others, store)?),
            #[cfg(feature = "redis")]
            Place::Redis(store) => {
                let mut builder = RedisLimiter::builder(owned(first))
                    .name(accepted_name(format!("rule.{}", rule.name)))
                    .on_failure(on_failure(settings))
                    .on_change(rule.on_change)
                    .remember_denials_for(LONGEST_DENIAL);
                for (place, quotas) in others {
                    builder = builder.tier(place.to_string(), owned(quotas));
                }
                if let Some(block) = rule.block_for {
                    builder = builder.block_for(block);
                }
                RuleLimiter::Redis(builder.build(store)?)
            }
        }))
    }

    /// What a refund does not take back may not be charged beside other rules.
    #[cfg(feature = "redis")]
    fn check(&self, rules: &[Rule]) -> Result<(), RulesError> {
        let Place::Redis(_) = self.0 else {
            return Ok(());
        };
        let hard = |rule: &&Rule| !rule.shadow && !rule.allowance.places().is_empty();
        if rules.iter().filter(hard).count() < 2 {
            return Ok(());
        }
        let faults = rules.iter().filter(hard).filter_map(|rule| {
            let fault = irrevocable(rule)?;
            let message = format!(
                "in Redis {fault} cannot be taken back when another rule denies; limit this in a \
                 layer of its own, or in this process"
            );
            Some(Problem::new(ProblemCode::R04, &rule.spot, message))
        });
        match faults.collect::<Vec<_>>() {
            faults if faults.is_empty() => Ok(()),
            faults => Err(RulesError::new(faults)),
        }
    }
}

fn owned(quotas: &QuotaSet) -> Vec<OwnedQuota> {
    quotas.quotas().cloned().collect()
}

/// A rule's limiter in this process. Its counters are named as a reload finds them again.
fn local(
    rule: &Rule,
    first: &QuotaSet,
    others: &[(usize, &QuotaSet)],
    store: &LocalStore,
) -> Result<LocalLimiter, ConfigError> {
    let names = |quotas: &QuotaSet| {
        let counters = quotas.counters();
        counters.map(|counter| counter.quota().to_owned()).collect()
    };
    let others_names = others.iter().map(|(_, quotas)| names(quotas));
    let mut builder = LocalLimiter::builder(owned(first))
        .name(format!("rule:{}", rule.name))
        .on_change(rule.on_change)
        .counter_names([names(first)].into_iter().chain(others_names).collect());
    for (place, quotas) in others {
        builder = builder.tier(place.to_string(), owned(quotas));
    }
    if let Some(block) = rule.block_for {
        builder = builder.block_for(block);
    }
    builder.build_in(store)
}

#[cfg(feature = "redis")]
fn irrevocable(rule: &Rule) -> Option<&'static str> {
    let sets = rule.allowance.sets();
    let mut quotas = sets.iter().flat_map(|set| set.quotas());
    let is_leaky =
        |quota: &OwnedQuota| matches!(quota.quota().algorithm(), Algorithm::LeakyBucket { .. });
    if quotas.any(is_leaky) {
        return Some("a leaky bucket");
    }
    rule.block_for.map(|_| "`block_for`")
}

#[cfg(feature = "redis")]
const fn on_failure(settings: &StoreSettings) -> OnFailure {
    match settings.on_failure {
        Some(OnStoreFailure::Allow) => OnFailure::allow(),
        Some(OnStoreFailure::Deny) => OnFailure::deny(),
        Some(OnStoreFailure::Local) | None => OnFailure::local(),
    }
}
