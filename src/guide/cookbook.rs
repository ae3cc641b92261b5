//! [clients-page]: https://docs.rs/tower-ratelimit-client/latest/tower_ratelimit_client/guide/index.html
//! [one-table]: crate::guide::limits#one-table-for-many-limits
//! [priority-shares]: crate::guide::limits#priority-shares
//! [proxies]: crate::guide::security#behind-a-proxy
//! [restart]: crate::guide::limits#a-restart
//! [`AnyLimiter`]: tower_ratelimit_core::AnyLimiter
//! [`OwnedQuota`]: tower_ratelimit_core::quota::OwnedQuota
//! [`cost`]: crate::RateLimitLayer::cost
//! [`quota`]: crate::RateLimitLayer::quota
//! [`deny_key`]: crate::RateLimitLayer::deny_key
// As on the page before: of two definitions of a link the first one counts.
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
#![cfg_attr(
    feature = "tokio",
    doc = "[`TokioClock`]: tower_ratelimit_core::clock::TokioClock"
)]
#![cfg_attr(
    feature = "metrics",
    doc = "[`record_table`]: crate::observe::MetricsObserver::record_table"
)]
#![doc = include_str!("../../docs/cookbook.md")]
