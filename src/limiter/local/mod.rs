//! Limiters in this process: the lock-free table of instants, and the sharded table of states.

mod blocks;
mod builder;
mod capacity;
mod changing_limits;
mod eviction;
mod hash;
mod joint;
mod limiter;
mod lock_free;
mod log_budget;
mod shard;
mod sharded;
mod store;
mod table;

pub use self::{
    builder::LocalLimiterBuilder,
    limiter::LocalLimiter,
    store::{LocalStore, LocalStoreBuilder},
};
