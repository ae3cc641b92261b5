//! [budgets-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#what-is-read
//! [nginx]: crate::guide::security#nginx
//! [by-user]: crate::guide::cookbook#by-user-else-by-address
//! [tokio-tests]: crate::guide::cookbook_setup#limits-in-tokio-tests
//! [order]: crate::guide::security#the-order-of-layers
//! [cors]: crate::guide::security#cors
//! [security-page]: crate::guide::security
//! [top-keys]: crate::observe::TopKeys
// As on the page before: of two definitions of a link the first one counts.
#![cfg_attr(
    feature = "redis",
    doc = "[redis-page]: crate::guide::redis_operations#when-redis-fails"
)]
#![cfg_attr(feature = "redis", doc = "[stores-page]: crate::guide::stores")]
#![cfg_attr(
    feature = "rules",
    doc = "[rules-page]: crate::guide::rules#reading-them-again"
)]
#![doc = include_str!("../../docs/troubleshooting.md")]
