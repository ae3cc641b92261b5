//! The store of the rules' counts, and the limiter of each rule.

#[cfg(feature = "redis")]
use std::time::Duration;

use tower_ratelimit_rulefile::{Problem, ProblemCode, RulesError};

#[cfg(feature = "redis")]
use super::fields::small_tables::OnStoreFailure;
use super::{allowance::QuotaSet, changes::CounterIdentity, compile::StoreSettings, rule::Rule};
use crate::{
    clock::SharedClock,
    error::ConfigError,
    limiter::{AnyLimiter, LocalLimiter, LocalStore, Tier},
    quota::OwnedQuota,
};
#[cfg(feature = "redis")]
use crate::{
    quota::Algorithm,
    redis::RedisStore,
    shared::{OnFailure, RedisLimiter},
    store::key_name::accepted_name,
};

/// The longest time that a denial by Redis stays cached on a node: a reset by an operator takes effect after it.
#[cfg(feature = "redis")]
const LONGEST_DENIAL: Duration = Duration::from_secs(1);

/// The store of the rules' counts: a [`LocalStore`], or a `RedisStore` that all nodes share.
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

/// The tier of the set of quotas with this index. `first` is the index of the default tier.
pub(super) fn tier_of(set_index: usize, first: usize) -> Tier {
    if set_index == first {
        Tier::DEFAULT
    } else {
        Tier::named_owned(set_index.to_string())
    }
}

impl RulesStore {
    /// A store for rules without one of the application.
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

    /// The table of this process, if the rules count in one.
    pub(super) const fn local(&self) -> Option<&LocalStore> {
        match &self.0 {
            Place::Local(store) => Some(store),
            #[cfg(feature = "redis")]
            Place::Redis(_) => None,
        }
    }

    /// The identity of counters in the store.
    pub(super) const fn counter_identity(&self) -> CounterIdentity {
        match self.0 {
            Place::Local(_) => CounterIdentity::Names,
            #[cfg(feature = "redis")]
            Place::Redis(_) => CounterIdentity::Positions,
        }
    }

    /// The clock of the counts, if it is one of this process.
    pub(super) fn clock(&self) -> Option<&SharedClock> {
        match &self.0 {
            Place::Local(store) => Some(store.clock()),
            #[cfg(feature = "redis")]
            Place::Redis(_) => None,
        }
    }

    /// The limiters of all rules, by position.
    ///
    /// # Errors
    ///
    /// When the store cannot count by a rule.
    pub(super) fn limiters(
        &self,
        rules: &[Rule],
        settings: &StoreSettings,
    ) -> Result<Box<[Option<AnyLimiter>]>, RulesError> {
        #[cfg(feature = "redis")]
        self.check(rules)?;
        let limiter = |rule: &Rule| {
            let refused = |error: ConfigError| {
                let problem = Problem::new(ProblemCode::R04, &rule.span, error.to_string());
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
    ) -> Result<Option<AnyLimiter>, ConfigError> {
        let places = rule.allowance.indexed_sets();
        let Some(((_, first), others)) = places.split_first() else {
            return Ok(None);
        };
        Ok(Some(match &self.0 {
            Place::Local(store) => AnyLimiter::new(local(rule, first, others, store)?),
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
                AnyLimiter::new(builder.build(store)?)
            }
        }))
    }

    /// Refuses rules that a refund does not take back, if there are other limits.
    #[cfg(feature = "redis")]
    fn check(&self, rules: &[Rule]) -> Result<(), RulesError> {
        let Place::Redis(_) = self.0 else {
            return Ok(());
        };
        let hard = |rule: &&Rule| !rule.shadow && !rule.allowance.indexed_sets().is_empty();
        if rules.iter().filter(hard).count() < 2 {
            return Ok(());
        }
        let faults = rules.iter().filter(hard).filter_map(|rule| {
            let fault = irrevocable(rule)?;
            let message = format!(
                "in Redis {fault} cannot be taken back when another rule denies; limit this in a \
                 layer of its own, or in this process"
            );
            Some(Problem::new(ProblemCode::R04, &rule.span, message))
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

/// A rule's limiter in this process. The names of its counters stay the same across reloads.
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
