//! Limiters in this process: the lock-free table of instants, and the table of states under locks.
//!
//! In comes a charge: a key, a tier, a class and an operation. Out comes a decision, at once. `limiter.rs` hashes the key (`hash.rs`), reads
//! the clock, and goes to one of two tables, chosen when the limiter is built:
//!
//! - A lone token bucket or leaky bucket is one instant for each key: `lock_free_bucket_table.rs` computes the next
//!   instant, and `table.rs` exchanges it by one atomic update.
//! - Any other quotas have an entry for each state of a key in a table under locks (`store/`), and so have all blocks. It
//!   is the limiter's own, or that of a `LocalStore`, which also charges several limits together.
//!
//! A change of quotas puts new limits in force while requests run (`tier_set.rs`). A bucket that becomes a window
//! leaves the first table for the second, once. What does not fit is evicted by its weight (`eviction.rs`). Both tables are
//! saved to one format (`state_file.rs`).
//!
//! An example: with 10 requests a second and a burst of 20, the first request of a key writes the instant 100 ms from now,
//! at which its bucket is full again. A request is denied if its own 100 ms would move that instant more than 2 s ahead.

mod builder;
mod eviction;
mod hash;
mod limiter;
mod lock_free_bucket_table;
mod state_file;
mod store;
mod table;

#[doc(hidden)]
pub use self::hash::KeyHasher;
pub use self::{
    builder::LocalLimiterBuilder,
    limiter::LocalLimiter,
    state_file::{RestoreError, RestoreErrorKind, SaveError, SaveErrorKind, Saved},
    store::{LocalStore, LocalStoreBuilder},
};
