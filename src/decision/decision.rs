//! The decision: an outcome, and the status of each quota.

mod adjustments_by_lease_wait_block;

use std::{num::NonZeroU8, ops::Range, time::Duration};

use super::{
    Degradation, Marks, Policy, QuotaStatus, QuotaStatuses, Receipt, Status,
    rounding::{nanos_of, time_of, whole_micros, whole_seconds},
};
use crate::clock::{OsClock, Timestamp};

/// Whether a request may pass, and after which wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request passes now; its units are charged.
    Allowed,
    /// The request passes after this wait, and its units are charged already. A caller of a limiter with a
    /// [leaky bucket](crate::quota::Algorithm::LeakyBucket) waits that long before it does the work; a layer has
    /// waited when a handler reads the decision.
    Delayed(Duration),
    /// The request does not pass, and nothing was charged, except by a [hit](crate::decision::Op::Hit), a
    /// [spend](crate::decision::Op::Spend) or a [count](crate::decision::Op::Count). [`Decision::retry_after`] is the wait after which it would pass.
    Denied,
}

/// The cause of a denial. One byte, since a decision has no room for two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DenialCause {
    /// The quotas, for any request of this cost.
    Quotas,
    Block,
    /// The quotas, and the request passes nevertheless: its layer adds the fields to each response.
    Overflow,
    /// The quotas, only for the class of the request.
    Class,
    /// The quotas for the class alone, and the request passes nevertheless.
    ClassOverflow,
}

/// The limiter that counted, and with it the clock of the decision's time. One byte, too.
#[derive(Debug, Clone, Copy, Eq)]
pub(super) enum CountedBy {
    /// A limiter in this process, by its clock, which the wall may be ahead of.
    Process,
    /// A store, or a limiter of somebody else, by a wall clock.
    Other,
    /// None: only the policies are known, and the time is the wall's.
    Nobody,
}

impl CountedBy {
    const fn is_nobody(self) -> bool {
        matches!(self, Self::Nobody)
    }
}

/// Decisions with the same numbers are equal, whoever made them.
impl PartialEq for CountedBy {
    fn eq(&self, other: &Self) -> bool {
        self.is_nobody() == other.is_nobody()
    }
}

