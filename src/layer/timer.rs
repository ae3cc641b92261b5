//! The one place that waits for time to pass.

use std::time::Duration;

/// Waits, if there is anything to wait with, and says for how long: timers are late rather than
/// early.
///
/// # Errors
///
/// Without the feature `tokio` nothing can wait.
#[cfg(feature = "tokio")]
pub(super) async fn sleep(duration: Duration) -> Result<Duration, NoTimer> {
    let start = tokio::time::Instant::now();
    tokio::time::sleep(duration).await;
    Ok(start.elapsed())
}

#[cfg(not(feature = "tokio"))]
#[allow(clippy::unused_async, reason = "its twin waits")]
pub(super) async fn sleep(_: Duration) -> Result<Duration, NoTimer> {
    Err(NoTimer)
}

/// A request should wait, and there is no timer.
#[derive(Debug)]
#[cfg_attr(feature = "tokio", allow(dead_code))]
pub(super) struct NoTimer;

impl std::fmt::Display for NoTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("to delay requests, tower-ratelimit needs its feature `tokio`")
    }
}

impl std::error::Error for NoTimer {}
