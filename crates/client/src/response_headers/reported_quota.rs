//! Quotas as a response reports them.

use std::{
    cmp::Reverse,
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

/// The most quotas of one response that count.
pub(super) const MAX_QUOTAS: usize = 4;

/// A quota as a response reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReportedQuota {
    /// The remaining units.
    pub(crate) remaining: u64,
    /// The time that the remaining units have to last.
    pub(crate) window: Option<Duration>,
    /// The refill, if the policy contains it.
    pub(crate) refill: Option<Refill>,
    /// All units, if they come back evenly: the quota of a bucket. Its `refill` is that of the used units, at
    /// the longest: the reset is rounded. Without one all units are left.
    pub(crate) bucket: Option<NonZeroU64>,
}

/// The refill of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refill {
    /// The time in which all units come back.
    pub(crate) window: Duration,
    /// All units.
    pub(crate) units: NonZeroU32,
}

impl Refill {
    /// The time in which one unit comes back, if they come one by one.
    pub(crate) fn interval(self) -> Duration {
        self.window / self.units.get()
    }
}

impl ReportedQuota {
    /// Whether it holds anything back: units without a window, or with an empty one, do not.
    pub(crate) fn restricts(&self) -> bool {
        self.bucket.is_some() || self.window.is_some_and(|window| !window.is_zero())
    }

    /// The time until `units` are left, as far as the response has it.
    pub(crate) fn wait_for(&self, units: u64) -> Option<Duration> {
        let missing = units.saturating_sub(self.remaining);
        let refill = self.refill.filter(|_| self.bucket.is_some() && missing > 1);
        let Some(refill) = refill else {
            return self.window;
        };
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let wait = refill.interval().saturating_mul(missing);
        Some(wait.min(refill.window))
    }

    /// Orders the most restrictive quota first: the fewest units, for the longest time. Quotas
    /// without a time are last, since they restrict nothing.
    fn rank(&self) -> impl Ord + use<> {
        (self.window.is_none(), self.remaining, Reverse(self.window))
    }
}

/// The most restrictive of these quotas, in this order.
pub(super) fn most_restrictive(mut quotas: Vec<ReportedQuota>) -> Vec<ReportedQuota> {
    quotas.sort_by_key(ReportedQuota::rank);
    quotas.truncate(MAX_QUOTAS);
    quotas
}
