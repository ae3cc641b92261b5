//! [`RedisLimiter`]: crate::RedisLimiter
//! [`AnyLimiter`]: tower_ratelimit_core::AnyLimiter
//! [`LocalLimiter`]: tower_ratelimit_core::LocalLimiter
//! [`RedisStore`]: crate::RedisStore
//! [`RedisStore::check`]: crate::RedisStore::check
//! [`RedisStore::health`]: crate::RedisStore::health
//! [`RedisStore::stats`]: crate::RedisStore::stats
//! [`RedisStore::from_connection`]: crate::RedisStore::from_connection
//! [`prefix`]: crate::redis::RedisStoreBuilder::prefix
//! [`deadline`]: crate::redis::RedisStoreBuilder::deadline
//! [`connect_timeout`]: crate::redis::RedisStoreBuilder::connect_timeout
//! [`on_health_change`]: crate::redis::RedisStoreBuilder::on_health_change
//! [`name`]: crate::shared::RedisLimiterBuilder::name
//! [`remember_denials`]: crate::shared::RedisLimiterBuilder::remember_denials
//! [`max_local_keys`]: crate::shared::RedisLimiterBuilder::max_local_keys
//! [`OnFailure`]: crate::OnFailure
//! [`OnFailure::nodes`]: crate::OnFailure::nodes
//! [`Decision::degraded_by`]: tower_ratelimit_core::Decision::degraded_by
//! [`Decision::is_degraded`]: tower_ratelimit_core::Decision::is_degraded
//! [`Observer`]: crate::observe::Observer
//! [stores-page]: crate::guide::stores
//! [`Store`]: crate::shared::Store
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(
    feature = "metrics",
    doc = "[`MetricsObserver`]: crate::observe::MetricsObserver"
)]
#![doc = include_str!("../../docs/redis.md")]
