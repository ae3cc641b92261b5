use std::time::Duration;

use super::{
    Policy, Unit,
    round::{from_micros, micros_up},
};

/// How the quotas of a decision stand; made from one [`QuotaStatus`] or from several.
#[derive(Debug, Clone)]
pub struct QuotaStatuses(pub(super) Quotas);

/// One quota, the usual case, needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Quotas {
    One(QuotaStatus),
    Many(Box<[QuotaStatus]>),
}

impl From<QuotaStatus> for QuotaStatuses {
    fn from(status: QuotaStatus) -> Self {
        Self(Quotas::One(status))
    }
}

/// # Panics
///
/// When there are none: a decision is about at least one quota.
impl From<Vec<QuotaStatus>> for QuotaStatuses {
    fn from(statuses: Vec<QuotaStatus>) -> Self {
        assert!(!statuses.is_empty(), "a decision needs at least one quota");
        Self(Quotas::Many(statuses.into_boxed_slice()))
    }
}

/// How one quota stands after a decision.
///
/// Durations are counted from the decision and kept in microseconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaStatus {
    policy: Policy,
    remaining: Option<u64>,
    reset_after_micros: Option<u64>,
    effective_window_micros: Option<u64>,
    retry_after_micros: Option<u64>,
    denied: bool,
    excess: bool,
}

/// What an algorithm finds out about one quota, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    pub(crate) denied: bool,
    /// `None` unless it was denied and can fit.
    pub(crate) retry_after: Option<u64>,
    pub(crate) remaining: u64,
    pub(crate) reset_after: u64,
    pub(crate) effective_window: u64,
    /// Whether more is used than the nominal limit.
    pub(crate) excess: bool,
}

impl QuotaStatus {
    /// The quota that `policy` describes, of which nothing more is known: not denied, remaining
    /// and times unknown.
    #[must_use]
    pub const fn new(policy: &Policy) -> Self {
        Self {
            policy: *policy,
            remaining: None,
            reset_after_micros: None,
            effective_window_micros: None,
            retry_after_micros: None,
            denied: false,
            excess: false,
        }
    }

    /// Units that are left. Defaults to unknown: the `RateLimit` field is then left out.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: u64) -> Self {
        self.remaining = Some(remaining);
        self
    }

    /// Time until the key is as good as new. Defaults to unknown.
    #[must_use]
    pub const fn with_reset_after(mut self, reset_after: Duration) -> Self {
        self.reset_after_micros = Some(micros_up(reset_after));
        self
    }

    /// The time within which a client can use no more than what remains: the `t` of draft-11.
    /// Defaults to unknown: `t` is then left out.
    #[must_use]
    pub const fn with_effective_window(mut self, window: Duration) -> Self {
        self.effective_window_micros = Some(micros_up(window));
        self
    }

    /// This quota denied, and the same cost passes after `retry_after`; `None` when it never
    /// will, or nobody knows when. No wait at all counts as a microsecond, so that nobody is told
    /// to come back at once.
    #[must_use]
    pub const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.denied = true;
        self.retry_after_micros = match retry_after {
            Some(wait) if wait.is_zero() => Some(1),
            Some(wait) => Some(micros_up(wait)),
            None => None,
        };
        self
    }

    /// The same as the setters say, from an algorithm's nanoseconds.
    #[inline]
    pub(crate) const fn measured(policy: &Policy, measure: &Measure) -> Self {
        Self {
            policy: *policy,
            remaining: Some(measure.remaining),
            reset_after_micros: Some(measure.reset_after.div_ceil(1_000)),
            effective_window_micros: Some(measure.effective_window.div_ceil(1_000)),
            retry_after_micros: match measure.retry_after {
                Some(wait) => Some(wait.div_ceil(1_000)),
                None => None,
            },
            denied: measure.denied,
            excess: measure.excess,
        }
    }

    /// The policy as it was in force for this decision.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.policy.name()
    }

    /// The most units that can be available at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.policy.limit()
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.policy.unit()
    }

    /// Units that are left, `None` where the limiter does not tell.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Time until the key is as good as new, `None` where the limiter does not tell.
    #[must_use]
    pub const fn reset_after(&self) -> Option<Duration> {
        from_micros(self.reset_after_micros)
    }

    /// The wait after which a denied cost passes; `None` for a quota that did not deny, for a
    /// cost that can never fit, and where nobody knows.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        from_micros(self.retry_after_micros)
    }

    /// The time within which a client can use no more than what remains; a denied quota's
    /// [`retry_after`](Self::retry_after).
    #[must_use]
    pub const fn effective_window(&self) -> Option<Duration> {
        match self.retry_after() {
            Some(wait) if self.denied => Some(wait),
            _ => from_micros(self.effective_window_micros),
        }
    }

    /// Whether this quota denied.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        self.denied
    }

    /// Whether more is used than the nominal limit, as [`Quota::soft`](crate::Quota::soft) allows.
    #[must_use]
    pub const fn is_excess(&self) -> bool {
        self.excess
    }

    /// Whether at least 80 % of the limit is used up.
    #[must_use]
    pub const fn is_near_limit(&self) -> bool {
        match self.remaining {
            Some(remaining) => remaining <= self.limit() / 5,
            None => self.denied,
        }
    }

    fn binds_more_than(&self, other: &Self) -> bool {
        if self.denied != other.denied {
            return self.denied;
        }
        if self.denied {
            // Never is longer than any wait.
            let wait = |status: &Self| status.retry_after_micros.unwrap_or(u64::MAX);
            return wait(self) > wait(other);
        }
        let left = |status: &Self| u128::from(status.remaining.unwrap_or(status.limit()));
        left(self) * u128::from(other.limit()) < left(other) * u128::from(self.limit())
    }

    pub(super) fn binding_of(statuses: &[Self]) -> &Self {
        let mut binding = &statuses[0];
        for status in &statuses[1..] {
            if status.binds_more_than(binding) {
                binding = status;
            }
        }
        binding
    }

    /// Makes a denial last this much longer.
    pub(super) fn lengthen(&mut self, jitter: Duration) {
        if let Some(wait) = self.retry_after_micros.as_mut().filter(|_| self.denied) {
            *wait = wait.saturating_add(micros_up(jitter));
        }
    }

    /// Lets all times come nearer; a wait of a denial stays one.
    #[cfg(feature = "redis")]
    pub(super) fn age(&mut self, elapsed: Duration) {
        // Whole microseconds, cut off: no wait is told too short.
        let passed = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let times = [
            (&mut self.retry_after_micros, 1),
            (&mut self.reset_after_micros, 0),
            (&mut self.effective_window_micros, 0),
        ];
        for (time, least) in times {
            *time = time.map(|micros| micros.saturating_sub(passed).max(least));
        }
    }

    /// Takes a denial back that does not count.
    pub(super) fn pardon(&mut self) {
        self.denied = false;
        self.retry_after_micros = None;
    }

    /// Denies for at least `block`, with nothing left, whatever the quota itself says.
    pub(crate) fn block(&mut self, block: Duration) {
        let block = micros_up(block);
        self.remaining = Some(0);
        self.retry_after_micros = match self.retry_after_micros {
            // A cost that can never fit does not fit after the block either.
            None if self.denied => None,
            own => Some(own.unwrap_or(0).max(block)),
        };
        self.denied = true;
    }
}
