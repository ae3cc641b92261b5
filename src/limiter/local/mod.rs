//! Limiters in this process: the lock-free table of instants, and the sharded table of states.

mod blocks;
mod builder;
mod eviction;
mod hash;
mod limiter;
mod lock_free_bucket_table;
mod sharded;
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
