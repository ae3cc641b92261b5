//! What a limiter answers, and the only place where durations become whole seconds.

use std::{slice, time::Duration};

use crate::{clock::Timestamp, quota::Quota};

/// A quota as the outside world knows it: what the policy header renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Policy {
    name: &'static str,
    limit: u64,
    window: Option<Duration>,
    unit: Unit,
}

/// What a policy counts: the `qu` parameter of `RateLimit-Policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unit {
    /// Requests, or whatever the layer's cost says.
    #[default]
    Requests,
    /// Requests in flight at the same time.
    ConcurrentRequests,
}

impl Policy {
    /// A policy of `limit` units.
    pub const fn new(name: &'static str, limit: u64) -> Self {
        Self {
            name,
            limit,
            window: None,
            unit: Unit::Requests,
        }
    }

    /// The time in which `limit` units become available again. Defaults to none, as for a limit
    /// on concurrency.
    pub const fn with_window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// What is counted. Defaults to [`Unit::Requests`].
    pub const fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The name in headers, problem documents and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The most units that can be available at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time in which [`limit`](Self::limit) units become available again.
    #[must_use]
    pub const fn window(&self) -> Option<Duration> {
        self.window
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }
}

/// The policy of a quota that stands alone: a token bucket promises its burst, and the time it
/// takes to refill it.
impl From<&Quota> for Policy {
    fn from(quota: &Quota) -> Self {
        let refill = quota.interval_nanos().saturating_mul(quota.capacity());
        Self::new(quota.name().unwrap_or("default"), quota.capacity())
            .with_window(Duration::from_nanos(refill))
    }
}

/// Whether a request may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It passes.
    Allowed,
    /// It does not pass.
    Denied,
}

/// Proof of when units were charged, which a refund needs to find them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt {
    charged_at: Timestamp,
}

impl Receipt {
    /// Units that were charged at `charged_at`.
    #[must_use]
    pub const fn new(charged_at: Timestamp) -> Self {
        Self { charged_at }
    }

    /// When the units were charged.
    #[must_use]
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }
}

/// A limiter's answer: the outcome, and how each quota stands.
///
/// Limiters of your own build one with [`allowed`](Self::allowed) or [`denied`](Self::denied).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    outcome: Outcome,
    charged: u64,
    receipt: Receipt,
    quotas: Quotas,
}

/// One quota, the usual case, needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Quotas {
    One(QuotaStatus),
    Many(Box<[QuotaStatus]>),
}

impl Decision {
    /// The request passes, and `charged` units were taken at `receipt`'s time.
    #[must_use]
    pub fn allowed(charged: u64, receipt: Receipt, quotas: impl Into<QuotaStatuses>) -> Self {
        Self::new(Outcome::Allowed, charged, receipt, quotas.into())
    }

    /// The request does not pass, and nothing was taken.
    #[must_use]
    pub fn denied(receipt: Receipt, quotas: impl Into<QuotaStatuses>) -> Self {
        Self::new(Outcome::Denied, 0, receipt, quotas.into())
    }

    /// The answer of a single quota, which may have been charged although it denies: a hit.
    #[inline]
    pub(crate) const fn single(charged: u64, receipt: Receipt, status: QuotaStatus) -> Self {
        Self {
            outcome: if status.denied {
                Outcome::Denied
            } else {
                Outcome::Allowed
            },
            charged,
            receipt,
            quotas: Quotas::One(status),
        }
    }

    fn new(outcome: Outcome, charged: u64, receipt: Receipt, quotas: QuotaStatuses) -> Self {
        Self {
            outcome,
            charged,
            receipt,
            quotas: quotas.0,
        }
    }

