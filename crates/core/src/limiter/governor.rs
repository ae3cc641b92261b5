//! Limiters of the `governor` crate.

use std::{borrow::Cow, fmt, hash::Hash, num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    InsufficientCapacity, NotUntil, RateLimiter,
    clock::{Clock, Reference},
    middleware::{RateLimitingMiddleware, StateSnapshot},
    state::{
        StateStore,
        direct::{DirectStateStore, NotKeyed},
        keyed::KeyedStateStore,
    },
};

use super::{
    call::{Call, OpRef},
    limiter::{Facts, Limiter, Never, Pending},
};
use crate::{
    clock::{Clock as _, OsClock, Timestamp},
    decision::Op,
    decision::{Decision, Policy, QuotaStatus},
    error::LimiterError,
    key::Key,
    quota::check_name,
};

/// A [`governor::RateLimiter`] that you already have, with this crate's keys, headers and
/// rejections around it.
///
/// Its store, clock and quota stay as they are, and other code can continue to use it. Pass its quota a
/// second time, since governor has no getter for it. A clone is a handle to the same limiter.
///
/// # Decisions
///
/// Decisions contain the numbers that governor reports:
///
/// | answer | with `NoOpMiddleware`, governor's default | with `StateInformationMiddleware` |
/// |---|---|---|
/// | allowed | the policy | also how much remains |
/// | denied | the wait, and for a cost of 1 that nothing remains | the same |
/// | a cost above the burst | that it can never fit | the same |
///
/// governor does not report the time until the bucket is full, so there is no `reset_after`. The
/// supported operations are [`Op::Acquire`] and [`Op::Reserve`], which are equal here; all others are
/// errors of the kind [`Unsupported`](crate::LimiterErrorKind::Unsupported). So a layer with
/// [`count_if`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.count_if) refunds nothing, an
/// [`elastic`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.elastic) layer charges nothing for excess requests, and both log
/// this when they are built. A [`LocalLimiter`](crate::LocalLimiter) supports all operations.
///
/// # Memory
///
/// A keyed governor keeps each key until `retain_recent` is called. Call it regularly: otherwise
/// clients that vary their key fill the memory.
///
/// # Example
///
/// ```
/// use std::num::NonZeroU32;
///
/// use governor::{
///     Quota, RateLimiter, clock::FakeRelativeClock, middleware::StateInformationMiddleware,
/// };
/// use tower_ratelimit::{Key, limiter::GovernorLimiter};
///
/// let quota = Quota::per_minute(NonZeroU32::MIN.saturating_add(1));
/// let clock = FakeRelativeClock::default();
/// let existing = RateLimiter::hashmap_with_clock(quota, clock)
///     .with_middleware::<StateInformationMiddleware>();
/// let limiter = GovernorLimiter::keyed(existing, quota).named("api");
///
/// let alice = Key::from("alice");
/// assert_eq!(limiter.acquire(&alice, 1).remaining(), Some(1));
/// assert_eq!(limiter.acquire(&alice, 1).remaining(), Some(0));
/// assert_eq!(limiter.acquire(&alice, 1).retry_after_seconds(), Some(30));
/// assert!(limiter.acquire(&Key::from("bob"), 1).is_allowed());
/// ```
#[derive(Clone)]
pub struct GovernorLimiter {
    policies: [Policy; 1],
    quota: governor::Quota,
    backend: Arc<dyn Backend>,
}

impl GovernorLimiter {
    /// A limiter by this crate's [`Key`]s. `quota` is the quota that `limiter` was made with.
    pub fn keyed<S, C, M>(
        limiter: impl Into<Arc<RateLimiter<Key, S, C, M>>>,
        quota: governor::Quota,
    ) -> Self
    where
        S: KeyedStateStore<Key> + Send + Sync + 'static,
        C: Clock + Send + Sync + 'static,
        M: GovernorMiddleware<C::Instant>,
    {
        Self::new(limiter.into(), quota, |limiter, key, cost| {
            limiter.check_key_n(key, cost)
        })
    }

    /// A limiter with its own type of keys, which `key_of` makes from this crate's. `quota` is the quota
    /// that `limiter` was made with.
    ///
    /// A [`Key`] does not contain the value that it was made from; `key_of` works with its
    /// [bytes](Key::as_bytes). Keys with equal results share a bucket.
    pub fn keyed_by<K, S, C, M>(
        limiter: impl Into<Arc<RateLimiter<K, S, C, M>>>,
        quota: governor::Quota,
        key_of: impl Fn(&Key) -> K + Send + Sync + 'static,
    ) -> Self
    where
        K: Hash + Send + Sync + 'static,
        S: KeyedStateStore<K> + Send + Sync + 'static,
        C: Clock + Send + Sync + 'static,
        M: GovernorMiddleware<C::Instant>,
    {
        Self::new(limiter.into(), quota, move |limiter, key, cost| {
            limiter.check_key_n(&key_of(key), cost)
        })
    }

