//! `LocalStore`: one table for many limits.

mod shard;
mod store_call;
mod store_table;

use std::{fmt, sync::Arc};

pub(super) use self::{
    shard::{ONLY_LIMIT, SavedEntry, StoredCounters, StoredLimit},
    store_table::{SavedLimit, StoreTable, changed},
};
use super::eviction::{Capacity, DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_TIMES};
use crate::hash::KeyHasher;
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::ConfigError,
};

/// One table for many limits: thirty routes or two hundred rules in the memory of one limit.
///
/// A [`LocalLimiter`](crate::LocalLimiter) has a table of its own unless it is built
/// [in a store](crate::limiter::LocalLimiterBuilder::build_in). Limiters of one store share its room
/// and its clock, not their counts. Each decides exactly as with a table of its own, with two exceptions
/// for a lone bucket. After [`set_quota`](crate::LocalLimiter::set_quota) to a smaller burst, queue or
/// limit, a table of its own clamps all keys to the new quota at once; in a store, as in Redis, a key is
/// clamped by its next request, and its wait counts from then on. After the clock stepped back, a store
/// clamps at once; a table of its own, which takes no lock, clamps only states more than one full
/// bucket, and more than a second, ahead. Limits with different keys can be charged together in a store,
/// see [`RateLimitLayer::all`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all).
///
/// ```
/// use tower_ratelimit::{Key, LocalLimiter, LocalStore, Quota};
///
/// let store = LocalStore::builder().max_keys(1_000_000).build()?;
/// let login = LocalLimiter::builder(Quota::per_minute(5).sliding_log()).build_in(&store)?;
/// let search = LocalLimiter::builder(Quota::per_second(10)).build_in(&store)?;
///
/// let alice = Key::from("alice");
/// assert_eq!(login.acquire(&alice, 1).remaining(), Some(4));
/// assert_eq!(search.acquire(&alice, 1).remaining(), Some(9));
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// # What sharing costs
///
/// A decision takes the lock of a part of the table with about 2,000 counts; a lone bucket with a table
/// of its own takes none, and its count takes 30 bytes instead of 98. All other quotas take a lock in any
/// case. Three limits together need two allocations a decision.
///
/// Each limit has an equal share of the room: `max_keys` divided by the number of limits. Limiters of
/// one [name](crate::limiter::LocalLimiterBuilder::name) are one limit; dropped limiters do not count. A
/// limit may take more than its share while there is room. In a full table, a key of a limit above its
/// share evicts a count of the same limit, and a key of a limit within its share evicts a count of a
/// limit above its own: in each case the count with the least usage. So a flood of one limit's keys does
/// not reset another limit's offenders. Shares hold in each part of the table, where chance gives a limit
/// a few keys more or fewer. Fewer than eight keys for a limit are too few to share, and the store logs
/// it.
///
/// A clone is a handle to the same table.
#[derive(Clone)]
pub struct LocalStore(pub(super) Arc<StoreTable>);

impl LocalStore {
    /// A store with the default settings.
    ///
    /// # Panics
    ///
    /// If there is no memory for the table's locks, a few kilobytes.
    pub fn new() -> Self {
        let built = Self::builder().build();
        built.expect("the default settings are accepted")
    }

    /// The number of counts and blocks, of all limits, that are not fresh or over.
    ///
    /// This walks the whole table, in about a millisecond for 262,144 counts: use it for a metrics
    /// scrape, not for every request.
    pub fn tracked_keys(&self) -> usize {
        self.0.live_states()
    }

    /// The number of counts that were evicted before they were fresh, since the start. More than a few
    /// mean that `max_keys` is too small for the traffic, or that somebody floods it.
    pub fn evictions(&self) -> u64 {
        self.0.evictions()
    }

    /// The clock of all its limits.
    #[doc(hidden)]
    pub fn clock(&self) -> &SharedClock {
        &self.0.clock
    }

    /// Whether both are handles to one table.
    #[doc(hidden)]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A builder of a store with the default settings.
    pub fn builder() -> LocalStoreBuilder {
        LocalStoreBuilder {
            max_keys: DEFAULT_MAX_KEYS,
            max_log_times: DEFAULT_MAX_LOG_TIMES,
            clock: SharedClock::new(OsClock::new()),
        }
    }
}

impl Default for LocalStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStore")
            .field("evictions", &self.evictions())
            .finish_non_exhaustive()
    }
}

/// Configures a [`LocalStore`]. Made by [`LocalStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct LocalStoreBuilder {
    max_keys: usize,
    max_log_times: usize,
    clock: SharedClock,
}

impl LocalStoreBuilder {
    /// Sets the number of counts that are tracked at the same time, of all limits together. Defaults to
    /// 262,144, about 26 MB.
    ///
    /// One key has one count for each quota of each limit, and one for a block. Each takes 98 bytes,
    /// whatever the length of the key; a sliding window takes 40 bytes more and 8 for each slice, a log
    /// 80 bytes more and 16 to 64 for each time. The table takes memory as keys come, and never grows
    /// beyond that. Beyond `max_keys` counts are evicted, each limit's own first, see [`LocalStore`]:
    /// set at least eight keys for each limit.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Sets how many times the [logs](crate::quota::Algorithm::SlidingLog) of all limits and keys together have
    /// memory for, at 16 bytes each. Defaults to 4,194,304, 64 MB.
    ///
    /// Beyond it each request whose log grows evicts a few others, see
    /// [`LocalLimiterBuilder::max_log_times`](crate::limiter::LocalLimiterBuilder::max_log_times).
    pub const fn max_log_times(mut self, max_log_times: usize) -> Self {
        self.max_log_times = max_log_times;
        self
    }

    /// Sets the clock of all limits of the store. Defaults to [`OsClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Sets a clock that is shared already.
    #[doc(hidden)]
    pub fn shared_clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    ///
    /// If `max_keys` is 0, above 2^32 or more than there is memory for.
    pub fn build(self) -> Result<LocalStore, ConfigError> {
        self.build_with(KeyHasher::new(None))
    }

    pub(super) fn build_with(self, hasher: KeyHasher) -> Result<LocalStore, ConfigError> {
        let capacity = Capacity::checked(self.max_keys, self.max_log_times)?;
        let table = StoreTable::try_new(capacity, None, self.clock, hasher)?;
        Ok(LocalStore(Arc::new(table)))
    }
}
