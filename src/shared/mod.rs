//! The limiter that all nodes share: arguments of the script, calls that carry many operations,
//! remembered denials, and the fallback; and the stores that it can be on instead of Redis.
//!
//! A [`RedisLimiter`] keeps its values in Redis, a [`SharedLimiter`] in a
//! [`Store`] of your own: one that does [`Call::apply`] under a lock, or a [`CompareAndSwap`].

mod answer;
mod arguments;
mod asker;
mod builder;
mod call;
mod coalesce;
mod compare_and_swap;
mod deny_cache;
pub(crate) mod fallback;
mod holders;
mod inquiry;
mod joint;
mod keeper;
mod last_value;
mod lease;
mod leasing;
mod ledger;
mod limiter;
mod memory_store;
mod mode;
mod nodes;
mod nodes_store;
mod own_store;
mod rare_values;
mod reply;
mod shared_limiter;
mod store;
mod subject;
mod subject_value;

#[doc(hidden)]
pub use self::call::LateCall;
#[doc(hidden)]
pub use self::lease::{LeaseClause, LeaseReply, LeaseStatus};
pub use self::{
    answer::RedisFuture,
    builder::RedisLimiterBuilder,
    call::{Applied, Call, Reply, Write},
    compare_and_swap::{Cas, CompareAndSwap, Versioned},
    fallback::OnFailure,
    limiter::RedisLimiter,
    memory_store::MemoryStore,
    mode::{Mode, ModeStats},
    shared_limiter::SharedLimiter,
    store::Store,
};
