//! `LocalStore`: the handle to a table of many limits.

use std::{fmt, sync::Arc};

use super::store_table::StoreTable;
use crate::{
    clock::SharedClock,
    error::ConfigError,
    limiter::local::{capacity::Capacity, hash::KeyHasher},
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
/// see [`RateLimitLayer::all`](crate::RateLimitLayer::all).
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
/// case. Three limits together need three allocations a decision.
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
pub struct LocalStore(Arc<StoreTable>);

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

    pub(super) fn from_parts(
        capacity: Capacity,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(StoreTable::try_new(
            capacity, clock, hasher,
        )?)))
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
    #[cfg(feature = "rules")]
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.0.clock
    }

    pub(in super::super) fn table(&self) -> &StoreTable {
        &self.0
    }

    /// Whether both are handles to one table.
    pub(in super::super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
