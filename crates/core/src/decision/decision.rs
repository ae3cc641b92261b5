//! The decision: an outcome, the status of each quota, and the parts of several limits.

use std::{
    mem,
    num::NonZeroU8,
    ops::Range,
    slice,
    sync::{Arc, LazyLock},
    time::Duration,
};

use super::{
    CountedBy, Degradation, DenialCause, LONGEST, LimitReceipt, Marks, Outcome, Policy,
    QuotaStatus, REQUEST_TIER, Receipt, Ruling, Status, UNKNOWN, nanos_of, seconds_of, time_of,
    whole_micros,
};
use crate::{
    clock::{OsClock, Timestamp},
    error::LimiterError,
    quota::Priority,
};

/// A limiter's answer: the outcome, and the status of each quota.
///
/// Limiters of your own build one with [`allowed`](Self::allowed) or [`denied`](Self::denied).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    #[doc(hidden)]
    pub quotas: QuotaStatuses,
    /// The ruling of all limits which decided together.
    pub(super) ruling: Ruling,
}

impl Decision {
    /// The request passes, and `charged` units were taken at `at`.
    ///
    /// For a limiter of your own: `quotas` is one [`QuotaStatus`] or a vector of them, in the order of
    /// [`Limiter::policies`](crate::Limiter::policies).
    ///
    /// # Panics
    ///
    /// If the vector is empty: a decision needs at least one quota.
    pub fn allowed(charged: u64, at: Timestamp, quotas: impl Into<QuotaStatuses>) -> Self {
        Self::new(Outcome::Allowed, charged, at, quotas.into())
    }

    /// The request does not pass, as was decided at `at`, and nothing was taken.
    ///
    /// The quotas that deny are those with a [denial](QuotaStatus::with_denial); without one the response
    /// has no `Retry-After`.
    ///
    /// # Panics
    ///
    /// If the vector is empty: a decision needs at least one quota.
    pub fn denied(at: Timestamp, quotas: impl Into<QuotaStatuses>) -> Self {
        Self::new(Outcome::Denied, 0, at, quotas.into())
    }

    /// The request passes without a decision of the limiter: only the policies are known.
    #[doc(hidden)]
    pub fn uncounted(at: Timestamp, policies: &[Policy]) -> Self {
        let mut decision = Self::unmeasured(at, policies);
        decision.ruling.counted_by = CountedBy::Nobody;
        decision
    }

    /// The request passes; the units left are unknown.
    #[doc(hidden)]
    pub fn unmeasured(at: Timestamp, policies: &[Policy]) -> Self {
        let statuses = match policies {
            // A limiter may have no policy; a decision needs at least one.
            [] => QuotaStatuses::from(QuotaStatus::new(&Policy::new("default", 0))),
            [one] => QuotaStatuses::from(QuotaStatus::new(one)),
            several => several
                .iter()
                .map(QuotaStatus::new)
                .collect::<Vec<_>>()
                .into(),
        };
        Self::new(Outcome::Allowed, 0, at, statuses)
    }

    /// A decision by a store. A hit may be charged although it is denied.
    #[inline]
    #[doc(hidden)]
    pub const fn new(
        outcome: Outcome,
        charged: u64,
        charged_at: Timestamp,
        quotas: QuotaStatuses,
    ) -> Self {
        Self::of(Ruling::new(outcome, charged, charged_at), quotas)
    }

    #[inline]
    #[doc(hidden)]
    pub const fn of(ruling: Ruling, quotas: QuotaStatuses) -> Self {
        Self { quotas, ruling }
    }

