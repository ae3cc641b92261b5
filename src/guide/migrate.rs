//! [rules-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/rules/index.html
//! [stores-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/stores/index.html
// As on the page before: of two definitions of a link the first one counts.
#![doc = include_str!("../../docs/migrate.md")]
