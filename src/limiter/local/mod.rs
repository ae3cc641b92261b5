//! Limiting within this process: the lock-free table of instants, and the sharded table of states.

mod blocks;
mod builder;
mod capacity;
mod hash;
mod limiter;
mod live;
mod lock_free;
mod log_budget;
mod shard;
mod sharded;
mod store;
mod table;
mod together;
mod victim;

pub use self::{
    builder::LocalLimiterBuilder,
    limiter::LocalLimiter,
    store::{LocalStore, LocalStoreBuilder},
};
