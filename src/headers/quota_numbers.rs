//! The numbers that the fields of a response report.

use std::time::Duration;

use super::ResetFormat;
use crate::decision::{Decision, Status, Unit, whole_seconds};

/// The numbers of a decision about a layer's one quota. All its fields follow from them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaNumbers {
    pub(super) remaining: u64,
    /// Seconds of the effective window, which is the wait of a denial: the parameter `t`.
    pub(super) seconds: u64,
    /// The number of `X-RateLimit-Reset`.
    pub(super) reset: u64,
}

/// The numbers of a quota that its limiter knows.
#[derive(Clone, Copy)]
pub(super) struct KnownNumbers {
    pub(super) remaining: Option<u64>,
    /// Seconds of the effective window: `None` without `remaining`, since nothing is reset then, and
    /// for a limit on concurrency.
    pub(super) seconds: Option<u64>,
}

impl KnownNumbers {
    #[inline]
    pub(super) fn of(status: &Status) -> Self {
        let (remaining, seconds) = status.remaining_and_seconds();
        let timed = remaining.is_some() && status.unit() != Unit::ConcurrentRequests;
        Self {
            remaining,
            seconds: seconds.filter(|_| timed),
        }
    }
}

/// The number of `X-RateLimit-Reset` for an effective window of `seconds`.
#[inline]
pub(super) fn reset(
    format: ResetFormat,
    decision: &Decision,
    status: &Status,
    seconds: u64,
) -> u64 {
    match format {
        ResetFormat::DeltaSeconds => seconds,
        ResetFormat::EpochSeconds => {
            let now = Duration::from_micros(decision.decided_at().as_micros());
            let window = status.effective_window().unwrap_or_default();
            // Rounded once: two roundings up would report a second too many.
            whole_seconds(now.saturating_add(window))
        }
    }
}
