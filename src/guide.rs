//! [rule-fields]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/rules/index.html#fields-1
//! [limits-page]: limits
//! [soft]: limits#a-soft-limit
//! [priority-shares]: limits#priority-shares
//! [`Quota`]: tower_ratelimit_core::Quota
//! [`retry_after`]: tower_ratelimit_core::Decision::retry_after
//! [`delay`]: tower_ratelimit_core::Decision::delay
// The page is also read on GitHub, and defines the targets of its links there at its end. The first
// of two definitions counts, so here the links lead to items, and the pictures are in the page.
#![doc = include_str!("../docs/plots/links.md")]
#![doc = include_str!("../docs/algorithms.md")]

#[cfg(all(feature = "axum", feature = "llm"))]
pub mod budgets;
pub mod bypasses;
// No doctest: the package `examples/cookbook`, with the dependencies that recipes need, compiles
// its code and holds the page equal to it.
#[cfg(not(doctest))]
pub mod cookbook;
#[cfg(not(doctest))]
pub mod cookbook_setup;
pub mod limits;
#[cfg(all(feature = "axum", feature = "mcp"))]
pub mod mcp;
pub mod migrate;
#[cfg(feature = "redis")]
pub mod modes;
pub mod quickstart;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redis_operations;
#[cfg(feature = "rules")]
pub mod rules;
pub mod security;
#[cfg(feature = "redis")]
pub mod stores;
pub mod troubleshooting;
