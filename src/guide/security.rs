//! [bypasses-page]: crate::guide::bypasses
//! [by-user]: crate::guide::cookbook#by-user-else-by-address
//! [ipv6]: crate::guide::cookbook#ipv6-networks
//! [`Header`]: crate::Header
//! [`Header::secret`]: crate::Header::secret
//! [`PeerIp`]: crate::PeerIp
//! [`IpPrefix`]: tower_ratelimit_core::key::IpPrefix
//! [`Global`]: crate::Global
//! [`BearerToken`]: crate::key::BearerToken
//! [`BasicUser`]: crate::key::BasicUser
//! [`Cookie`]: crate::key::Cookie
//! [`QueryParameter`]: crate::key::QueryParameter
//! [`extension_fn`]: tower_ratelimit_core::key::extension_fn
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
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(feature = "axum", doc = "[`MatchedRoute`]: crate::key::MatchedRoute")]
#![cfg_attr(feature = "redis", doc = "[`RedisLimiter`]: crate::RedisLimiter")]
#![cfg_attr(feature = "redis", doc = "[redis-page]: crate::guide::redis")]
#![doc = include_str!("../../docs/security.md")]
