//! The capacity: how much a limiter may remember.

use crate::error::{ConfigError, ConfigErrorKind};

/// How much a limiter may remember.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    /// The times for which all logs hold memory together.
    pub(super) log_times: usize,
}

/// A bucket's number is made of 32 bits.
const MAX_KEYS: u64 = 1 << 32;

impl Capacity {
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

    /// Says that there is no memory for so much.
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