    /// Moves the decision out from behind a reference. The remainder has lost its quotas and may
    /// only be dropped.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn move_out(&mut self) -> Self {
        Self {
            quotas: mem::replace(&mut self.quotas, QuotaStatuses::NONE),
            ruling: self.ruling,
        }
    }

    /// Whether the request may pass.
    pub const fn outcome(&self) -> Outcome {
        self.ruling.outcome()
    }

    /// Whether the request passes without a wait.
    #[inline]
    #[doc(hidden)]
    pub const fn passes_at_once(&self) -> bool {
        !self.ruling.denied && self.ruling.delay == 0
    }

    /// Whether the request does not pass.
    pub const fn is_denied(&self) -> bool {
        self.ruling.denied
    }

    /// Whether the request passes, now or after a wait.
    pub const fn is_allowed(&self) -> bool {
        !self.is_denied()
    }

    /// The units that were taken: 0 for a denial and for a [`Peek`](crate::decision::Op::Peek), the units that
    /// fitted for [`AcquireUpTo`](crate::decision::Op::AcquireUpTo). Units beyond the capacity of a
    /// [`Hit`](crate::decision::Op::Hit), and beyond the [debt](crate::Quota::debt) of a
    /// [`Spend`](crate::decision::Op::Spend), were not taken.
    ///
    /// Of several limits that were [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all), the least that one of
    /// them took: see [`charged_by_each`](Self::charged_by_each).
    pub const fn charged(&self) -> u64 {
        self.ruling.charged
    }

    /// The units that each limit took, in the order of the limits: one number for each of several limits
    /// that were [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all), otherwise [`charged`](Self::charged).
    ///
    /// A charge in several operations is settled by the sum of these numbers, for each limit by itself:
    /// limits may take different units of one [`Spend`](crate::decision::Op::Spend), and fewer than it requested.
    ///
    /// ```
    /// use tower_ratelimit::{
    ///     Key, Limiter, LocalLimiter, LocalStore, Quota,
    ///     limiter::{Call, Charge, JointLimiter, OpRef},
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = LocalStore::new();
    /// let limiter = |quota| LocalLimiter::builder(quota).build_in(&store);
    /// let requests = limiter(Quota::per_day(10).named("requests"))?;
    /// let tokens = limiter(Quota::per_day(1_000).debt(500).named("tokens"))?;
    /// let both = JointLimiter::new([requests, tokens])?;
    ///
    /// let key = Key::from("alice");
    /// let charge = |limit, op| Charge::new(&key, op).limit(limit);
    /// let each = [charge(0, OpRef::Reserve(1)), charge(1, OpRef::Reserve(900))];
    /// let reserved = both.call(&Call::of(&each)).await?;
    /// assert!(reserved.charged_by_each().eq([1, 900]));
    ///
    /// // A request is a request, and 1,700 tokens were used: 200 are beyond the debt.
    /// let receipt = reserved.receipt();
    /// let each = [charge(0, OpRef::Settle(1, &receipt)), charge(1, OpRef::Settle(1_700, &receipt))];
    /// let settled = both.call(&Call::of(&each)).await?;
    /// assert!(settled.charged_by_each().eq([0, 600]));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn charged_by_each(&self) -> impl ExactSizeIterator<Item = u64> {
        let parts = self.parts();
        parts.map(|part| part.charged())
    }

    /// The time of the decision, by the wall clock: in Redis that of the server. All durations of the
    /// decision count from then on.
    pub fn decided_at(&self) -> Timestamp {
        match self.ruling.counted_by {
            CountedBy::Process => OsClock::wall_of(self.ruling.charged_at),
            CountedBy::Other | CountedBy::Nobody => self.ruling.charged_at,
        }
    }

    /// The receipt that a later refund of these units needs. With several quotas it allocates.
    pub fn receipt(&self) -> Receipt {
        let parts = self.quotas.parts();
        if parts.is_empty() {
            return Receipt::of(&self.ruling, self.quotas.iter());
        }
        let receipts = parts.iter().map(|part| LimitReceipt {
            limit: part.limit,
            receipt: Receipt::of(&part.ruling, part.places().map(|place| self.quota(place))),
        });
        Receipt::of_limits(&self.ruling, receipts)
    }

    /// The status of each quota, in the limiter's order.
    ///
    /// ```
    /// use tower_ratelimit::{Key, LocalLimiter, Quota};
    ///
    /// let limiter = LocalLimiter::new([Quota::per_second(10), Quota::per_day(1_000).named("daily")]);
    /// let decision = limiter.acquire(&Key::from("alice"), 1);
    /// let left = decision.quotas().map(|quota| (quota.name(), quota.remaining()));
    /// assert!(left.eq([("10-per-1s", Some(9)), ("daily", Some(999))]));
    /// ```
    pub fn quotas(
        &self,
    ) -> impl ExactSizeIterator<Item = QuotaStatus<'_>> + DoubleEndedIterator + Clone {
        self.quotas.iter()
    }

    #[inline]
    #[doc(hidden)]
    pub fn statuses(&self) -> &[Status] {
        self.quotas.as_slice()
    }

    /// The binding quota. If quotas denied, it is the denying one with the longest wait; otherwise
    /// the one with the least left in proportion to its limit. The first of equals binds.
    pub fn binding(&self) -> QuotaStatus<'_> {
        self.quotas.quota(self.quotas.binding_place())
    }

    /// The quota at this index.
    #[doc(hidden)]
    pub fn quota(&self, place: usize) -> QuotaStatus<'_> {
        self.quotas.quota(place)
    }

    /// The wait after which a denied request passes if no other request comes: zero if it was
    /// allowed, `None` if it can never fit or the wait is unknown.
    ///
    /// After exactly this wait the same request passes, a microsecond earlier it does not.
    pub fn retry_after(&self) -> Option<Duration> {
        if !self.is_denied() {
            return Some(Duration::ZERO);
        }
        time_of(self.binding_wait())
    }

    /// [`retry_after`](Self::retry_after) of a denial in whole seconds, rounded up, at least 1: the
    /// value of a `Retry-After` field.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let denied = self.is_denied();
        denied.then(|| seconds_of(self.binding_wait())).flatten()
    }

    /// The wait of the binding quota in nanoseconds; may be [`UNKNOWN`].
    #[inline]
    fn binding_wait(&self) -> u64 {
        let binding = self.statuses().get(self.quotas.binding_place());
        binding.map_or(UNKNOWN, |status| status.wait)
    }

    /// Units left of the binding quota; `None` if the limiter does not report them.
    pub fn remaining(&self) -> Option<u64> {
        self.binding().remaining()
    }

    pub(crate) fn violated(&self) -> impl Iterator<Item = &str> + Clone {
        let denied = self.quotas().filter(QuotaStatus::is_denied);
        denied.map(|quota| quota.name())
    }

    /// The time that the request waits in the queue of a
    /// [leaky bucket](crate::quota::Algorithm::LeakyBucket), or waited for a
    /// [denial to end](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait); zero for all other requests.
    pub const fn delay(&self) -> Duration {
        match self.outcome() {
            Outcome::Delayed(wait) => wait,
            Outcome::Allowed | Outcome::Denied => Duration::ZERO,
        }
    }

    /// Whether the request passes although a nominal limit is used up: in the extra share of a
    /// [soft](crate::Quota::soft) quota, or because an
    /// [elastic](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.elastic) layer let it.
    pub fn is_excess(&self) -> bool {
        self.ruling.excess
            || (self.is_allowed()
                && self
                    .statuses()
                    .iter()
                    .any(|status| status.is(Marks::EXCESS)))
    }

    /// Whether the key is blocked because it exceeded its limit earlier, see
    /// [`LocalLimiterBuilder::block_for`](crate::limiter::LocalLimiterBuilder::block_for).
    pub const fn is_blocked(&self) -> bool {
        self.ruling.blocks()
    }

    /// Whether only the [priority](crate::Priority) of the request caused the denial: a critical request of
    /// this cost would pass.
    pub const fn is_shed(&self) -> bool {
        self.ruling.is_shed()
    }

    /// Whether the limiter's fallback decided because its store did not: see
    /// [`OnFailure`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.OnFailure.html).
    pub const fn is_degraded(&self) -> bool {
        self.ruling.degraded.is_some()
    }

    /// The reason why the limiter's store did not decide; `None` if it did.
    pub const fn degraded_by(&self) -> Option<Degradation> {
        self.ruling.degraded
    }

    /// Whether the limiter decided. False if the layer is
    /// [switched off](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.enabled), skipped the request, put it into
    /// [`Tier::UNLIMITED`](crate::limiter::Tier::UNLIMITED), or is in shadow mode and its limiter
    /// failed.
    pub const fn is_counted(&self) -> bool {
        !self.ruling.counted_by.is_nobody()
    }

    /// Whether the limiter allowed the request without a call to its store: with units that this node
    /// has leased, see [`Mode::leased`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/shared/struct.Mode.html#method.leased), or before it reports them to
    /// the store, see [`Mode::eventual`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/shared/struct.Mode.html#method.eventual).
    pub const fn is_leased(&self) -> bool {
        self.ruling.lease.is_some()
    }
}

