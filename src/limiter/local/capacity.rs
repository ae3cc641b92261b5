//! How much a limiter may remember.

use crate::error::{ConfigError, ConfigErrorKind};

/// How much a limiter may remember.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    /// The times for which all logs hold memory together.
    pub(super) log_times: usize,
}

impl Capacity {
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
