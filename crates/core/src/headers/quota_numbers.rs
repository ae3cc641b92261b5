//! The numbers that the fields of a response report.

use std::time::Duration;

use super::ResetFormat;
use crate::decision::{Decision, Policy, Status, Unit, whole_seconds};

/// The numbers of a decision about a layer's one quota. All its fields follow from them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaNumbers {
    pub remaining: u64,
    /// Seconds of the effective window, which is the wait of a denial: the parameter `t`.
    pub(super) seconds: u64,
    pub(super) reset: u64,
}

/// The most quotas whose texts are cached.
const MOST_QUOTAS: usize = 4;

/// The numbers of a decision about a layer's few quotas, beside those of the binding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SeveralNumbers {
    /// Units left and seconds of each, in the order of the policies; zero behind them.
    pub of_each: [(u64, u64); MOST_QUOTAS],
    /// The index of the binding quota: numbers alone do not determine that of a denial.
    pub(super) binding: usize,
    /// The index of the layer's policies: rules have several sets.
    pub(super) set: usize,
}

impl SeveralNumbers {
    /// The numbers of a decision about these policies; `None` if they are many, or one does not report all numbers.
    pub(super) fn of(
        decision: &Decision,
        (set, policies): (usize, &[Policy]),
        format: Option<ResetFormat>,
    ) -> Option<(Self, QuotaNumbers)> {
        let mut of_each = [(0, 0); MOST_QUOTAS];
        let places = of_each.get_mut(..policies.len())?;
        if decision.statuses().len() != policies.len() {
            return None;
        }
        let mut are_own = true;
        decision.for_each_quota(|at, policy, status| {
            match (places.get_mut(at), policies.get(at)) {
                (Some(place), Some(own)) if are_own && policy == own => {
                    match numbers_of(policy, status) {
                        (Some(remaining), Some(seconds)) => *place = (remaining, seconds),
                        _ => are_own = false,
                    }
                }
                _ => are_own = false,
            }
        });
        if !are_own {
            return None;
        }
        let binding = decision.binding_place();
        let status = decision.statuses().get(binding)?;
        let (remaining, seconds) = of_each[binding];
        let numbers = QuotaNumbers {
            remaining,
            seconds,
            reset: reset(format, decision, status, seconds),
        };
        Some((
            Self {
                of_each,
                binding,
                set,
            },
            numbers,
        ))
    }
}

/// The numbers of a quota that the fields report.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportedQuota<'a> {
    pub(super) policy: &'a Policy,
    /// The limit in force.
    pub limit: u64,
    pub remaining: Option<u64>,
    /// Seconds of the effective window: `None` without `remaining`, since nothing is reset then, and
    /// for a limit on concurrency.
    pub(super) seconds: Option<u64>,
    /// The number of `X-RateLimit-Reset`.
    pub(super) reset: Option<u64>,
}

impl<'a> ReportedQuota<'a> {
    #[inline]
    pub(super) fn of(
        (policy, status): (&'a Policy, &Status),
        decision: &Decision,
        format: Option<ResetFormat>,
    ) -> Self {
        let (remaining, seconds) = numbers_of(policy, status);
        Self {
            policy,
            limit: status.limit(policy),
            remaining,
            seconds,
            reset: seconds.map(|seconds| reset(format, decision, status, seconds)),
        }
    }

    /// The numbers, if all are known.
    #[inline]
    pub(super) fn numbers(&self) -> Option<QuotaNumbers> {
        Some(QuotaNumbers {
            remaining: self.remaining?,
            seconds: self.seconds?,
            reset: self.reset?,
        })
    }
}

/// The units left, and the seconds of the effective window.
#[inline]
fn numbers_of(policy: &Policy, status: &Status) -> (Option<u64>, Option<u64>) {
    let remaining = status.remaining();
    let timed = remaining.is_some() && policy.unit() != Unit::ConcurrentRequests;
    (remaining, status.seconds().filter(|_| timed))
}

/// The number of `X-RateLimit-Reset` for an effective window of `seconds`.
#[inline]
fn reset(format: Option<ResetFormat>, decision: &Decision, status: &Status, seconds: u64) -> u64 {
    match format {
        Some(ResetFormat::EpochSeconds) => {
            let now = Duration::from_micros(decision.decided_at().as_micros());
            let window = status.effective_window().unwrap_or_default();
            // Rounded once: two roundings up would report a second too many.
            whole_seconds(now.saturating_add(window))
        }
        _ => seconds,
    }
}