/// Changes after the limiter decided: by time, leases, waits, blocks and excess.
impl Decision {
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub const fn in_tier(mut self, tier: u16) -> Self {
        self.ruling.tier = tier;
        self
    }

    /// Sets the class of the request, and whether only the class caused a denial.
    #[inline]
    #[doc(hidden)]
    pub fn set_class(&mut self, class: Priority, shed: bool) {
        self.ruling = self.ruling.by_class(shed);
        for quota in self.quotas.as_mut_slice() {
            quota.class = class;
        }
    }

    /// Marks a denial as caused by the class of the request alone.
    #[doc(hidden)]
    #[must_use]
    pub const fn into_shed(mut self) -> Self {
        self.ruling.cause = DenialCause::Class;
        self
    }

    /// Marks the decision as made without the limiter's store.
    #[doc(hidden)]
    #[must_use]
    pub fn into_degraded(mut self, reason: Degradation) -> Self {
        self.ruling.degraded = Some(reason);
        self
    }

    /// Makes the decision one that takes `charged` units of a lease.
    #[doc(hidden)]
    #[must_use]
    pub const fn by_lease(mut self, charged: u64, lease: NonZeroU8) -> Self {
        (self.ruling.charged, self.ruling.lease) = (charged, Some(lease));
        self
    }

