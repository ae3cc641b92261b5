//! Stands in for `store/redis.rs` without the feature `redis`: no rules count in Redis.

use tower_ratelimit_rulefile::RulesError;

use crate::{
    compile::StoreSettings,
    in_flight::InFlightRule,
    rule::{CountedSets, Rule},
};
use tower_ratelimit_concurrency::PermitSource;
use tower_ratelimit_core::{error::ConfigError, limiter::AnyLimiter};

/// A store in Redis: there is none.
#[derive(Debug, Clone)]
pub(super) enum RedisRules {}

impl RedisRules {
    pub(super) const fn limiter(
        &self,
        _: &CountedSets<'_>,
        _: &StoreSettings,
    ) -> Result<AnyLimiter, ConfigError> {
        match *self {}
    }

    pub(super) const fn permit_source(
        &self,
        _: (&Rule, &InFlightRule),
        _: u64,
        _: &StoreSettings,
    ) -> Result<PermitSource, ConfigError> {
        match *self {}
    }

    pub(super) const fn check(&self, _: &[Rule]) -> Result<(), RulesError> {
        match *self {}
    }
}
