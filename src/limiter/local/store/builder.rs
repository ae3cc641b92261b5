//! The builder of a store in this process.

use super::handle::LocalStore;
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::ConfigError,
    limiter::local::capacity::{Capacity, DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_TIMES},
};

/// Configures a [`LocalStore`]. Made by [`LocalStore::builder`].
#[derive(Debug)]
#[must_use]
pub struct LocalStoreBuilder {
    max_keys: usize,
    max_log_times: usize,
    clock: SharedClock,
}

impl LocalStore {
    /// Starts to configure a store.
    pub fn builder() -> LocalStoreBuilder {
        LocalStoreBuilder {
            max_keys: DEFAULT_MAX_KEYS,
            max_log_times: DEFAULT_MAX_LOG_TIMES,
            clock: SharedClock::new(OsClock::new()),
        }
    }
}

impl LocalStoreBuilder {
    /// How many counts can be kept at the same time, of all limits together. Defaults to 262,144,
    /// about 26 MB.
    ///
    /// A count is that of one key by one quota of one limit, and a block is one, too. Each takes 98
    /// bytes, whatever the length of the key; on top come 8 bytes for each slice of a sliding
    /// window and 40 for all, and 16 to 64 for each time in a log and 80 for all. The table takes
    /// memory as keys come, and never grows beyond that. Beyond `max_keys` counts are given up, each
    /// limit's own first, see [`LocalStore`]: have at least eight keys for each limit.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// For how many times the [logs](crate::Algorithm::SlidingLog) of all limits and keys may hold
    /// memory together, at 16 bytes each. Defaults to 4,194,304, 64 MB.
    ///
    /// Beyond it each request whose log grows gives up a few others, see
    /// [`LocalLimiterBuilder::max_log_times`](crate::limiter::LocalLimiterBuilder::max_log_times).
    pub const fn max_log_times(mut self, max_log_times: usize) -> Self {
        self.max_log_times = max_log_times;
        self
    }

    /// Where all limits of the store have the time from. Defaults to [`OsClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// The same, for a clock that is shared already.
    #[cfg(feature = "rules")]
    pub(crate) fn shared_clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    ///
    /// When `max_keys` is 0, above 2^32 or more than there is memory for.
    pub fn build(self) -> Result<LocalStore, ConfigError> {
        let capacity = Capacity::checked(self.max_keys, self.max_log_times)?;
        LocalStore::from_parts(capacity, self.clock)
    }
}
