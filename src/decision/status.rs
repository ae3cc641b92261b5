use std::{fmt, time::Duration};

use super::{
    Policy, Unit,
    receipt::Charge,
    round::Micros,
    standing::{Numbers, Standing, Units},
};
use crate::quota::Kind;
#[cfg(feature = "redis")]
use crate::quota::MAX_REFILL_NANOS;

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
#[derive(Clone, Copy)]
pub struct QuotaStatus {
    policy: Policy,
    standing: Standing,
    retry_after: Option<Micros>,
    /// How the quota counts; the default for one that is not this crate's.
    kind: Kind,
    denied: bool,
    excess: bool,
    /// Whether a block leaves nothing, whatever the quota says.
    blocked: bool,
}

/// What an algorithm finds out about one quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) kind: Kind,
    pub(crate) denied: bool,
    /// In nanoseconds; `None` unless it was denied and can fit.
    pub(crate) retry_after: Option<u64>,
    pub(crate) standing: Standing,
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
            standing: Standing::UNKNOWN,
            retry_after: None,
            kind: Kind::NONE,
            denied: false,
            excess: false,
            blocked: false,
        }
    }

    /// Units that are left. Defaults to unknown: the `RateLimit` field is then left out.
    #[must_use]
    pub fn with_remaining(self, remaining: u64) -> Self {
        self.with_numbers(Numbers {
            remaining: Some(Units::new(remaining)),
            ..self.numbers()
        })
    }

    /// Time until the key is as good as new. Defaults to unknown.
    #[must_use]
    pub fn with_reset_after(self, reset_after: Duration) -> Self {
        self.with_numbers(Numbers {
            reset_after: Some(Micros::from_duration(reset_after)),
            ..self.numbers()
        })
    }

    /// The time within which a client can use no more than what remains: the `t` of draft-11.
    /// Defaults to unknown: `t` is then left out.
    #[must_use]
    pub fn with_effective_window(self, window: Duration) -> Self {
        self.with_numbers(Numbers {
            effective_window: Some(Micros::from_duration(window)),
            ..self.numbers()
        })
    }

    fn numbers(&self) -> Numbers {
        let numbers = self.standing.numbers(&self.policy);
        if self.blocked {
            return Numbers {
                remaining: Some(Units::new(0)),
                ..numbers
            };
        }
        numbers
    }

    const fn with_numbers(mut self, numbers: Numbers) -> Self {
        self.standing = Standing::Numbers(numbers);
        self
    }

    /// This quota denied, and the same cost passes after `retry_after`; `None` when it never
    /// will, or nobody knows when. No wait at all counts as a microsecond, so that nobody is told
    /// to come back at once.
    #[must_use]
    pub const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.denied = true;
        self.retry_after = match retry_after {
            Some(wait) if wait.is_zero() => Some(Micros::new(1)),
            Some(wait) => Some(Micros::from_duration(wait)),
            None => None,
        };
        self
    }

    /// The same as the setters say, from what an algorithm found out.
    #[inline]
    pub(crate) const fn measured(policy: &Policy, measure: &Measure) -> Self {
        Self {
            policy: *policy,
            standing: measure.standing,
            retry_after: match measure.retry_after {
                Some(wait) => Some(Micros::from_nanos(wait)),
                None => None,
            },
            kind: measure.kind,
            denied: measure.denied,
            excess: measure.excess,
            blocked: false,
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
    pub fn remaining(&self) -> Option<u64> {
        self.numbers().remaining.map(Units::get)
    }

    /// Time until the key is as good as new, `None` where the limiter does not tell.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        duration(self.numbers().reset_after)
    }

    /// The wait after which a denied cost passes; `None` for a quota that did not deny, for a
    /// cost that can never fit, and where nobody knows.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        duration(self.retry_after)
    }

    /// The time within which a client can use no more than what remains; a denied quota's
    /// [`retry_after`](Self::retry_after).
    #[must_use]
    pub fn effective_window(&self) -> Option<Duration> {
        match self.retry_after() {
            Some(wait) if self.denied => Some(wait),
            _ => duration(self.numbers().effective_window),
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
    pub fn is_near_limit(&self) -> bool {
        match self.remaining() {
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
            return match (self.retry_after, other.retry_after) {
                (own, Some(other)) => own.is_none_or(|own| own > other),
                (_, None) => false,
            };
        }
        let left = |status: &Self| u128::from(status.remaining().unwrap_or(status.limit()));
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
        if let Some(wait) = self.retry_after.as_mut().filter(|_| self.denied) {
            *wait = wait.saturating_add(Micros::from_duration(jitter));
        }
    }

    /// Takes `units` off the level, if there is one.
    #[cfg(feature = "redis")]
    pub(super) fn lower(&mut self, units: u64) {
        // Where nothing is taken, a larger quota that shares the bucket may have gone beyond the nominal
        // limit, which is no excess of this one.
        if units == 0 {
            return;
        }
        if let Standing::Level(level) = &mut self.standing {
            let used = level
                .used
                .saturating_add(units.saturating_mul(level.interval));
            level.used = used.min(MAX_REFILL_NANOS);
            self.excess = level.is_excess();
        }
    }

    /// Lets all times come nearer; a wait of a denial stays one.
    pub(super) fn age(&mut self, elapsed: Duration) {
        // Whole microseconds, cut off: no wait is told too short.
        let passed = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.standing = self.standing.aged(passed);
        self.retry_after = self.retry_after.map(|wait| wait.less(passed, 1));
    }

    /// The counter that a charge at `now`, in nanoseconds, was made to, if it left the quota like this.
    pub(super) fn charge(&self, now: u64) -> Charge {
        let (end, interval) = self.standing.end(&self.policy, now).unwrap_or_default();
        Charge {
            kind: self.kind,
            end,
            interval,
        }
    }

    /// The least time, from the decision that this is part of, until `behind` more units have passed
    /// after the `head` units that it is about, if nothing else comes.
    pub(crate) fn wait_behind(&self, head: u64, behind: u64) -> Duration {
        if self.denied {
            let first = self.retry_after().unwrap_or_default();
            return first.saturating_add(self.standing.time_of(&self.policy, head, behind));
        }
        // Of a soft quota nobody but the limiter knows how much more passes.
        if self.policy.is_soft() {
            return Duration::ZERO;
        }
        self.standing.time_until(head.saturating_add(behind))
    }

    /// Denies for at least `wait`.
    pub(super) fn deny_for(&mut self, wait: Duration) {
        let wait = Micros::from_duration(wait).max(Micros::new(1));
        self.retry_after = match self.retry_after {
            // It never passes.
            None if self.denied => None,
            own => Some(own.map_or(wait, |own| own.max(wait))),
        };
        self.denied = true;
    }

    /// Takes a denial back that does not count.
    pub(super) fn pardon(&mut self) {
        self.denied = false;
        self.retry_after = None;
    }

    /// Denies for at least `block`, with nothing left, whatever the quota itself says.
    pub(crate) fn block(&mut self, block: Duration) {
        let block = Micros::from_duration(block);
        self.blocked = true;
        self.retry_after = match self.retry_after {
            // A cost that can never fit does not fit after the block either.
            None if self.denied => None,
            own => Some(own.map_or(block, |own| own.max(block))),
        };
        self.denied = true;
    }
}

/// Equal when they report the same.
impl PartialEq for QuotaStatus {
    fn eq(&self, other: &Self) -> bool {
        let told = |status: &Self| {
            let Self {
                policy,
                retry_after,
                denied,
                excess,
                ..
            } = *status;
            (policy, status.numbers(), retry_after, denied, excess)
        };
        told(self) == told(other)
    }
}

impl Eq for QuotaStatus {}

impl fmt::Debug for QuotaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaStatus")
            .field("policy", &self.policy)
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("retry_after", &self.retry_after())
            .field("effective_window", &self.effective_window())
            .field("denied", &self.denied)
            .field("excess", &self.excess)
            .finish_non_exhaustive()
    }
}

const fn duration(micros: Option<Micros>) -> Option<Duration> {
    match micros {
        Some(micros) => Some(micros.duration()),
        None => None,
    }
}
