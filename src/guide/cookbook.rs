//! [one-table]: crate::guide::limits#one-table-for-many-limits
//! [priority-shares]: crate::guide::limits#priority-shares
//! [proxies]: crate::guide::security#behind-a-proxy
//! [restart]: crate::guide::limits#a-restart
//! [setup-page]: crate::guide::cookbook_setup
//! [`AnyLimiter`]: tower_ratelimit_core::AnyLimiter
//! [`cost`]: crate::RateLimitLayer::cost
//! [`quota`]: crate::RateLimitLayer::quota
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
#![doc = include_str!("../../docs/cookbook.md")]