/// A limiter's answer: the outcome, and the status of each quota.
///
/// Limiters of your own build one with [`allowed`](Self::allowed) or [`denied`](Self::denied).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub(super) quotas: QuotaStatuses,
    /// In nanoseconds; 0 for none.
    pub(super) delay: u64,
    pub(super) charged: u64,
    pub(super) charged_at: Timestamp,
    /// The tier's index among the limiter's tiers.
    pub(super) tier: u16,
    pub(super) denied: bool,
    pub(super) excess: bool,
    pub(super) cause: DenialCause,
    pub(super) degraded: Option<Degradation>,
    pub(super) counted_by: CountedBy,
    pub(super) lease: Option<NonZeroU8>,
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
    pub(crate) fn uncounted(at: Timestamp, policies: &[Policy]) -> Self {
        let mut decision = Self::unmeasured(at, policies);
        decision.counted_by = CountedBy::Nobody;
        decision
    }

    /// The request passes; the units left are unknown.
    pub(crate) fn unmeasured(at: Timestamp, policies: &[Policy]) -> Self {
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

    /// A decision by this crate's limiters. A hit may be charged although it is denied.
    #[inline]
    pub(crate) fn new(
        outcome: Outcome,
        charged: u64,
        charged_at: Timestamp,
        quotas: QuotaStatuses,
    ) -> Self {
        Self {
            quotas,
            delay: match outcome {
                Outcome::Delayed(wait) => whole_micros(nanos_of(wait)),
                Outcome::Allowed | Outcome::Denied => 0,
            },
            charged,
            charged_at,
            tier: 0,
            denied: outcome == Outcome::Denied,
            excess: false,
            cause: DenialCause::Quotas,
            degraded: None,
            counted_by: CountedBy::Other,
            lease: None,
        }
    }

    #[inline]
    pub(crate) const fn by_own_clock(mut self) -> Self {
        self.counted_by = CountedBy::Process;
        self
    }

    /// Moves the decision out from behind a reference. The remainder has lost its quotas and may
    /// only be dropped.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self {
            quotas: self.quotas.take(),
            ..*self
        }
    }

    /// Whether the request may pass.
    pub const fn outcome(&self) -> Outcome {
        match time_of(self.delay) {
            _ if self.denied => Outcome::Denied,
            Some(wait) if !wait.is_zero() => Outcome::Delayed(wait),
            _ => Outcome::Allowed,
        }
    }

    /// Whether the request does not pass.
    pub const fn is_denied(&self) -> bool {
        self.denied
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
    /// Of several limits that were [charged together](crate::RateLimitLayer::all), the least that one of
    /// them took: see [`charged_by_each`](Self::charged_by_each).
    pub const fn charged(&self) -> u64 {
        self.charged
    }

    /// The units that each limit took, in the order of the limits: one number for each of several limits
    /// that were [charged together](crate::RateLimitLayer::all), otherwise [`charged`](Self::charged).
    ///
    /// A charge in several operations is settled by the sum of these numbers, for each limit by itself:
    /// limits may take different units of one [`Spend`](crate::decision::Op::Spend), and fewer than it requested.
    ///
    /// ```
    /// use tower_ratelimit::{
    ///     Key, Limiter, LocalLimiter, LocalStore, Quota,
    ///     decision::Op,
    ///     limiter::{JointLimiter, Tier},
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = LocalStore::new();
    /// let limiter = |quota| LocalLimiter::builder(quota).build_in(&store);
    /// let requests = limiter(Quota::per_day(10).named("requests"))?;
    /// let tokens = limiter(Quota::per_day(1_000).debt(500).named("tokens"))?;
    /// let both = JointLimiter::new([requests, tokens])?;
    ///
    /// let key = Key::joint([Key::from("alice"), Key::from("alice")]);
    /// let each = [Op::Reserve(1), Op::Reserve(900)];
    /// let reserved = both.apply_each(&Tier::DEFAULT, &key, &each).await?;
    /// assert!(reserved.charged_by_each().eq([1, 900]));
    ///
    /// // A request is a request, and 1,700 tokens were used: 200 are beyond the debt.
    /// let receipt = reserved.receipt();
    /// let each = [Op::Settle(1, receipt.clone()), Op::Settle(1_700, receipt)];
    /// let settled = both.apply_each(&Tier::DEFAULT, &key, &each).await?;
    /// assert!(settled.charged_by_each().eq([0, 600]));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn charged_by_each(&self) -> impl ExactSizeIterator<Item = u64> {
        let parts = self.quotas.parts();
        (0..parts.len().max(1))
            .map(|limit| parts.get(limit).map_or(self.charged, |part| part.charged))
    }

    /// The time of the decision, by the wall clock: in Redis that of the server. All durations of the
    /// decision count from then on.
    pub fn decided_at(&self) -> Timestamp {
        match self.counted_by {
            CountedBy::Process => OsClock::wall_of(self.charged_at),
            CountedBy::Other | CountedBy::Nobody => self.charged_at,
        }
    }

    /// The receipt that a later refund of these units needs. With several quotas it allocates.
    pub fn receipt(&self) -> Receipt {
        let receipt = Receipt::new(self.charged_at)
            .in_tier(self.tier)
            .degraded(self.degraded.is_some())
            .leased(self.lease);
        let parts = self.quotas.parts();
        if parts.is_empty() {
            return receipt.for_quotas(self.charged, self.quotas.iter());
        }
        let quotas = |limit| self.places_of(limit).map(|place| self.quotas.quota(place));
        let receipts = parts.iter().enumerate();
        let receipts = receipts.map(|(limit, part)| part.receipt(quotas(limit)));
        receipt.of_limits(self.charged, receipts)
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
    pub(crate) fn statuses(&self) -> &[Status] {
        self.quotas.as_slice()
    }

    /// The binding quota. If quotas denied, it is the denying one with the longest wait; otherwise
    /// the one with the least left in proportion to its limit. The first of equals binds.
    pub fn binding(&self) -> QuotaStatus<'_> {
        self.quotas.quota(self.binding_place())
    }

    /// The quota at this index.
    pub(crate) fn quota(&self, place: usize) -> QuotaStatus<'_> {
        self.quotas.quota(place)
    }

    /// The binding quota's index among the quotas.
    #[inline]
    pub(crate) fn binding_place(&self) -> usize {
        self.quotas.binding_place()
    }

    /// The index of the binding quota, by the units left of the quota at an index, which the caller knows.
    pub(crate) fn binding_place_by(&self, remaining: impl Fn(usize) -> Option<u64>) -> usize {
        self.quotas.binding_place_by(remaining)
    }

    /// The index of the binding limit among those that decided together.
    pub(crate) fn binding_limit(&self) -> usize {
        self.quotas.limit_of(self.binding_place())
    }

    /// The indices of one limit's quotas in a joint decision; those of all quotas if one limit
    /// decided alone.
    pub(crate) fn places_of(&self, limit: usize) -> Range<usize> {
        self.quotas.places_of(limit)
    }

    /// The status of the one quota that `policies` describe, if the decision is about that one.
    #[inline]
    pub(crate) fn status_alone_of(&self, policies: &[Policy]) -> Option<&Status> {
        self.quotas.alone_of(policies)
    }

    /// Whether the decision is about these policies: false after a quota has changed, and for another
    /// tier's quotas.
    #[inline]
    pub(crate) fn is_about(&self, policies: &[Policy]) -> bool {
        self.quotas.are_of(policies)
    }

    /// The wait after which a denied request passes if no other request comes: zero if it was
    /// allowed, `None` if it can never fit or the wait is unknown.
    ///
    /// After exactly this wait the same request passes, a microsecond earlier it does not.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_denied() {
            self.binding().retry_after()
        } else {
            Some(Duration::ZERO)
        }
    }

    /// [`retry_after`](Self::retry_after) of a denial in whole seconds, rounded up, at least 1: the
    /// value of a `Retry-After` field.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let wait = self.retry_after().filter(|_| self.is_denied())?;
        Some(whole_seconds(wait))
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
    /// [denial to end](crate::RateLimitLayer::wait); zero for all other requests.
    pub const fn delay(&self) -> Duration {
        match self.outcome() {
            Outcome::Delayed(wait) => wait,
            Outcome::Allowed | Outcome::Denied => Duration::ZERO,
        }
    }

    /// Whether the request passes although a nominal limit is used up: in the extra share of a
    /// [soft](crate::Quota::soft) quota, or because an
    /// [elastic](crate::RateLimitLayer::elastic) layer let it.
    pub fn is_excess(&self) -> bool {
        self.excess
            || (self.is_allowed()
                && self
                    .statuses()
                    .iter()
                    .any(|status| status.is(Marks::EXCESS)))
    }

    /// Whether the key is blocked because it exceeded its limit earlier, see
    /// [`LocalLimiterBuilder::block_for`](crate::limiter::LocalLimiterBuilder::block_for).
    pub const fn is_blocked(&self) -> bool {
        matches!(self.cause, DenialCause::Block)
    }

    /// Whether only the [priority](crate::Priority) of the request caused the denial: a critical request of
    /// this cost would pass.
    pub const fn is_shed(&self) -> bool {
        self.denied && matches!(self.cause, DenialCause::Class | DenialCause::ClassOverflow)
    }

    /// Whether the limiter's fallback decided because its store did not: see
    /// [`OnFailure`](crate::OnFailure).
    pub const fn is_degraded(&self) -> bool {
        self.degraded.is_some()
    }

    /// The reason why the limiter's store did not decide; `None` if it did.
    pub const fn degraded_by(&self) -> Option<Degradation> {
        self.degraded
    }

    /// Whether the limiter decided. False if the layer is
    /// [switched off](crate::RateLimitLayer::enabled), skipped the request, put it into
    /// [`Tier::UNLIMITED`](crate::limiter::Tier::UNLIMITED), or is in shadow mode and its limiter
    /// failed.
    pub const fn is_counted(&self) -> bool {
        !self.counted_by.is_nobody()
    }

    /// Whether the limiter allowed the request without a call to its store: with units that this node
    /// has leased, see [`Mode::leased`](crate::shared::Mode::leased), or before it reports them to
    /// the store, see [`Mode::eventual`](crate::shared::Mode::eventual).
    #[cfg(feature = "shared")]
    pub const fn is_leased(&self) -> bool {
        self.lease.is_some()
    }
}

