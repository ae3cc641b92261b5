//! [cap]: crate::guide::cookbook#a-spending-cap-per-month
//! [clients-page]: https://docs.rs/tower-ratelimit-client/latest/tower_ratelimit_client/guide/index.html
// As on the page before: of two definitions of a link the first one counts.
#![doc = include_str!("../../docs/budget-plots/links.md")]
#![doc = include_str!("../../docs/budgets.md")]
