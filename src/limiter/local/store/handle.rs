//! The store in this process.

use std::{fmt, sync::Arc};

use super::table::StoreTable;
use crate::{clock::SharedClock, error::ConfigError, limiter::local::capacity::Capacity};

/// One table for many limits: thirty routes or two hundred rules in the memory of one.
///
/// A [`LocalLimiter`](crate::LocalLimiter) has a table of its own unless it is built
/// [in a store](crate::limiter::LocalLimiterBuilder::build_in). Limiters of one store share its room
/// and its clock, not their counts; each still decides exactly, and as it would with a table of its
/// own, but for a lone bucket in two cases. After [`set_quota`](crate::LocalLimiter::set_quota) to a
/// smaller burst, queue or limit a table of its own brings all keys down to what the new quota holds
/// at once; in a store, as in Redis, a key is brought down when the next request comes, and has as
/// long to wait from then on at most. After a clock that stepped back a store does so at once, and a
/// table of its own, which takes no lock, only where more than one more full bucket, and more than a
/// second, is owed. Limits with different keys can be charged together there, or not at all, see
/// [`RateLimitLayer::all`](crate::RateLimitLayer::all).
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
/// A decision takes the lock of a part of the table, of which there is one for about 2,000 counts:
/// about 2,000 instructions, where a lone bucket with a table of its own takes 660 and no lock. That
/// is about three times as long, with one thread as with two, at one hot key or at many. A count takes 98 bytes instead of 30. All else than a lone bucket takes a lock anyway. Three
/// limits together take about 10,000 instructions, and six allocations.
///
/// Each limit has an equal share of the room, `max_keys` divided by the limits that there are;
/// limiters of one [name](crate::limiter::LocalLimiterBuilder::name) are one limit, and those that
/// were dropped are none. A limit may take more than its share while there is room. Where the table is
/// full, a key of a limit with more than its share takes the place of a count of the same limit, a key
/// of a limit within its share that of a limit with more: in each case of the count with the least
/// to forget. So a flood of one limit's keys does not reset another limit's offenders. Shares are kept
/// in each part of the table, where chance gives a limit a few keys more or fewer; with fewer than
/// eight keys for a limit there is little to share, and a line in the log says so.
///
/// A clone is a handle to the same table.
#[derive(Clone)]
pub struct LocalStore(Arc<StoreTable>);

impl LocalStore {
    /// A store with the default settings.
    ///
    /// # Panics
    ///
    /// When there is no memory for the table's locks, a few kilobytes.
    #[must_use]
    pub fn new() -> Self {
        let built = Self::builder().build();
        built.expect("the default settings are accepted")
    }

    pub(super) fn from_parts(capacity: Capacity, clock: SharedClock) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(StoreTable::try_new(capacity, clock)?)))
    }

    /// Counts and blocks, of all limits, that have not flown back or ended yet.
    ///
    /// This walks the whole table, about a millisecond for 262,144 of them: something for a metrics
    /// scrape, not for every request.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        self.0.live_states()
    }

    /// Counts that were given up while they still had something to remember, since the start. More
    /// than a few mean that `max_keys` is too small for the traffic, or that somebody floods it.
    #[must_use]
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
