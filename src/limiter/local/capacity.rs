use std::collections::TryReserveError;

use crate::error::{ConfigError, ConfigErrorKind};

/// How much a limiter may remember.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) keys: usize,
    /// The times that all logs keep together.
    pub(super) log_times: usize,
}

impl Capacity {
    /// Says that there is no memory for so much.
    pub(super) fn refused(&self, error: &TryReserveError) -> ConfigError {
        ConfigError::new(
            ConfigErrorKind::MaxKeys,
            format!(
                "max_keys is {}, and there is no room for so many: {error}",
                self.keys
            ),
        )
    }
}
