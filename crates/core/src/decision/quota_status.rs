//! `QuotaStatus`: one quota's name and numbers, borrowed from a decision.

use std::{fmt, num::NonZeroU64, time::Duration};

use super::{
    Policy, Status, Unit,
    policy::Name,
    receipt::Charge,
    rounding::{LONGEST, UNKNOWN, nanos_of, time_of},
    status::Marks,
};
use crate::quota::{Fitted, Kind};

/// The status of one quota after a decision.
///
/// Durations are relative to the decision, in microseconds, rounded up. The policy is borrowed from the
/// decision, or the one that the status was made for.
#[derive(Clone, Copy)]
pub struct QuotaStatus<'a> {
    pub(super) policy: &'a Policy,
    #[doc(hidden)]
    pub status: Status,
}

impl<'a> QuotaStatus<'a> {
    /// A status of the quota that `policy` describes: not denied, remaining units and times unknown.
    ///
    /// For a limiter of your own, which adds the numbers that it knows: responses contain only the fields
    /// that follow from these.
    pub const fn new(policy: &'a Policy) -> Self {
        Self {
            policy,
            status: Status::UNKNOWN,
        }
    }

    /// Sets the units left. Defaults to unknown: then responses have no `RateLimit` field.
    #[must_use]
    pub fn with_remaining(mut self, remaining: u64) -> Self {
        self.status.left = remaining.min(LONGEST);
        self
    }

    /// Sets the time until the key is as good as new, rounded up to microseconds. Defaults to unknown.
    #[must_use]
    pub fn with_reset_after(mut self, reset_after: Duration) -> Self {
        self.status.reset_after = nanos_of(reset_after);
        self
    }

    /// Sets the time within which a client can use no more than the units left: the `t` parameter of
    /// draft-11. Defaults to unknown: then the field has no `t`.
    #[must_use]
    pub fn with_effective_window(mut self, window: Duration) -> Self {
        self.status.window = nanos_of(window);
        self
    }

    /// Marks the quota as denying. The same cost passes after `retry_after`; `None` if it never does,
    /// or the wait is unknown. A wait of zero becomes a microsecond, so that a denied client never
    /// retries at once.
    #[must_use]
    pub const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.status = self.status.denied(match retry_after {
            Some(wait) if wait.is_zero() => 1_000,
            Some(wait) => nanos_of(wait),
            None => UNKNOWN,
        });
        self
    }

    /// The policy as it was in force for this decision.
    pub fn policy(&self) -> Policy {
        self.policy.with_limit(self.limit())
    }

    /// The policy's name.
    pub fn name(&self) -> &'a str {
        self.policy.name()
    }

    #[doc(hidden)]
    pub fn label(&self) -> Name {
        self.policy.label()
    }

    /// The most units that can be available at once.
    pub const fn limit(&self) -> u64 {
        self.status.limit(self.policy)
    }

    /// The time in which [`limit`](Self::limit) units become available again, see
    /// [`Policy::window`].
    pub const fn window(&self) -> Option<Duration> {
        self.policy.window()
    }

    /// The unit that is counted.
    pub const fn unit(&self) -> Unit {
        self.policy.unit()
    }

    /// Units left; `None` if the limiter does not report them.
    pub fn remaining(&self) -> Option<u64> {
        self.status.remaining()
    }

    /// Units in use; `None` if the limiter does not report them. For a fixed window it is the count,
    /// which exceeds the limit if the window is [uncapped](crate::Quota::uncapped); for other
    /// algorithms it is the limit less the units left.
    pub fn used(&self) -> Option<u64> {
        self.status.used(self.policy)
    }

    /// Time from the decision until the key is as good as new if nothing else comes on it: the bucket is
    /// full, or all counted units have left the window or log. `None` if the limiter does not report it.
    pub fn reset_after(&self) -> Option<Duration> {
        time_of(self.status.reset_after)
    }

    /// The wait after which a denied cost passes; `None` if the quota did not deny, the cost can never
    /// fit, or the wait is unknown.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.status.retry_after()
    }

    /// The time within which a client can use no more than the units left; for a denied quota its
    /// [`retry_after`](Self::retry_after).
    pub fn effective_window(&self) -> Option<Duration> {
        self.status.effective_window()
    }

    /// Whether this quota denied. Of several quotas that are charged together one is enough to deny the
    /// request.
    pub const fn is_denied(&self) -> bool {
        self.status.is(Marks::DENIED)
    }

    /// Whether the usage exceeds the nominal limit, as [`Quota::soft`](crate::Quota::soft) allows.
    pub const fn is_excess(&self) -> bool {
        self.status.is(Marks::EXCESS)
    }

    /// Whether at least 80 % of the limit is used, for warnings before the first denial. If the limiter does
    /// not report the units left: whether it denied.
    pub fn is_near_limit(&self) -> bool {
        match self.remaining() {
            Some(remaining) => remaining <= self.limit() / 5,
            None => self.is_denied(),
        }
    }
}

