//! Figures: the numbers that the fields of one quota tell.

use std::time::Duration;

use super::ResetFormat;
use crate::decision::{Decision, Status, Unit, whole_seconds};

/// The numbers of a decision about a layer's one quota. All its fields follow from them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(super) remaining: u64,
    /// The parameter `t`, which is the wait of a denial.
    pub(super) seconds: u64,
    /// The number of `X-RateLimit-Reset`.
    pub(super) reset: u64,
}

/// The numbers of a quota that fields tell, as far as there are any.
#[derive(Clone, Copy)]
pub(super) struct ToldNumbers {
    pub(super) remaining: Option<u64>,
    /// The effective window, which a limit on concurrency has none of. Without what remains there
    /// is nothing to reset.
    pub(super) seconds: Option<u64>,
}

impl ToldNumbers {
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

/// The number of `X-RateLimit-Reset`, where `seconds` are those of the effective window.
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
            // Rounded once: two roundings up would name a second too many.
            whole_seconds(now.saturating_add(window))
        }
    }
}
