//! [clients-page]: https://docs.rs/tower-ratelimit-client/latest/tower_ratelimit_client/guide/index.html
//! [cookbook-page]: crate::guide::cookbook
//! [`OwnedQuota`]: tower_ratelimit_core::quota::OwnedQuota
//! [`deny_key`]: crate::RateLimitLayer::deny_key
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(feature = "rules", doc = "[rules-page]: crate::guide::rules")]
#![cfg_attr(
    feature = "tokio",
    doc = "[`TokioClock`]: tower_ratelimit_core::clock::TokioClock"
)]
#![cfg_attr(
    feature = "metrics",
    doc = "[`record_table`]: crate::observe::MetricsObserver::record_table"
)]
#![doc = include_str!("../../docs/cookbook-setup.md")]
