//! The limiter of all nodes: batches of operations, cached denials, leases, the fallback, and the
//! stores that can replace Redis.
//!
//! A [`RedisLimiter`] keeps its values in Redis. A [`SharedLimiter`] keeps them in a [`Store`] of
//! your own, which calls [`StoreCall::apply`] under a lock, or in a [`CompareAndSwap`].
//!
//! [`RedisLimiter`]: crate::limiter::RedisLimiter

// In: a tier, a key and an operation. Out: a decision, at once or when the store has answered.
//
// Example: a request of the key "alice".
// 1. `limiter.rs` takes the quotas in force and chooses those of the tier. In leased and eventual mode the ledger
//    (`ledger.rs`) may decide, by its account of the key. Then nothing else happens.
// 2. `submit_to_store` makes the name of the subject (`prehashed_key_names.rs`), and looks for a cached denial
//    (`deny_cache.rs`). While the breaker is open it goes to `fallback.rs`.
// 3. The operation waits in the queue of its subject and leaves with others (`batching.rs`). `StoreCalls` attaches the
//    messages of the ledger to the call.
// 4. There are two ways to a store (`store_trait.rs`). For Redis, `redis_backend.rs` chooses a script, which reads
//    and writes the texts of `wire/`. For a store of a user, `CustomClient` hands over a `StoreCall`, and
//    `apply_store_call.rs` does what the script would. Rows of other nodes are settled on the way.
// 5. The answer goes to the cache, to the ledger and to all that wait for it. If there is none in time, `fallback.rs`
//    decides.

mod apply_store_call;
mod batching;
mod builder;
mod compare_and_swap;
mod deny_cache;
#[doc(hidden)]
pub mod fallback;
#[cfg(feature = "redis")]
mod joint;
mod ledger;
#[doc(hidden)]
pub mod limiter;
mod mode;
mod prehashed_key_names;
#[cfg(feature = "redis")]
mod redis_backend;
#[cfg(feature = "redis")]
mod redis_compare_and_swap;
mod store_trait;
mod wire;

#[cfg(feature = "redis")]
pub use self::redis_compare_and_swap::RedisValues;
#[doc(hidden)]
pub use self::wire::{LateCall, NodeMessage, NodeReply, NodeReport, RowStatus};
pub use self::{
    builder::RedisLimiterBuilder,
    compare_and_swap::{Cas, CompareAndSwap, Versioned},
    limiter::{RedisFuture, SharedLimiter},
    mode::Mode,
    store_trait::{MemoryStore, Store, StoreBackend},
    wire::{Applied, Reply, StoreCall, Write},
};
pub use tower_ratelimit_store::stats::ModeStats;
