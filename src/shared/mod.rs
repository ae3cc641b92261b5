//! The limiter of all nodes: batches of operations, cached denials, leases, the fallback, and the
//! stores that can replace Redis.
//!
//! A [`RedisLimiter`] keeps its values in Redis. A [`SharedLimiter`] keeps them in a [`Store`] of
//! your own, which calls [`Call::apply`] under a lock, or in a [`CompareAndSwap`].

mod batching;
mod builder;
mod compare_and_swap;
mod deny_cache;
mod eventual;
pub(crate) mod fallback;
mod hashed_key_names;
#[cfg(feature = "redis")]
mod joint;
mod lease;
mod ledger;
mod limiter;
mod memory_store;
mod mode;
mod operation_answer;
#[cfg(feature = "redis")]
mod redis_values;
#[cfg(feature = "redis")]
mod script_choice;
mod script_in_rust;
mod store_backend;
mod subject_settlement;
mod user_store;
mod wire;

#[doc(hidden)]
pub use self::wire::{
    LateCall,
    node_message::{NodeMessage, NodeReply, NodeReport, RowStatus},
};
pub use self::{
    builder::RedisLimiterBuilder,
    compare_and_swap::{Cas, CompareAndSwap, Versioned},
    fallback::OnFailure,
    limiter::SharedLimiter,
    memory_store::MemoryStore,
    mode::{Mode, ModeStats},
    operation_answer::RedisFuture,
    store_backend::StoreBackend,
    user_store::Store,
    wire::{Applied, Call, Reply, Write},
};
#[cfg(feature = "redis")]
pub use self::{limiter::RedisLimiter, redis_values::RedisValues};