    /// Sets the charge to `kept` units, after the others were refunded.
    #[doc(hidden)]
    pub const fn keep_charged(&mut self, kept: u64) {
        self.ruling.charged = kept;
    }

    /// Replaces the numbers of each quota. Denials and waits stay.
    #[doc(hidden)]
    pub fn remeasure(&mut self, statuses: impl Iterator<Item = Status>) {
        let quotas = self.quotas.as_mut_slice().iter_mut();
        quotas
            .zip(statuses)
            .for_each(|(quota, status)| *quota = quota.remeasured(status));
    }

    /// The decision after `elapsed` without another request: all waits are shorter.
    #[doc(hidden)]
    #[must_use]
    pub fn aged(mut self, elapsed: Duration) -> Self {
        let quotas = &mut self.quotas;
        for place in 0..quotas.as_slice().len() {
            let part = quotas.parts().get(quotas.limit_of(place));
            let ruling = part.map_or(&self.ruling, |part| &part.ruling);
            let (at, policy) = (ruling.charged_at.as_nanos(), quotas.policy(place).clone());
            quotas.as_mut_slice()[place].age(&policy, at, elapsed);
        }
        self
    }

    /// Adds the time that the request waited to the delay of an allowed decision.
    #[doc(hidden)]
    #[must_use]
    pub fn delayed_by(mut self, waited: Duration) -> Self {
        if self.is_allowed() && !waited.is_zero() {
            let waited = whole_micros(nanos_of(waited));
            self.ruling.delay = self.ruling.delay.saturating_add(waited).min(LONGEST);
        }
        self
    }

    /// Changes the ruling, and that of each of several limits.
    fn rule(&mut self, change: impl Fn(&mut Ruling)) {
        change(&mut self.ruling);
        let parts = self.quotas.parts_mut().iter_mut();
        parts.for_each(|part| change(&mut part.ruling));
    }

    /// Turns a denial into an allowed decision in excess.
    #[doc(hidden)]
    #[must_use]
    pub fn into_excess(mut self) -> Self {
        self.rule(|ruling| {
            ruling.denied = false;
            ruling.delay = 0;
            ruling.excess = true;
        });
        for quota in self.quotas.as_mut_slice() {
            quota.pardon();
        }
        self
    }

    /// Marks the decision about a request that passes despite a denial: its layer adds the fields to each response.
    #[doc(hidden)]
    pub const fn set_overflow(&mut self) {
        self.ruling.cause = match self.ruling.cause {
            DenialCause::Class => DenialCause::ClassOverflow,
            _ => DenialCause::Overflow,
        };
    }

    /// Whether the layer of the request adds the fields to its response, also to one that denies the request.
    pub(crate) const fn is_overflow(&self) -> bool {
        matches!(
            self.ruling.cause,
            DenialCause::Overflow | DenialCause::ClassOverflow
        )
    }

