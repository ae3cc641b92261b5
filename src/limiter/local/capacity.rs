//! The capacity: how much a limiter may remember.

use super::victim::WAYS;
use crate::error::{ConfigError, ConfigErrorKind};

/// 2^18 keys: about 8 MB of instants.
pub(super) const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// 2^22 times.
pub(super) const DEFAULT_MAX_LOG_TIMES: usize = 1 << 22;

/// How much a limiter may remember.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    /// The times for which all logs hold memory together.
    pub(super) log_times: usize,
}

/// A bucket's number is made of 32 bits.
const MAX_KEYS: u64 = 1 << 32;

/// Entries of a shard, from this many to twice as many. Keys spread unevenly over the shards: of
/// one with fewer entries too many would be given up while there is room elsewhere. In one with
/// more, a change of quota would hold the lock for longer.
const MIN_ENTRIES_PER_SHARD: usize = 4_096;

/// The entries of a table for `keys` live keys: 15 for 8. At this load two choices of a bucket of
/// four lose about 1 key in 27,000.
pub(super) const fn entries_for(keys: usize) -> usize {
    keys.saturating_mul(15).div_ceil(8)
}

impl Capacity {
    /// That of a limiter which remembers nothing itself.
    pub(super) const NONE: Self = Self {
        keys: 0,
        log_times: 0,
    };

    /// # Errors
    ///
    /// When it is no keys, or more than can be numbered.
    pub(super) fn checked(keys: usize, log_times: usize) -> Result<Self, ConfigError> {
        if keys == 0 || keys as u64 > MAX_KEYS {
            return Err(ConfigError::new(
                ConfigErrorKind::MaxKeys,
                format!("max_keys is {keys}; accepted are 1 to {MAX_KEYS}"),
            ));
        }
        Ok(Self { keys, log_times })
    }

    /// How many shards a table of locks has, and how many entries each of them.
    pub(super) const fn shards(self) -> (usize, usize) {
        let entries = entries_for(self.keys);
        let count = match entries / MIN_ENTRIES_PER_SHARD {
            0 => 1,
            count => count,
        };
        let buckets = entries.div_ceil(count * WAYS);
        (count, if buckets < 2 { 2 } else { buckets } * WAYS)
    }

    /// The error of a capacity that there is no memory for.
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
