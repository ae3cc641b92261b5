//! Rules that count in Redis: their limiters, and the rules that it cannot refund.

use std::time::Duration;

use tower_ratelimit_rulefile::{Problem, ProblemCode, RulesError};

use crate::{
    compile::StoreSettings,
    fields::OnStoreFailure,
    in_flight::InFlightRule,
    rule::{CountedSets, Rule},
};
use tower_ratelimit_concurrency::{PermitSource, SharedConcurrency, limit::Concurrency};
use tower_ratelimit_core::{
    error::ConfigError,
    limiter::AnyLimiter,
    quota::{Algorithm, OwnedQuota},
};
use tower_ratelimit_shared::{RedisLimiterBuilder, fallback::OnFailure};
use tower_ratelimit_store::{key_name::accepted_name, redis::store::RedisStore};

/// The longest time that a denial by Redis stays cached on a node: a reset by an operator takes effect after it.
const LONGEST_DENIAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct RedisRules(RedisStore);

impl RedisRules {
    pub(super) const fn new(store: RedisStore) -> Self {
        Self(store)
    }

    pub(super) fn limiter(
        &self,
        counted: &CountedSets<'_>,
        settings: &StoreSettings,
    ) -> Result<AnyLimiter, ConfigError> {
        let terms = counted.terms(accepted_name(counted.name("rule.")));
        let builder = RedisLimiterBuilder::of(terms)
            .on_failure(on_failure(settings))
            .remember_denials_for(LONGEST_DENIAL);
        Ok(AnyLimiter::new(builder.build(&self.0)?))
    }

    /// The place of the permits of a rule; a key may have `most` of them. All tiers of a rule count together.
    pub(super) fn permit_source(
        &self,
        (rule, limit): (&Rule, &InFlightRule),
        most: u64,
        settings: &StoreSettings,
    ) -> Result<PermitSource, ConfigError> {
        let concurrency = Concurrency::max(most).named_owned(&*limit.name);
        let shared = SharedConcurrency::new(&self.0, concurrency)
            .name(accepted_name(format!("rule.{}", rule.name)))
            .on_failure(on_failure(settings));
        let leased = limit
            .lease
            .into_iter()
            .fold(shared, SharedConcurrency::lease);
        leased.source()
    }

    /// Refuses rules that a refund does not take back, if another charge may be denied: of another rule, or of another call
    /// of a batch of MCP.
    #[allow(clippy::unused_self, reason = "as its twin")]
    pub(super) fn check(&self, rules: &[Rule]) -> Result<(), RulesError> {
        let hard = |rule: &&Rule| !rule.shadow && !rule.allowance.indexed_sets().is_empty();
        let is_alone = rules.iter().filter(hard).count() < 2;
        let refunded =
            (rules.iter().filter(hard)).filter(|rule| !is_alone || rule.key.names_tool());
        let faults = refunded.filter_map(|rule| {
            let other = if is_alone { "call of a batch" } else { "rule" };
            let fault = irrevocable(rule)?;
            let message = format!(
                "in Redis {fault} cannot be taken back when another {other} denies; limit this in a \
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

const fn on_failure(settings: &StoreSettings) -> OnFailure {
    match settings.on_failure {
        Some(OnStoreFailure::Allow) => OnFailure::allow(),
        Some(OnStoreFailure::Deny) => OnFailure::deny(),
        Some(OnStoreFailure::Local) | None => OnFailure::local(),
    }
}