    /// A limiter without keys: all requests share one bucket, whatever the layer's key. `quota` is the
    /// quota that `limiter` was made with.
    pub fn direct<S, C, M>(
        limiter: impl Into<Arc<RateLimiter<NotKeyed, S, C, M>>>,
        quota: governor::Quota,
    ) -> Self
    where
        S: DirectStateStore + Send + Sync + 'static,
        C: Clock + Send + Sync + 'static,
        M: GovernorMiddleware<C::Instant>,
    {
        Self::new(limiter.into(), quota, |limiter, _, cost| {
            limiter.check_n(cost)
        })
    }

    fn new<S, C, M, F>(
        limiter: Arc<RateLimiter<S::Key, S, C, M>>,
        quota: governor::Quota,
        check: F,
    ) -> Self
    where
        S: StateStore,
        C: Clock,
        M: GovernorMiddleware<C::Instant>,
        F: Fn(&RateLimiter<S::Key, S, C, M>, &Key, NonZeroU32) -> Checked<C::Instant, M>,
        Governed<S, C, M, F>: Backend + 'static,
    {
        let start = (OsClock::new().now(), limiter.clock().now());
        Self {
            policies: [policy("default".into(), &quota)],
            quota,
            backend: Arc::new(Governed {
                limiter,
                check,
                start,
            }),
        }
    }

    /// Sets the policy's name in headers, problem documents and metrics. Defaults to `default`.
    ///
    /// The limiter and its decisions own a `String`.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 printable ASCII characters.
    #[track_caller]
    #[must_use]
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        if let Err(error) = check_name(&name) {
            panic!("{error}");
        }
        self.policies = [policy(name, &self.quota)];
        self
    }

    /// Takes `cost` units if they are available, all or nothing. A cost above governor's burst, or above
    /// `u32::MAX`, is always denied.
    #[must_use = "the decision may be a denial"]
    pub fn acquire(&self, key: &Key, cost: u64) -> Decision {
        // governor multiplies before it compares, so a cost far above the burst would overflow.
        let fits = u32::try_from(cost)
            .ok()
            .filter(|units| *units <= self.quota.burst_size().get());
        let (answer, at) = match fits.map(NonZeroU32::new) {
            Some(Some(units)) => self.backend.check(key, units),
            Some(None) => (Ok(None), self.backend.now()),
            None => (Err(None), self.backend.now()),
        };
        let status = QuotaStatus::new(&self.policies[0]);
        match answer {
            Ok(remaining) => Decision::allowed(cost, at, self.with_remaining(status, remaining)),
            // If one unit does not fit, none is left. If several do not fit, the units left are
            // unknown.
            Err(wait) if cost == 1 && wait.is_some() => {
                Decision::denied(at, status.with_remaining(0).with_denial(wait))
            }
            Err(wait) => Decision::denied(at, status.with_denial(wait)),
        }
    }

    fn with_remaining<'a>(
        &self,
        status: QuotaStatus<'a>,
        remaining: Option<u32>,
    ) -> QuotaStatus<'a> {
        match remaining {
            None => status,
            // The window would be the time to the next unit, which governor does not report.
            Some(0) => status.with_remaining(0),
            Some(units) => status
                .with_remaining(u64::from(units))
                .with_effective_window(self.quota.replenish_interval().saturating_mul(units)),
        }
    }
}

/// `burst_size_replenished_in` would wrap around where this saturates.
fn policy(name: Cow<'static, str>, quota: &governor::Quota) -> Policy {
    let burst = quota.burst_size().get();
    Policy::named(name, u64::from(burst))
        .with_window(quota.replenish_interval().saturating_mul(burst))
}

/// A middleware of governor that a [`GovernorLimiter`] supports.
///
/// Implemented for every middleware with the positive outcome `()` or `StateSnapshot` and the negative
/// outcome `NotUntil`, such as governor's `NoOpMiddleware` and `StateInformationMiddleware`.
pub trait GovernorMiddleware<P: Reference>:
    RateLimitingMiddleware<P, PositiveOutcome: sealed::Outcome, NegativeOutcome = NotUntil<P>>
    + Send
    + Sync
    + 'static
{
}

