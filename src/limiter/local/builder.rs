use super::LocalLimiter;
use crate::{
    clock::{Clock, OsClock, SharedClock},
    error::{ConfigError, ConfigErrorKind},
    quota::Quota,
};

/// 2^18 keys: about 8 MB.
const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// A bucket's number has 32 bits and its size is a power of two.
const MOST_KEYS: u64 = 1 << 32;

/// Configures a [`LocalLimiter`]. Made by [`LocalLimiter::builder`].
#[derive(Debug)]
#[must_use]
pub struct LocalLimiterBuilder {
    quota: Quota,
    max_keys: usize,
    clock: SharedClock,
}

impl LocalLimiterBuilder {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            quota,
            max_keys: DEFAULT_MAX_KEYS,
            clock: SharedClock::new(OsClock::new()),
        }
    }

    /// How many keys can be tracked at the same time, at 30 bytes each, whatever their length.
    /// Defaults to 262,144, about 8 MB.
    ///
    /// The memory is taken at once and stays constant. A key counts only while it has used
    /// something that has not come back; beyond `max_keys` the key with the least to forget is
    /// given up first.
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Where the time comes from. Defaults to [`OsClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`], or `max_keys` is 0, above 2^32 or more
    /// than there is memory for.
    pub fn build(self) -> Result<LocalLimiter, ConfigError> {
        let Self {
            quota,
            max_keys,
            clock,
        } = self;
        quota.check()?;
        if max_keys == 0 || max_keys as u64 > MOST_KEYS {
            return Err(ConfigError::new(
                ConfigErrorKind::MaxKeys,
                format!("max_keys is {max_keys}; accepted are 1 to {MOST_KEYS}"),
            ));
        }
        LocalLimiter::from_parts(&quota, max_keys, clock).map_err(|error| {
            ConfigError::new(
                ConfigErrorKind::MaxKeys,
                format!("max_keys is {max_keys}, and there is no room for so many: {error}"),
            )
        })
    }
}