/// Limits that deny a request without an end of it, among several that decided together.
#[cfg(feature = "rules")]
impl Decision {
    fn any_of(&self, limit: usize, mark: Marks) -> bool {
        let statuses = &self.statuses()[self.places_of(limit)];
        statuses.iter().any(|status| status.is(mark))
    }

    /// The indices of those of the `limits` that deny the request. The quotas of such a limit deny even if the decision
    /// is allowed, because others charged the request.
    pub(crate) fn denying(&self, limits: usize) -> impl Iterator<Item = usize> {
        (0..limits).filter(|limit| self.any_of(*limit, Marks::DENIED))
    }

    pub(crate) fn is_blocked_by(&self, limit: usize) -> bool {
        self.any_of(limit, Marks::BLOCKED)
    }

    /// Whether the request passes despite a denial: each of the `limits` that denies may `overflow`, and no key is
    /// blocked.
    pub(crate) fn overflows(&self, limits: usize, overflow: impl Fn(usize) -> bool) -> bool {
        let mut denying = self.denying(limits).peekable();
        !self.is_blocked() && denying.peek().is_some() && denying.all(overflow)
    }

    /// Reverts the denials by one of the limits, which charged nothing.
    pub(crate) fn pardon(&mut self, limit: usize) {
        let places = self.places_of(limit);
        for quota in &mut self.quotas.as_mut_slice()[places] {
            quota.pardon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Decision;

    /// A decision of more than 128 bytes is copied by `memcpy` at each of several moves.
    #[test]
    fn decision_is_short() {
        assert!(size_of::<Decision>() <= 128);
    }
}