impl QuotaStatus<'_> {
    /// The numbers of the request's own quota, if this is its status.
    pub(super) fn fitted(&self) -> Fitted {
        Fitted {
            capacity: self.policy.limit,
            interval: NonZeroU64::new(self.policy.interval()).unwrap_or(NonZeroU64::MIN),
        }
    }

    /// The charge that left the quota with this status. A lease has charged a bucket earlier.
    #[doc(hidden)]
    pub fn charge(&self, is_leased: bool) -> Charge {
        let (kind, is_bucket) = (self.policy.kind, self.status.is_bucket());
        let none = |kind| Charge {
            kind,
            end: 0,
            interval: 0,
        };
        match (is_bucket, is_leased) {
            (false, _) => none(kind),
            (true, true) => none(Kind::NONE),
            (true, false) => Charge {
                kind,
                end: self.status.end,
                interval: self.policy.interval(),
            },
        }
    }

    /// The least time from this decision until `behind` units have passed after its own `head` units,
    /// if no other request comes. A bucket needs the refill time of the units; a window or log needs whole periods.
    #[doc(hidden)]
    pub fn wait_behind(&self, head: u64, behind: u64) -> Duration {
        let Self { policy, status } = self;
        if !self.is_denied() {
            // Only the limiter knows how many more units a soft quota allows, or when the next step is.
            if policy.is_soft || policy.step() > 0 {
                return Duration::ZERO;
            }
            return Duration::from_nanos(status.until_fit(policy, head.saturating_add(behind)));
        }
        let first = self.retry_after().unwrap_or_default();
        let refill = policy.interval().saturating_mul(behind);
        first.saturating_add(if status.is_bucket() {
            Duration::from_nanos(policy.last_refill(refill))
        } else if policy.limit_varies {
            // How much fits in the next period depends on the hour.
            Duration::ZERO
        } else {
            let last = head.saturating_add(behind).saturating_sub(1);
            let periods = last / status.most(policy).max(1);
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            policy.window().unwrap_or_default().saturating_mul(periods)
        })
    }
}

/// Two statuses are equal if they report the same name and numbers.
impl PartialEq for QuotaStatus<'_> {
    fn eq(&self, other: &Self) -> bool {
        let reported = |quota: &Self| {
            let Self { policy, status } = quota;
            let marks = (quota.is_denied(), quota.is_excess(), policy.is_soft);
            let units = (quota.limit(), quota.unit(), quota.remaining(), quota.used());
            let times = [
                quota.window(),
                quota.reset_after(),
                quota.retry_after(),
                time_of(status.window),
            ];
            (units, times, marks)
        };
        reported(self) == reported(other) && self.name() == other.name()
    }
}

impl Eq for QuotaStatus<'_> {}

impl fmt::Debug for QuotaStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaStatus")
            .field("policy", &self.policy())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("retry_after", &self.retry_after())
            .field("effective_window", &self.effective_window())
            .field("denied", &self.is_denied())
            .field("excess", &self.is_excess())
            .finish_non_exhaustive()
    }
}
