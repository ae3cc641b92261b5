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
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(
    feature = "tokio",
    doc = "[`TokioClock`]: tower_ratelimit_core::clock::TokioClock"
)]
#![doc = include_str!("../../docs/plots/links.md")]
#![doc = include_str!("../../docs/limits.md")]