impl<P, M> GovernorMiddleware<P> for M
where
    P: Reference,
    M: RateLimitingMiddleware<P, NegativeOutcome = NotUntil<P>> + Send + Sync + 'static,
    M::PositiveOutcome: sealed::Outcome,
{
}

mod sealed {
    use super::StateSnapshot;

    /// The positive outcome of the middleware.
    pub trait Outcome {
        /// Units left, if the outcome contains them.
        fn remaining(&self) -> Option<u32>;
    }

    impl Outcome for () {
        fn remaining(&self) -> Option<u32> {
            None
        }
    }

    impl Outcome for StateSnapshot {
        fn remaining(&self) -> Option<u32> {
            Some(self.remaining_burst_capacity())
        }
    }
}

/// The answer of governor.
type Checked<P, M> = Result<
    Result<<M as RateLimitingMiddleware<P>>::PositiveOutcome, NotUntil<P>>,
    InsufficientCapacity,
>;

/// The units left of an allowed request, if they are known; the wait of a denied one, if it ever fits.
type Answer = Result<Option<u32>, Option<Duration>>;

/// A governor without its type parameters.
trait Backend: Send + Sync {
    /// Governor's answer, and when it was given.
    fn check(&self, key: &Key, units: NonZeroU32) -> (Answer, Timestamp);

    fn now(&self) -> Timestamp;
}

struct Governed<S: StateStore, C: Clock, M: RateLimitingMiddleware<C::Instant>, F> {
    limiter: Arc<RateLimiter<S::Key, S, C, M>>,
    check: F,
    /// One instant on the wall clock and on governor's clock, whose instants are only comparable.
    start: (Timestamp, C::Instant),
}

impl<S, C, M, F> Governed<S, C, M, F>
where
    S: StateStore,
    C: Clock,
    M: RateLimitingMiddleware<C::Instant>,
{
    fn wall_clock(&self, now: C::Instant) -> Timestamp {
        let (wall, start) = self.start;
        OsClock::wall_of(wall.saturating_add(now.duration_since(start).into()))
    }
}

impl<S, C, M, F> Backend for Governed<S, C, M, F>
where
    S: StateStore + Send + Sync,
    S::Key: Send + Sync,
    C: Clock + Send + Sync,
    M: GovernorMiddleware<C::Instant>,
    F: Fn(&RateLimiter<S::Key, S, C, M>, &Key, NonZeroU32) -> Checked<C::Instant, M> + Send + Sync,
{
    fn check(&self, key: &Key, units: NonZeroU32) -> (Answer, Timestamp) {
        use sealed::Outcome;
        let checked = (self.check)(&self.limiter, key, units);
        let now = self.limiter.clock().now();
        let answer = match checked {
            Ok(Ok(outcome)) => Ok(outcome.remaining()),
            Ok(Err(not_until)) => Err(Some(not_until.wait_time_from(now))),
            Err(InsufficientCapacity(_)) => Err(None),
        };
        (answer, self.wall_clock(now))
    }

    fn now(&self) -> Timestamp {
        self.wall_clock(self.limiter.clock().now())
    }
}

impl Limiter for GovernorLimiter {
    type Future = Never;

    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        Pending::Ready(call.alone().and_then(|(key, op)| match op {
            // governor has no blocks, so a reservation equals an acquisition.
            OpRef::Acquire(cost) | OpRef::Reserve(cost) => Ok(self.acquire(key, cost)),
            OpRef::Deny(_) => Err(unsupported("deny")),
            OpRef::Settle(..) => Err(unsupported("settle")),
            OpRef::Block(_) => Err(unsupported("block")),
            OpRef::AcquireUpTo(_) => Err(unsupported("acquire_up_to")),
            OpRef::Peek(_) => Err(unsupported("peek")),
            OpRef::Hit(_) => Err(unsupported("hit")),
            OpRef::Spend(_) => Err(unsupported("spend")),
            OpRef::Count(_) => Err(unsupported("count")),
            OpRef::Refund(..) => Err(unsupported("refund")),
            OpRef::Reset => Err(unsupported("reset")),
        }))
    }

    fn policies(&self) -> &[Policy] {
        &self.policies
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new().only(&[Op::Acquire(1), Op::Reserve(1)]);
        facts.blocks = false;
        facts.identified_by(&self.backend)
    }
}

fn unsupported(operation: &str) -> LimiterError {
    LimiterError::unsupported(format!(
        "governor has no `{operation}`, only `acquire`; use a `LocalLimiter` where it is needed"
    ))
}

impl fmt::Debug for GovernorLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GovernorLimiter")
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}
