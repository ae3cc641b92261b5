//! The limiter in this process.

mod builder;
mod hash;
mod instants;
mod limiter;
mod live_quota;
mod quotas;
mod request;
mod shard;
mod subjects;
mod table;

pub use self::{builder::LocalLimiterBuilder, limiter::LocalLimiter};
