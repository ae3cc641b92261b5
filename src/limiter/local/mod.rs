//! The limiter in this process.

mod block;
mod builder;
mod capacity;
mod hash;
mod instants;
mod limiter;
mod live_quota;
mod request;
mod shard;
mod subjects;
mod table;

pub use self::{builder::LocalLimiterBuilder, limiter::LocalLimiter};
