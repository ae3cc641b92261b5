//! The numbers that the fields of a response report.

use std::time::Duration;

use super::ResetFormat;
use crate::decision::{Decision, QuotaStatus, Status, Unit, whole_seconds};

/// The numbers of a decision about a layer's one quota. All its fields follow from them. Of several quotas,
/// the numbers of the binding one.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuotaNumbers {
    pub(super) remaining: u64,
    /// Seconds of the effective window, which is the wait of a denial: the parameter `t`.
    pub(super) seconds: u64,
    pub(super) reset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PolicyNumbers {
    pub(super) remaining: u64,
    /// As [`QuotaNumbers::seconds`].
    pub(super) seconds: u64,
}

/// The most quotas whose texts are cached.
pub(super) const MOST_QUOTAS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FewQuotas {
    /// The numbers of the layer's quotas, in their order; zero behind them.
    pub(super) numbers: [PolicyNumbers; MOST_QUOTAS],
    /// The index of the binding quota: numbers alone do not determine that of a denial.
    pub(super) binding: usize,
}

impl FewQuotas {
    /// The numbers of a decision; `None` if it is about more quotas, or one does not report all numbers.
    pub(super) fn of(decision: &Decision) -> Option<Self> {
        let mut numbers = [PolicyNumbers::default(); MOST_QUOTAS];
        let quotas = decision.quotas();
        for (place, quota) in numbers.get_mut(..quotas.len())?.iter_mut().zip(quotas) {
            let known = KnownNumbers::of(&quota);
            (place.remaining, place.seconds) = (known.remaining?, known.seconds?);
        }
        let binding = decision.binding_place_by(|place| Some(numbers[place].remaining));
        Some(Self { numbers, binding })
    }

    #[inline]
    pub(super) const fn of_binding(&self) -> PolicyNumbers {
        self.numbers[self.binding]
    }
}

#[derive(Clone, Copy)]
pub(super) struct KnownNumbers {
    pub(super) remaining: Option<u64>,
    /// Seconds of the effective window: `None` without `remaining`, since nothing is reset then, and
    /// for a limit on concurrency.
    pub(super) seconds: Option<u64>,
}

impl KnownNumbers {
    #[inline]
    pub(super) fn of(quota: &QuotaStatus<'_>) -> Self {
        Self::of_status(quota.numbers(), quota.unit())
    }

    #[inline]
    pub(super) fn of_status(status: &Status, unit: Unit) -> Self {
        let remaining = status.remaining();
        let timed = remaining.is_some() && unit != Unit::ConcurrentRequests;
        Self {
            remaining,
            seconds: status.seconds().filter(|_| timed),
        }
    }
}

impl From<&PolicyNumbers> for KnownNumbers {
    #[inline]
    fn from(numbers: &PolicyNumbers) -> Self {
        Self {
            remaining: Some(numbers.remaining),
            seconds: Some(numbers.seconds),
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
