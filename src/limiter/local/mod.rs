//! Limiters in this process: the lock-free table of instants, and the sharded table of states.

mod blocks;
mod builder;
mod capacity;
mod eviction;
mod hash;
mod joint;
mod limiter;
mod lock_free_bucket_table;
mod shard;
mod sharded;
mod sliding_log_memory;
mod state_file;
mod store;
mod swappable_limits;
mod table;

#[cfg(feature = "shared")]
pub(crate) use self::swappable_limits::{ChangingLimits, InForce};
pub use self::{
    builder::LocalLimiterBuilder,
    limiter::LocalLimiter,
    state_file::{RestoreError, RestoreErrorKind, SaveError, SaveErrorKind, Saved},
    store::{LocalStore, LocalStoreBuilder},
};