    /// Turns a denial into a decision that passes, with the numbers of the denial.
    #[doc(hidden)]
    #[must_use]
    pub const fn into_passing(mut self) -> Self {
        self.ruling.denied = false;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn into_blocked(mut self, block: Duration) -> Self {
        self.rule(|ruling| *ruling = ruling.while_blocked(true));
        for quota in self.quotas.as_mut_slice() {
            quota.block(block);
        }
        self
    }

    /// Denies for at least `wait`, by the quota at `place`.
    #[doc(hidden)]
    #[must_use]
    pub fn denied_for(mut self, place: usize, wait: Duration) -> Self {
        self.ruling.denied = true;
        self.ruling.delay = 0;
        self.ruling.charged = 0;
        if !self.is_counted() {
            self.ruling.counted_by = CountedBy::Other;
        }
        self.ruling.lease = None;
        let limit = self.quotas.limit_of(place);
        if let Some(part) = self.quotas.parts_mut().get_mut(limit) {
            part.ruling.denied = true;
        }
        if let Some(quota) = self.quotas.as_mut_slice().get_mut(place) {
            quota.deny_for(wait);
        }
        self
    }

    /// Adds `jitter` to the wait of each quota that denied.
    #[doc(hidden)]
    pub fn lengthen(&mut self, jitter: Duration) {
        if jitter.is_zero() {
            return;
        }
        for quota in self.quotas.as_mut_slice() {
            quota.lengthen(jitter);
        }
    }
}

/// Limits that deny a request without an end of it, among several that decided together.
impl Decision {
    /// The indices of those of the `limits` that deny the request. The quotas of such a limit deny even if the decision
    /// is allowed, because others charged the request.
    #[doc(hidden)]
    pub fn denying(&self, limits: usize) -> impl Iterator<Item = usize> {
        (0..limits).filter(|limit| {
            let statuses = &self.statuses()[self.quotas.places_of(*limit)];
            statuses.iter().any(|status| status.is(Marks::DENIED))
        })
    }

    /// Whether the request passes despite a denial: each of the `limits` that denies may `overflow`, and no key is
    /// blocked.
    #[doc(hidden)]
    pub fn overflows(&self, limits: usize, overflow: impl Fn(usize) -> bool) -> bool {
        let mut denying = self.denying(limits).peekable();
        !self.is_blocked() && denying.peek().is_some() && denying.all(overflow)
    }
}

/// The decision that passed this request, for handlers behind a layer with
/// [`expose_decision`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.expose_decision) or
/// [`overflow`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.overflow). With several layers it is the decision of the innermost. Without one: 500, or `None` for `Option<Decision>`.
///
/// [`Decisions`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/struct.Decisions.html) has its key as well, see
/// [`Exposed::key`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/struct.Exposed.html#method.key).
#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Decision {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "no rate limit decision: the layer needs expose_decision(true)",
        ))
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::OptionalFromRequestParts<S> for Decision {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The status of each quota of a decision; made from one [`QuotaStatus`] or from several.
///
/// One quota, the usual case, is copied without an allocation, and without a reference count if its name is static. The
/// policies of several share one count.
#[derive(Debug, Clone)]
pub struct QuotaStatuses(Parts);

/// One enum, so that the drop of a lone quota compares one byte.
#[derive(Debug, Clone)]
enum Parts {
    /// Nobody reads the numbers.
    None,
    One(Policy, Status),
    Several(Source, Box<[Status]>),
}

#[derive(Debug, Clone)]
enum Source {
    /// One limit, of these quotas.
    Quotas(Arc<[Policy]>),
    /// Several limits that decided together.
    Limits(Box<[Part]>),
}

/// A limit's part of a decision of several limits.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The identity of the limit; 0 if unknown.
    pub limit: u64,
    pub policies: Arc<[Policy]>,
    /// The index of its first quota among those of all limits.
    pub(super) first: usize,
    pub(super) ruling: Ruling,
    /// Why the limit did not answer; the numbers of its quotas are not known then.
    pub error: Option<Arc<LimiterError>>,
}

impl Part {
    /// The indices of its quotas among those of all limits.
    pub(super) fn places(&self) -> Range<usize> {
        self.first..self.first + self.policies.len()
    }
}

impl From<QuotaStatus<'_>> for QuotaStatuses {
    fn from(quota: QuotaStatus<'_>) -> Self {
        Self(Parts::One(quota.policy.clone(), quota.status))
    }
}

/// # Panics
///
/// If the list is empty: a decision needs at least one quota.
impl From<Vec<QuotaStatus<'_>>> for QuotaStatuses {
    fn from(quotas: Vec<QuotaStatus<'_>>) -> Self {
        assert!(!quotas.is_empty(), "a decision needs at least one quota");
        let policies = quotas.iter().map(|quota| quota.policy.clone());
        let statuses = quotas.iter().map(|quota| quota.status);
        let quotas = Source::Quotas(policies.collect());
        Self(Parts::Several(quotas, statuses.collect()))
    }
}

