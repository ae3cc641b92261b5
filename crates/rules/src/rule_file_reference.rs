//! The reference of rule files: every field, with an example and the messages about mistakes.
//!
//! [budgets-bytes]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#bytes
//! [budgets-charge]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#what-a-request-is-charged
//! [budgets-rules]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#rule-files
//! [varying]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/index.html#limits-that-vary-by-the-time-of-day
//! [varying-in-zones]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/index.html#times-of-day-in-a-zone
//! [priority-shares]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/limits/index.html#priority-shares
//! [lines]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/troubleshooting/index.html#lines-in-the-log
//! [mcp-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/mcp/index.html
#![doc = include_str!("../docs/rules.md")]
