//! [calendar]: crate::guide#calendar-quotas
//! [leases]: crate::guide::redis#leases-local-speed-with-a-shared-limit
//! [on-failure]: crate::guide::redis#fail-open-or-fail-closed
//! [raised]: crate::guide::limits#a-limit-that-is-raised
//! [redis-page]: crate::guide::redis
//! [varying]: crate::guide#limits-that-vary-by-the-time-of-day
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
//! [`OnFailure::nodes`]: crate::OnFailure::nodes
//! [stores-page]: crate::guide::stores
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(
    feature = "metrics",
    doc = "[`MetricsObserver`]: crate::observe::MetricsObserver"
)]
#![doc = include_str!("../../docs/redis-operations.md")]
