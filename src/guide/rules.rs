//! [budgets-charge]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#what-a-request-is-charged
//! [budgets-rules]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html#rule-files
//! [varying]: crate::guide#limits-that-vary-by-the-time-of-day
//! [varying-in-zones]: crate::guide#times-of-day-in-a-zone
//! [priority-shares]: crate::guide::limits#priority-shares
//! [lines]: crate::guide::troubleshooting#lines-in-the-log
#![doc = include_str!("../../docs/rules.md")]
