//! [priority-shares]: crate::guide::limits#priority-shares
//! [redis-page]: crate::guide::redis
//! [`on_failure`]: crate::shared::RedisLimiterBuilder::on_failure
//! [`Quota::share`]: tower_ratelimit_core::Quota::share
// As on the page before: of two definitions of a link the first one counts.
#![doc = include_str!("../../docs/modes.md")]
