//! Both sides of docs/migrate.md: the same requests go to the layer that a row comes from and to the one that it leads
//! to. The peers read the machine's clock, so the quotas are slow: nothing comes back while a test runs.
#![allow(clippy::unwrap_used)]

mod axum_governor;
mod governor;
mod page;
mod requests;
mod tower_governor;