impl QuotaStatuses {
    /// The statuses of a decision whose numbers nobody reads.
    pub(crate) const NONE: Self = Self(Parts::None);

    #[inline]
    #[doc(hidden)]
    pub fn of_one(policy: &Policy, status: Status) -> Self {
        Self(Parts::One(policy.clone(), status))
    }

    /// The statuses of one limit.
    #[inline(always)]
    #[doc(hidden)]
    pub fn of_limit(policies: &Arc<[Policy]>, mut statuses: impl Iterator<Item = Status>) -> Self {
        if let [policy] = &**policies {
            return Self::of_one(policy, statuses.next().expect("every quota has a status"));
        }
        // A loop, because the calls of a collected iterator are not inlined.
        let mut all = Vec::with_capacity(policies.len());
        for status in statuses {
            all.push(status);
        }
        Self::of_several(policies, all)
    }

    /// The statuses of several quotas of one limit.
    #[inline(always)]
    pub(crate) fn of_several(policies: &Arc<[Policy]>, statuses: Vec<Status>) -> Self {
        let quotas = Source::Quotas(Arc::clone(policies));
        Self(Parts::Several(quotas, statuses.into_boxed_slice()))
    }

    #[inline]
    #[doc(hidden)]
    pub fn as_slice(&self) -> &[Status] {
        match &self.0 {
            Parts::None => &[],
            Parts::One(_, status) => slice::from_ref(status),
            Parts::Several(_, statuses) => statuses,
        }
    }

    #[inline]
    #[doc(hidden)]
    pub fn as_mut_slice(&mut self) -> &mut [Status] {
        match &mut self.0 {
            Parts::None => &mut [],
            Parts::One(_, status) => slice::from_mut(status),
            Parts::Several(_, statuses) => statuses,
        }
    }

    /// The parts of several limits; empty if one limit decided alone.
    #[doc(hidden)]
    pub fn policies(&self) -> Arc<[Policy]> {
        match &self.0 {
            Parts::Several(Source::Quotas(policies), _) => Arc::clone(policies),
            _ => self.iter().map(|quota| quota.policy.clone()).collect(),
        }
    }

    #[inline(always)]
    pub(super) fn of_limits(parts: Vec<Part>, statuses: Vec<Status>) -> Self {
        let limits = Source::Limits(parts.into());
        Self(Parts::Several(limits, statuses.into()))
    }

    /// The parts of several limits, and their statuses.
    pub(super) const fn limits_mut(&mut self) -> Option<(&mut [Part], &mut [Status])> {
        match &mut self.0 {
            Parts::Several(Source::Limits(parts), statuses) => Some((parts, statuses)),
            _ => None,
        }
    }

    pub(super) const fn parts(&self) -> &[Part] {
        match &self.0 {
            Parts::Several(Source::Limits(parts), _) => parts,
            _ => &[],
        }
    }

    const fn parts_mut(&mut self) -> &mut [Part] {
        match self.limits_mut() {
            Some((parts, _)) => parts,
            None => &mut [],
        }
    }

    /// The indices of one limit's quotas among those of all limits that decided together.
    #[doc(hidden)]
    pub fn places_of(&self, limit: usize) -> Range<usize> {
        let part = self.parts().get(limit);
        part.map_or(0..self.as_slice().len(), Part::places)
    }

    /// The index of the limit that has the quota at `place`; 0 if one limit decided alone.
    #[doc(hidden)]
    pub fn limit_of(&self, place: usize) -> usize {
        let after = self.parts().partition_point(|part| part.first <= place);
        after.saturating_sub(1)
    }

    fn policy(&self, place: usize) -> &Policy {
        static UNKNOWN: LazyLock<Policy> = LazyLock::new(|| Policy::new("default", 0));
        match &self.0 {
            Parts::None => &UNKNOWN,
            Parts::One(policy, _) => policy,
            Parts::Several(Source::Quotas(policies), _) => &policies[place],
            Parts::Several(Source::Limits(parts), _) => {
                let part = &parts[self.limit_of(place)];
                &part.policies[place - part.first]
            }
        }
    }

