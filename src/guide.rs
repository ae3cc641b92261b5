//! [rule-fields]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/rules/index.html#fields-1
//! [limits-page]: limits
//! [soft]: limits#a-soft-limit
//! [priority-shares]: limits#priority-shares
//! [`Quota`]: tower_ratelimit_core::Quota
//! [`retry_after`]: tower_ratelimit_core::Decision::retry_after
//! [`delay`]: tower_ratelimit_core::Decision::delay
// The pages are also read on GitHub, and define the targets of their links there at their ends. The first
// of two definitions counts, so here the links lead to items, and the pictures are in the pages.
#![doc = include_str!("../docs/plots/links.md")]
#![doc = include_str!("../docs/algorithms.md")]

#[cfg(all(feature = "axum", feature = "llm"))]
pub mod budgets {
    //! [cap]: crate::guide::cookbook#a-spending-cap-per-month
    //! [clients-page]: https://docs.rs/tower-ratelimit-client/latest/tower_ratelimit_client/guide/index.html
    #![doc = include_str!("../docs/budget-plots/links.md")]
    #![doc = include_str!("../docs/budgets.md")]
}
pub mod bypasses {
    //! [field]: crate::guide::security#a-path-in-a-field
    //! [security-page]: crate::guide::security
    #![cfg_attr(feature = "redis", doc = "[`RedisLimiter`]: crate::RedisLimiter")]
    #![cfg_attr(feature = "redis", doc = "[redis-page]: crate::guide::redis")]
    #![doc = include_str!("../docs/bypasses.md")]
}
// No doctest: the package `examples/cookbook`, with the dependencies that recipes need, compiles
// its code and holds the page equal to it.
#[cfg(not(doctest))]
pub mod cookbook {
    //! [one-table]: crate::guide::limits#one-table-for-many-limits
    //! [priority-shares]: crate::guide::limits#priority-shares
    //! [proxies]: crate::guide::security#behind-a-proxy
    //! [restart]: crate::guide::limits#a-restart
    //! [setup-page]: crate::guide::cookbook_setup
    //! [`AnyLimiter`]: tower_ratelimit_core::AnyLimiter
    //! [`cost`]: crate::RateLimitLayer::cost
    //! [`quota`]: crate::RateLimitLayer::quota
    #![cfg_attr(
        all(feature = "axum", feature = "llm"),
        doc = "[budgets]: crate::guide::budgets"
    )]
    #![cfg_attr(feature = "redis", doc = "[redis-page]: crate::guide::redis")]
    #![cfg_attr(
        feature = "rules",
        doc = "[rules-overflow]: crate::guide::rules#overflow"
    )]
    #![cfg_attr(
        feature = "redis",
        doc = "[`RedisStore::check`]: crate::RedisStore::check"
    )]
    #![doc = include_str!("../docs/cookbook.md")]
}
#[cfg(not(doctest))]
pub mod cookbook_setup {
    //! [clients-page]: https://docs.rs/tower-ratelimit-client/latest/tower_ratelimit_client/guide/index.html
    //! [cookbook-page]: crate::guide::cookbook
    //! [`OwnedQuota`]: tower_ratelimit_core::quota::OwnedQuota
    //! [`deny_key`]: crate::RateLimitLayer::deny_key
    #![cfg_attr(feature = "rules", doc = "[rules-page]: crate::guide::rules")]
    #![cfg_attr(
        feature = "tokio",
        doc = "[`TokioClock`]: tower_ratelimit_core::clock::TokioClock"
    )]
    #![cfg_attr(
        feature = "metrics",
        doc = "[`record_table`]: crate::observe::MetricsObserver::record_table"
    )]
    #![doc = include_str!("../docs/cookbook-setup.md")]
}
pub mod limits {
    //! [algorithms-page]: crate::guide
    //! [`RateLimitLayer::all`]: crate::RateLimitLayer::all
    //! [`call`]: tower_ratelimit_core::Limiter::call
    //! [`JointLimiter`]: tower_ratelimit_core::limiter::JointLimiter
    //! [`Clock`]: tower_ratelimit_core::clock::Clock
    //! [`OsClock`]: tower_ratelimit_core::clock::OsClock
    //! [`LocalStore`]: tower_ratelimit_core::LocalStore
    //! [`block_for`]: tower_ratelimit_core::limiter::LocalLimiterBuilder::block_for
    //! [`block`]: tower_ratelimit_core::LocalLimiter::block
    //! [`count_if`]: crate::RateLimitLayer::count_if
    //! [`quota`]: crate::RateLimitLayer::quota
    //! [`tier`]: tower_ratelimit_core::limiter::LocalLimiterBuilder::tier
    #![cfg_attr(
        feature = "tokio",
        doc = "[`TokioClock`]: tower_ratelimit_core::clock::TokioClock"
    )]
    #![doc = include_str!("../docs/plots/links.md")]
    #![doc = include_str!("../docs/limits.md")]
}
#[cfg(all(feature = "axum", feature = "mcp"))]
pub mod mcp {
    //! [security-page]: crate::guide::security
    // As on the first page: of two definitions of a link the first one counts.
    #![cfg_attr(feature = "llm", doc = "[budgets-page]: crate::guide::budgets")]
    #![doc = include_str!("../docs/mcp.md")]
}
pub mod migrate {
    //! [rules-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/rules/index.html
    //! [stores-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/stores/index.html
    #![doc = include_str!("../docs/migrate.md")]
}
#[cfg(feature = "redis")]
pub mod modes {
    //! [priority-shares]: crate::guide::limits#priority-shares
    //! [redis-page]: crate::guide::redis
    //! [`on_failure`]: crate::shared::RedisLimiterBuilder::on_failure
    //! [`Quota::share`]: tower_ratelimit_core::Quota::share
    #![doc = include_str!("../docs/modes.md")]
}
pub mod quickstart {
    #![doc = include_str!("../docs/quickstart.md")]
}
#[cfg(feature = "redis")]
pub mod redis {
    //! [decisions]: crate::guide::redis_operations#how-a-decision-is-made
    //! [eventual]: crate::guide::modes#edges-of-eventual-mode
    //! [failures]: crate::guide::redis_operations#when-redis-fails
    //! [operations-page]: crate::guide::redis_operations
    //! [`RedisLimiter`]: crate::RedisLimiter
    //! [`AnyLimiter`]: tower_ratelimit_core::AnyLimiter
    //! [`LocalLimiter`]: tower_ratelimit_core::LocalLimiter
    //! [`RedisStore`]: crate::RedisStore
    //! [`RedisStore::check`]: crate::RedisStore::check
    //! [`RedisStore::from_connection`]: crate::RedisStore::from_connection
    //! [`deadline`]: crate::redis::RedisStoreBuilder::deadline
    //! [`max_local_keys`]: crate::shared::RedisLimiterBuilder::max_local_keys
    //! [`OnFailure`]: crate::OnFailure
    //! [`Decision::degraded_by`]: tower_ratelimit_core::Decision::degraded_by
    //! [`Decision::is_degraded`]: tower_ratelimit_core::Decision::is_degraded
    //! [`Observer`]: crate::observe::Observer
    //! [stores-page]: crate::guide::stores
    //! [`Store`]: crate::shared::Store
    #![doc = include_str!("../docs/redis.md")]
}
#[cfg(feature = "redis")]
pub mod redis_operations {
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
    #![cfg_attr(
        feature = "metrics",
        doc = "[`MetricsObserver`]: crate::observe::MetricsObserver"
    )]
    #![doc = include_str!("../docs/redis-operations.md")]
}
#[cfg(feature = "rules")]
pub use tower_ratelimit_rules::rule_file_reference as rules;
pub mod security {
    //! [bypasses-page]: crate::guide::bypasses
    //! [by-user]: crate::guide::cookbook#by-user-else-by-address
    //! [ipv6]: crate::guide::cookbook#ipv6-networks
    //! [`Header`]: crate::Header
    //! [`Header::secret`]: crate::Header::secret
    //! [`PeerIp`]: crate::PeerIp
    //! [`IpPrefix`]: tower_ratelimit_core::key::ip_prefix::IpPrefix
    //! [`Global`]: crate::Global
    //! [`BearerToken`]: crate::key::BearerToken
    //! [`BasicUser`]: crate::key::BasicUser
    //! [`Cookie`]: crate::key::Cookie
    //! [`QueryParameter`]: crate::key::QueryParameter
    //! [`extension_fn`]: tower_ratelimit_core::key::extract::extension_fn
    //! [`ClientIp`]: crate::ClientIp
    //! [`ClientIp::behind`]: crate::ClientIp::behind
    //! [`ClientIp::hops`]: crate::ClientIp::hops
    //! [`ClientIp::resolve`]: crate::ClientIp::resolve
    //! [`LocalLimiter`]: tower_ratelimit_core::LocalLimiter
    //! [`ConcurrencyLayer`]: crate::ConcurrencyLayer
    //! [`on_missing_key`]: crate::RateLimitLayer::on_missing_key
    //! [`cost`]: crate::RateLimitLayer::cost
    //! [`count_if`]: crate::RateLimitLayer::count_if
    //! [`final_cost`]: crate::RateLimitLayer::final_cost
    //! [algorithms-page]: crate::guide
    #![cfg_attr(feature = "axum", doc = "[`MatchedRoute`]: crate::key::MatchedRoute")]
    #![cfg_attr(feature = "redis", doc = "[`RedisLimiter`]: crate::RedisLimiter")]
    #![cfg_attr(feature = "redis", doc = "[redis-page]: crate::guide::redis")]
    #![doc = include_str!("../docs/security.md")]
}
#[cfg(feature = "redis")]
pub mod stores {
    //! [`RedisLimiter`]: crate::RedisLimiter
    //! [`SharedLimiter`]: crate::shared::SharedLimiter
    //! [`SharedLimiter::health`]: crate::shared::SharedLimiter::health
    //! [`SharedLimiter::stats`]: crate::shared::SharedLimiter::stats
    //! [`Store`]: crate::shared::Store
    //! [`deadline`]: crate::shared::Store::deadline
    //! [`StoreCall`]: crate::shared::StoreCall
    //! [`StoreCall::apply`]: crate::shared::StoreCall::apply
    //! [`CompareAndSwap`]: crate::shared::CompareAndSwap
    //! [`Cas`]: crate::shared::Cas
    //! [`OnFailure`]: crate::OnFailure
    //! [`Contended`]: crate::store::StoreErrorKind::Contended
    //! [`Disconnected`]: crate::store::StoreErrorKind::Disconnected
    //! [`ForeignData`]: crate::store::StoreErrorKind::ForeignData
    //! [`Other`]: crate::store::StoreErrorKind::Other
    //! [`ReadOnly`]: crate::store::StoreErrorKind::ReadOnly
    //! [`Refused`]: crate::store::StoreErrorKind::Refused
    //! [troubleshooting-page]: crate::guide::troubleshooting
    #![doc = include_str!("../docs/stores.md")]
}
pub mod troubleshooting {
    //! [budgets-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#what-is-read
    //! [nginx]: crate::guide::security#nginx
    //! [by-user]: crate::guide::cookbook#by-user-else-by-address
    //! [tokio-tests]: crate::guide::cookbook_setup#limits-in-tokio-tests
    //! [order]: crate::guide::security#the-order-of-layers
    //! [cors]: crate::guide::security#cors
    //! [security-page]: crate::guide::security
    //! [top-keys]: crate::observe::TopKeys
    #![cfg_attr(
        feature = "redis",
        doc = "[redis-page]: crate::guide::redis_operations#when-redis-fails"
    )]
    #![cfg_attr(feature = "redis", doc = "[stores-page]: crate::guide::stores")]
    #![cfg_attr(
        feature = "rules",
        doc = "[rules-page]: crate::guide::rules#reading-them-again"
    )]
    #![doc = include_str!("../docs/troubleshooting.md")]
}
