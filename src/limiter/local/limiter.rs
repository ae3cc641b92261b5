use std::{collections::TryReserveError, fmt, future::Ready, sync::Arc};

use super::{
    LocalLimiterBuilder,
    hash::KeyHasher,
    table::{MAX_STATE, Table},
};
use crate::{
    algorithm::TokenBucket,
    clock::SharedClock,
    decision::{Decision, Policy, QuotaStatus, Receipt},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{Limiter, Pending},
    op::Op,
    quota::{MAX_REFILL_NANOS, Quota},
};

/// The limiter in this process: exact, bounded in memory, with no background task.
///
/// A clone is a handle to the same counters.
///
/// # Memory
///
/// A table of fixed size, 30 bytes for each of the most keys it is to track, 262,144 unless
/// [`max_keys`](LocalLimiterBuilder::max_keys) says otherwise. Keys themselves are not kept, only a
/// 64-bit tag of their keyed 128-bit hash; the other half of the hash chooses the place. Two given
/// keys are taken for one another with a probability of less than 2^-64, and a client cannot look
/// for such pairs, since the hash is keyed at random.
///
/// A key takes up room only while it has something to remember: once its bucket is full again its
/// entry is free. When more keys are live than fit, the one that is closest to a full bucket is
/// given up, and [`evictions`](Self::evictions) counts it. So a flood of fresh keys cannot push
/// out one that has exhausted a burst of 2 or more. With a burst of 1 every key in use is as
/// exhausted as any other, and a flood beyond `max_keys` does push some out: size the table for
/// the keys that can arrive within one refill.
///
/// # Time
///
/// Valid for 36 years of uptime, and for clocks that step back to 18 years before the start.
#[derive(Clone)]
pub struct LocalLimiter(Arc<Inner>);

struct Inner {
    policies: [Policy; 1],
    bucket: TokenBucket,
    clock: SharedClock,
    hasher: KeyHasher,
    table: Table,
    /// The nanosecond that the table's instant 0 stands for.
    origin: u64,
}

impl LocalLimiter {
    /// A limiter for `quota` with the default settings.
    ///
    /// # Panics
    ///
    /// When the quota makes no sense, with the text of [`Quota::check`].
    #[must_use]
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        match Self::try_new(quota) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// A limiter for `quota` with the default settings.
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`].
    pub fn try_new(quota: Quota) -> Result<Self, ConfigError> {
        Self::builder(quota).build()
    }

    /// Starts to configure a limiter for `quota`.
    pub fn builder(quota: Quota) -> LocalLimiterBuilder {
        LocalLimiterBuilder::new(quota)
    }

    pub(super) fn from_parts(
        quota: &Quota,
        max_keys: usize,
        clock: SharedClock,
    ) -> Result<Self, TryReserveError> {
        // Room for a clock that steps back behind its start.
        let origin = clock.now().as_nanos().saturating_sub(MAX_REFILL_NANOS);
        Ok(Self(Arc::new(Inner {
            policies: [Policy::from(quota)],
            bucket: TokenBucket::new(quota),
            clock,
            hasher: KeyHasher::new(),
            table: Table::try_new(max_keys)?,
            origin,
        })))
    }

    /// Takes `cost` units if they are available.
    #[must_use = "the decision may be a denial"]
    pub fn acquire(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, Op::Acquire(cost))
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] says how many.
    #[must_use = "the decision may be a denial"]
    pub fn acquire_up_to(&self, key: &Key, most: u64) -> Decision {
        self.decide(key, Op::AcquireUpTo(most))
    }

    /// Says what [`acquire`](Self::acquire) would say, and takes nothing.
    #[must_use]
    pub fn peek(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, Op::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion; the outcome is
    /// what [`acquire`](Self::acquire) would have said.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn hit(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, Op::Hit(cost))
    }

    /// Gives back `cost` units. `receipt` is that of the decision that charged them; without one
    /// they count as charged now.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Decision {
        self.decide(key, Op::Refund(cost, receipt))
    }

    /// Forgets the key: it is as good as new.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn reset(&self, key: &Key) -> Decision {
        self.decide(key, Op::Reset)
    }

    /// Keys that have used something that has not come back yet.
    ///
    /// This walks the whole table, about a millisecond for 262,144 keys: something for a metrics
    /// scrape, not for every request.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        let now = self.0.clock.now().as_nanos();
        self.0.table.live_keys(self.0.state_of(now))
    }

    /// Keys that were given up while they still had something to remember, since the start. More
    /// than a few mean that `max_keys` is too small for the traffic, or that somebody floods it.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.0.table.evictions()
    }

    #[inline]
    fn decide(&self, key: &Key, op: Op) -> Decision {
        let Inner { bucket, table, .. } = &*self.0;
        let time = self.0.clock.now();
        let now = time.as_nanos();
        let hash = self.0.hasher.hash(key);
        let step = table.update(hash, self.0.state_of(now), |state| {
            let step = bucket.apply(self.0.nanos_of(state), now, op);
            (step.next.map(|tat| self.0.state_of(tat)), step)
        });

        let status = QuotaStatus::measured(&self.0.policies[0], &step.measure);
        Decision::single(step.charged, Receipt::new(time), status)
    }
}

impl Inner {
    fn state_of(&self, nanos: u64) -> u64 {
        nanos.saturating_sub(self.origin).min(MAX_STATE)
    }

    fn nanos_of(&self, state: u64) -> u64 {
        self.origin.saturating_add(state)
    }
}

impl Limiter for LocalLimiter {
    type Future = Ready<Result<Decision, LimiterError>>;

    #[inline]
    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        Pending::Ready(Ok(self.decide(key, op)))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }
}

impl fmt::Debug for LocalLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLimiter")
            .field("policies", &self.0.policies)
            .field("evictions", &self.evictions())
            .finish_non_exhaustive()
    }
}