    #[doc(hidden)]
    pub fn quota(&self, place: usize) -> QuotaStatus<'_> {
        QuotaStatus {
            policy: self.policy(place),
            status: self
                .as_slice()
                .get(place)
                .copied()
                .unwrap_or(Status::UNKNOWN),
        }
    }

    pub(super) fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = QuotaStatus<'_>> + DoubleEndedIterator + Clone {
        (0..self.as_slice().len()).map(|place| self.quota(place))
    }

    /// Calls `each` with the index, the policy and the numbers of each quota.
    // Loops within each other: an iterator over the limits compares more at each quota.
    #[inline(always)]
    pub(crate) fn for_each<'a>(&'a self, mut each: impl FnMut(usize, &'a Policy, &'a Status)) {
        match &self.0 {
            Parts::None => {}
            Parts::One(policy, status) => each(0, policy, status),
            Parts::Several(Source::Quotas(policies), statuses) => {
                for (place, (policy, status)) in policies.iter().zip(statuses).enumerate() {
                    each(place, policy, status);
                }
            }
            Parts::Several(Source::Limits(parts), statuses) => {
                for part in parts {
                    let own = part.policies.iter().zip(&statuses[part.places()]);
                    for (place, (policy, status)) in (part.first..).zip(own) {
                        each(place, policy, status);
                    }
                }
            }
        }
    }

    /// The index of the binding quota.
    #[inline]
    #[doc(hidden)]
    pub fn binding_place(&self) -> usize {
        if !matches!(self.0, Parts::Several(..)) {
            return 0;
        }
        let mut binding: Option<(usize, &Policy, &Status)> = None;
        self.for_each(|place, policy, status| {
            if binding.is_none_or(|(_, of, other)| status.binds_more_than(policy, (of, other))) {
                binding = Some((place, policy, status));
            }
        });
        binding.map_or(0, |(place, ..)| place)
    }

    /// The status of a single quota, if `policies` is its policy alone.
    #[inline]
    pub(crate) fn alone_of(&self, policies: &[Policy]) -> Option<&Status> {
        match (&self.0, policies) {
            (Parts::One(policy, status), [one]) if policy == one => Some(status),
            _ => None,
        }
    }
}

impl PartialEq for QuotaStatuses {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for QuotaStatuses {}

impl Receipt {
    /// The receipt for the units that a limit charged, which left its quotas in these states.
    #[doc(hidden)]
    pub fn of<'a>(
        ruling: &Ruling,
        mut quotas: impl ExactSizeIterator<Item = QuotaStatus<'a>> + Clone,
    ) -> Self {
        let mut receipt = Self::of_ruling(ruling);
        let is_leased = ruling.lease.is_some();
        let charges = quotas.clone().map(move |quota| quota.charge(is_leased));
        let request = quotas.next().filter(|_| ruling.tier == REQUEST_TIER);
        receipt.request = request.map(|quota| quota.fitted());
        if ruling.charged == 0 {
            return receipt;
        }
        receipt.with_charges(ruling.charged, charges)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Decision, Parts, Source};
    use crate::{Key, LocalLimiter, Quota, decision::policy::Name};

    /// A decision of more than 128 bytes is copied by `memcpy` at each of several moves.
    #[test]
    fn decision_is_short() {
        assert!(size_of::<Decision>() <= 128);
    }

    #[test]
    fn decision_about_several_quotas_holds_one_reference_count() {
        let quotas = [1, 2, 3].map(|limit| Quota::per_day(limit).named_owned(limit.to_string()));
        let limiter = LocalLimiter::new(quotas);
        let first = limiter.acquire(&Key::global(), 1);
        let Parts::Several(Source::Quotas(policies), _) = &first.quotas.0 else {
            panic!("several quotas");
        };
        let counts = Arc::strong_count(policies);
        let second = limiter.acquire(&Key::global(), 1);
        assert_eq!(Arc::strong_count(policies), counts + 1);
        drop((second, limiter));
        assert_eq!(Arc::strong_count(policies), 1);
    }

    #[test]
    fn a_static_name_has_no_reference_count() {
        let name = |decision: Decision| match decision.quotas.0 {
            Parts::One(policy, _) => policy.name,
            _ => panic!("one quota"),
        };
        for quota in [Quota::per_day(1).named("one"), Quota::per_day(1)] {
            let decision = LocalLimiter::new(quota).acquire(&Key::global(), 1);
            assert!(matches!(name(decision), Name::Static(_)));
        }
    }
}