    /// Whether the request may pass.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request does not pass.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(self.outcome, Outcome::Denied)
    }

    /// Whether the request passes.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.is_denied()
    }

    /// The units that were taken: 0 for a denial and for a look, what fitted for
    /// [`AcquireUpTo`](crate::Op::AcquireUpTo).
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// What a later refund of these units needs.
    #[must_use]
    pub const fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// How each quota stands, in the order in which they were listed.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaStatus] {
        match &self.quotas {
            Quotas::One(status) => slice::from_ref(status),
            Quotas::Many(statuses) => statuses,
        }
    }

    fn quotas_mut(&mut self) -> &mut [QuotaStatus] {
        match &mut self.quotas {
            Quotas::One(status) => slice::from_mut(status),
            Quotas::Many(statuses) => statuses,
        }
    }

    /// The quota that binds: of those that denied, the one with the longest wait; if none did, the
    /// one with the least left in proportion to its limit. The first listed of equals.
    #[must_use]
    pub fn binding(&self) -> &QuotaStatus {
        match &self.quotas {
            Quotas::One(status) => status,
            Quotas::Many(statuses) => binding_of(statuses),
        }
    }

    /// How long until what was denied would pass if nothing else came: zero when it was allowed,
    /// `None` when it can never fit or the wait is unknown.
    ///
    /// At exactly this time the same request passes, a microsecond earlier it does not.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_denied() {
            self.binding().retry_after()
        } else {
            Some(Duration::ZERO)
        }
    }

    /// [`retry_after`](Self::retry_after) of a denial in whole seconds, rounded up, at least 1:
    /// what a `Retry-After` field says.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let wait = self.retry_after().filter(|_| self.is_denied())?;
        Some(whole_seconds(told_wait(wait)))
    }

    /// Units left of the binding quota, `None` where the limiter does not tell.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.binding().remaining()
    }

    /// Names of the quotas that denied.
    pub(crate) fn violated(&self) -> impl Iterator<Item = &'static str> {
        let denied = self.quotas().iter().filter(|quota| quota.is_denied());
        denied.map(QuotaStatus::name)
    }

    /// Makes everyone who was denied wait this much longer.
    pub(crate) fn lengthen(&mut self, jitter: Duration) {
        for quota in self.quotas_mut().iter_mut().filter(|q| q.is_denied()) {
            quota.retry_after_micros = quota
                .retry_after_micros
                .map(|micros| micros.saturating_add(micros_up(jitter)));
        }
    }
}

/// What an algorithm finds out about one quota, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measure {
    pub(crate) denied: bool,
    pub(crate) remaining: u64,
    pub(crate) reset_after: u64,
    pub(crate) effective_window: u64,
    /// `None` unless it was denied and can fit.
    pub(crate) retry_after: Option<u64>,
}

fn binding_of(statuses: &[QuotaStatus]) -> &QuotaStatus {
    let mut binding = &statuses[0];
    for status in &statuses[1..] {
        if status.binds_more_than(binding) {
            binding = status;
        }
    }
    binding
}

/// How the quotas of a decision stand; made from one [`QuotaStatus`] or from several.
#[derive(Debug, Clone)]
pub struct QuotaStatuses(Quotas);

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
    name: &'static str,
    limit: u64,
    remaining: Option<u64>,
    reset_after_micros: Option<u64>,
    effective_window_micros: Option<u64>,
    retry_after_micros: Option<u64>,
    denied: bool,
}

impl QuotaStatus {
    /// The quota that `policy` describes, of which nothing more is known: not denied, remaining
    /// and times unknown.
    #[must_use]
    pub const fn new(policy: &Policy) -> Self {
        Self {
            name: policy.name,
            limit: policy.limit,
            remaining: None,
            reset_after_micros: None,
            effective_window_micros: None,
            retry_after_micros: None,
            denied: false,
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
    /// will, or nobody knows when.
    #[must_use]
    pub const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.denied = true;
        self.retry_after_micros = match retry_after {
            Some(wait) => Some(micros_up(wait)),
            None => None,
        };
        self
    }

    /// The same as the setters say, from an algorithm's nanoseconds.
    #[inline]
    pub(crate) const fn measured(policy: &Policy, measure: &Measure) -> Self {
        Self {
            name: policy.name,
            limit: policy.limit,
            remaining: Some(measure.remaining),
            reset_after_micros: Some(measure.reset_after.div_ceil(1_000)),
            effective_window_micros: Some(measure.effective_window.div_ceil(1_000)),
            retry_after_micros: match measure.retry_after {
                Some(wait) => Some(wait.div_ceil(1_000)),
                None => None,
            },
            denied: measure.denied,
        }
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The most units that can be available at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
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

    /// Whether at least 80 % of the limit is used up.
    #[must_use]
    pub const fn is_near_limit(&self) -> bool {
        match self.remaining {
            Some(remaining) => remaining <= self.limit / 5,
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
        let left = |status: &Self| u128::from(status.remaining.unwrap_or(status.limit));
        left(self) * u128::from(other.limit) < left(other) * u128::from(self.limit)
    }
}

/// Whole seconds, rounded up: who waits that long does not come too early.
pub(crate) const fn whole_seconds(duration: Duration) -> u64 {
    let partial = duration.subsec_nanos() > 0;
    duration.as_secs().saturating_add(partial as u64)
}

/// A denial's wait as clients are told it: never nothing, so that every field rounds it up to a
/// second at least, and nobody is denied and asked back at once.
pub(crate) fn told_wait(wait: Duration) -> Duration {
    wait.max(Duration::from_micros(1))
}

const fn micros_up(duration: Duration) -> u64 {
    let partial = !duration.subsec_nanos().is_multiple_of(1_000);
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_micros() as u64 + partial as u64)
}

/// `u64::MAX` stands for whatever did not fit, so a wait of `Duration::MAX` stays that long.
const fn from_micros(micros: Option<u64>) -> Option<Duration> {
    match micros {
        Some(u64::MAX) => Some(Duration::MAX),
        Some(micros) => Some(Duration::from_micros(micros)),
        None => None,
    }
}
