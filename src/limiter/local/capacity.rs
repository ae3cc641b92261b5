//! The capacity of a limiter's table: keys, and times of logs.

use super::eviction::WAYS;
use crate::error::{ConfigError, ConfigErrorKind};

/// The default of `max_keys`: 2^18, about 8 MB of instants.
pub(super) const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// The default of `max_log_times`: 2^22.
pub(super) const DEFAULT_MAX_LOG_TIMES: usize = 1 << 22;

/// The bounds of a limiter's table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    /// The most times that all logs together have memory for.
    pub(super) log_times: usize,
}

/// The most keys: a bucket's number has 32 bits.
const MAX_KEYS: u64 = 1 << 32;

/// The least entries of a shard; it has at most twice as many. Keys spread unevenly over the shards: a
/// smaller shard would evict keys while others have room. In a larger one, a change of quota would hold
/// the lock for longer.
const MIN_ENTRIES_PER_SHARD: usize = 4_096;

/// The entries of a table for `keys` live keys: 15 for 8. At this load two choices of a bucket of
/// four lose about 1 key in 27,000.
pub(super) const fn entries_for(keys: usize) -> usize {
    keys.saturating_mul(15).div_ceil(8)
}

impl Capacity {
    /// The capacity of a limiter without a table of its own.
    pub(super) const NONE: Self = Self {
        keys: 0,
        log_times: 0,
    };

    /// # Errors
    ///
    /// If `max_keys` is 0 or more than can be numbered.
    pub(super) fn checked(keys: usize, log_times: usize) -> Result<Self, ConfigError> {
        if keys == 0 || keys as u64 > MAX_KEYS {
            return Err(ConfigError::new(
                ConfigErrorKind::MaxKeys,
                format!("max_keys is {keys}; accepted are 1 to {MAX_KEYS}"),
            ));
        }
        Ok(Self { keys, log_times })
    }

    /// The number of shards of a table with locks, and the entries of each.
    pub(super) const fn shards(self) -> (usize, usize) {
        let entries = entries_for(self.keys);
        let count = match entries / MIN_ENTRIES_PER_SHARD {
            0 => 1,
            count => count,
        };
        let buckets = entries.div_ceil(count * WAYS);
        (count, if buckets < 2 { 2 } else { buckets } * WAYS)
    }

    /// The error of a capacity that exceeds the memory.
    pub(super) fn refused(self) -> ConfigError {
        ConfigError::new(
            ConfigErrorKind::MaxKeys,
            format!(
                "max_keys is {}, and there is no memory for so many",
                self.keys
            ),
        )
    }
}
