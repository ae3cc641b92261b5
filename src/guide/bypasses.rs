//! [field]: crate::guide::security#a-path-in-a-field
//! [security-page]: crate::guide::security
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(feature = "redis", doc = "[`RedisLimiter`]: crate::RedisLimiter")]
#![cfg_attr(feature = "redis", doc = "[redis-page]: crate::guide::redis")]
#![doc = include_str!("../../docs/bypasses.md")]
