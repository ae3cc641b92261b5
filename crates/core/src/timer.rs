//! Tokio's timer, which a runtime may lack.

#[cfg(feature = "tokio")]
use std::{panic::catch_unwind, time::Duration};

/// Something should wait, and there is no timer.
#[derive(Debug)]
pub struct NoTimer;

/// Starts a wait.
///
/// # Errors
///
/// Outside of a tokio runtime with a timer.
#[cfg(feature = "tokio")]
pub fn sleep(duration: Duration) -> Result<tokio::time::Sleep, NoTimer> {
    // Tokio panics where it has no timer, and no function of it checks that.
    catch_unwind(|| tokio::time::sleep(duration)).map_err(|_| NoTimer)
}

impl std::fmt::Display for NoTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if cfg!(feature = "tokio") {
            "to delay requests, tower-ratelimit needs a tokio runtime with a timer: call `enable_time` or \
             `enable_all` of its builder"
        } else {
            "to delay requests, tower-ratelimit needs its feature `tokio`"
        })
    }
}

impl std::error::Error for NoTimer {}
