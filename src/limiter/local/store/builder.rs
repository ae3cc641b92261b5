//! The builder of a store in this process.

use super::local_store::LocalStore;
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::ConfigError,
    limiter::local::{
        capacity::{Capacity, DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_TIMES},
        hash::KeyHasher,
    },
};

/// Configures a [`LocalStore`]. Made by [`LocalStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct LocalStoreBuilder {
    max_keys: usize,
    max_log_times: usize,
    clock: SharedClock,
}

impl LocalStore {
    /// A builder of a store with the default settings.
    pub fn builder() -> LocalStoreBuilder {
        LocalStoreBuilder {
            max_keys: DEFAULT_MAX_KEYS,
            max_log_times: DEFAULT_MAX_LOG_TIMES,
            clock: SharedClock::new(OsClock::new()),
        }
    }
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

    /// Sets how many times the [logs](crate::Algorithm::SlidingLog) of all limits and keys together have
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
    #[cfg(feature = "rules")]
    pub(crate) fn shared_clock(mut self, clock: SharedClock) -> Self {
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
        LocalStore::from_parts(capacity, self.clock, hasher)
    }
}
