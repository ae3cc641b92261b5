//! The limiter that all nodes share: [`RedisLimiter`].

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, RwLock, RwLockReadGuard},
    task::{Context, Poll},
};

use tokio::time::{Instant, timeout_at};

use super::{
    asker::{Asker, Current},
    coalesce::Coalescer,
    deny_cache::{self, DenyCache},
    fallback::Fallback,
    subject::{SubjectName, SubjectNames},
};
use crate::{
    clock::ManualClock,
    decision::Op,
    decision::{Decision, Degradation, Policy},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{
        Limiter, Pending, Tier,
        handle::handle_methods,
        limits::{Chosen, Limits},
    },
    lock::unpoisoned,
    quota::{IntoQuotas, OwnedQuota},
    redis::store::{
        error::{StoreError, StoreErrorKind},
        handle::RedisStore,
        health::StoreHealth,
    },
};

/// A limit that all nodes share, through Redis.
///
/// ```no_run
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, RedisLimiter};
///
/// # fn f() -> Result<(), tower_ratelimit::ConfigError> {
/// let limiter = RedisLimiter::connect("redis://localhost", Quota::per_second(10).burst(20))?;
/// let layer = RateLimitLayer::new(limiter, PeerIp);
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// The server's clock counts, so nodes need not agree about the time, and decisions are those of
/// the [`LocalLimiter`](crate::LocalLimiter) to the microsecond. Each costs one round trip, however
/// many quotas there are, and less where it can be avoided: a client that retries after a denial
/// costs none until its wait is over, requests of one subject that arrive while another one is
/// under way travel together, and so do subjects that wait at the same moment.
///
/// A clone is a handle to the same limiter. See the [guide](crate::guide::redis) for running
/// Redis for rate limits.
#[derive(Clone)]
pub struct RedisLimiter(Arc<Inner>);

struct Inner {
    store: RedisStore,
    name: String,
    /// The default tier's policies, as they were at first.
    policies: Vec<Policy>,
    limits: Mutex<Limits>,
    current: RwLock<Arc<Current>>,
    subjects: SubjectNames,
    coalescer: Coalescer<Asker, Current>,
    denials: Option<Arc<DenyCache>>,
    fallback: Fallback,
}

/// The parts that a limiter is made of.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) fallback: Fallback,
    pub(super) denials: Option<DenyCache>,
    pub(super) test_clock: Option<ManualClock>,
    pub(super) seed: Option<u64>,
}

impl RedisLimiter {
    /// A limiter for `quotas` with the default settings, on the server at `url`.
    ///
    /// Nothing is connected yet: that happens with the first request, so the service starts
    /// whether or not Redis is there. Limiters that should share one connection are made with
    /// [`RedisLimiter::builder`] on one [`RedisStore`].
    ///
    /// # Errors
    ///
    /// When the address is none, see [`RedisStore::connect`], or a quota makes no sense, see
    /// [`Quota::check`](crate::Quota::check).
    pub fn connect(url: &str, quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build(&RedisStore::connect(url)?)
    }

    pub(super) fn from_parts(store: &RedisStore, parts: Parts) -> Self {
        let Parts {
            name,
            limits,
            fallback,
            denials,
            test_clock,
            seed,
        } = parts;
        let denials = denials.map(Arc::new);
        let asker = Asker {
            store: store.clone(),
            denials: denials.clone(),
            test_clock,
        };
        let current = Current::new(store, &name, &limits, 0);
        Self(Arc::new(Inner {
            store: store.clone(),
            policies: limits.default_tier().policies.clone(),
            limits: Mutex::new(limits),
            current: RwLock::new(Arc::new(current)),
            subjects: SubjectNames::new(seed),
            coalescer: Coalescer::new(asker),
            name,
            denials,
            fallback,
        }))
    }

    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones, on this node; other nodes have to be
    /// told, too.
    ///
    /// A changed limit, burst or queue leaves what was counted, at most as much as the new quota
    /// holds, or the largest of another tier that shares the counter. A changed algorithm, period,
    /// number of slices or refill step starts all quotas of this limiter afresh, and ends blocks,
    /// unless its tiers count in the same ways as before: they are counted under other keys, so
    /// nodes that have the new configuration already and nodes that have the old one do not disturb
    /// each other.
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`](crate::Quota::check), or has another
    /// name, or there is none of this name.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let (inner, quota) = (&*self.0, quota.into());
        let mut limits = unpoisoned(inner.limits.lock());
        let mut changed = limits.clone();
        changed.replace(name, &quota)?;
        inner.fallback.set_quota(name, &quota)?;
        let generation = inner.current().generation + 1;
        let current = Current::new(&inner.store, &inner.name, &changed, generation);
        *unpoisoned(inner.current.write()) = Arc::new(current);
        if let Some(denials) = &inner.denials {
            denials.begin(generation);
        }
        *limits = changed;
        Ok(())
    }

    /// How the server is doing, as far as requests have found out.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.0.store.health()
    }

    /// The handle to the server, for further limiters.
    #[must_use]
    pub fn store(&self) -> &RedisStore {
        &self.0.store
    }

    pub(super) fn with_limits<T>(&self, read: impl FnOnce(&Limits) -> T) -> T {
        let limits = unpoisoned(self.0.limits.lock());
        read(&limits)
    }

    /// The denial that is remembered of an operation like this.
    pub(super) fn denial(&self, tier: &Tier, key: &Key, op: &Op) -> Option<Decision> {
        let current = Arc::clone(&self.0.current());
        let chosen = current.plan.choose(tier, op).ok()?;
        let subject = self.0.subjects.of_key(&current.keyspace, key);
        self.0.remembered(&subject, chosen, op)
    }

    fn submit(&self, tier: &Tier, key: &Key, op: Op) -> Result<Pending<RedisFuture>, LimiterError> {
        let inner = &*self.0;
        let current = Arc::clone(&inner.current());
        // A tier that is not known is a mistake, not a failure of the store.
        let chosen = current.plan.choose(tier, &op)?;
        if let Op::Refund(_, Some(receipt)) | Op::Settle(_, receipt) = &op
            && receipt.is_degraded()
            && let Some(decision) =
                inner.give_back(tier, key, op.clone(), &current.policies(chosen))
        {
            return decision.map(|decision| Pending::Ready(Ok(decision)));
        }
        let subject = inner.subjects.of_key(&current.keyspace, key);
        if let Some(denied) = inner.remembered(&subject, chosen, &op) {
            return Ok(Pending::Ready(Ok(denied)));
        }
        inner.fallback.follow(key, &op);
        let question = Question {
            limiter: self.clone(),
            current,
            tier: tier.clone(),
            chosen,
            key: key.clone(),
            op,
        };
        Ok(match inner.store.refusal() {
            Some(error) => Pending::Ready(question.fall_back(error)),
            None => question.ask(subject),
        })
    }
}

/// An operation, kept for the fallback in case that nobody answers.
struct Question {
    limiter: RedisLimiter,
    current: Arc<Current>,
    tier: Tier,
    chosen: Chosen,
    key: Key,
    op: Op,
}

impl Question {
    /// Has the operation done, and waits for the answer no longer than the deadline; not at all
    /// when none is to be expected by then.
    fn ask(self, subject: SubjectName) -> Pending<RedisFuture> {
        let Inner {
            coalescer, store, ..
        } = &*self.limiter.0;
        let (current, op) = (Arc::clone(&self.current), Op::clone(&self.op));
        let deadline = store.deadline();
        let until = Instant::now() + deadline;
        let answer = match coalescer.submit(subject, current, self.chosen, op, until) {
            Ok(answer) => timeout_at(until, answer),
            Err(error) => return Pending::Ready(self.fall_back(error)),
        };
        Pending::Later(RedisFuture(Box::pin(async move {
            let error = match answer.await {
                Ok(Ok(Ok(decision))) => return Ok(decision),
                Ok(Ok(Err(error))) => error,
                Ok(Err(_)) => StoreError::abandoned(),
                Err(_) => StoreError::timeout(deadline),
            };
            self.fall_back(error)
        })))
    }

    fn fall_back(&self, error: StoreError) -> Result<Decision, LimiterError> {
        // A call from outside of a runtime is a mistake, not a failure of the store.
        if error.kind() == StoreErrorKind::NoRuntime {
            return Err(LimiterError::unavailable(error));
        }
        let Inner {
            store, fallback, ..
        } = &*self.limiter.0;
        store.go_without(&error);
        let policies = self.current.policies(self.chosen);
        let op = Op::clone(&self.op);
        let reason = error.degradation();
        let decision = fallback.decide(&self.tier, &self.key, op, &policies, reason);
        decision.unwrap_or_else(|| Err(LimiterError::unavailable(error)))
    }
}

impl Inner {
    /// Gives back what was charged in the server's place.
    fn give_back(
        &self,
        tier: &Tier,
        key: &Key,
        op: Op,
        policies: &[Policy],
    ) -> Option<Result<Decision, LimiterError>> {
        // The server has not counted the charge, for whichever reason.
        let reason = Degradation::GivenUp;
        self.fallback.decide(tier, key, op, policies, reason)
    }

    /// The remembered answer, which needs no server. An operation that gives something back ends
    /// it.
    fn remembered(&self, subject: &SubjectName, tier: Chosen, op: &Op) -> Option<Decision> {
        let denials = self.denials.as_ref()?;
        if deny_cache::may_end_denials(op) {
            denials.forget(subject);
        }
        denials.answer(subject, tier, op, Instant::now().into_std())
    }

    fn current(&self) -> RwLockReadGuard<'_, Arc<Current>> {
        unpoisoned(self.current.read())
    }
}

handle_methods!(RedisLimiter);

impl Limiter for RedisLimiter {
    type Future = RedisFuture;

    fn apply(&self, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.submit(tier, key, op)
            .unwrap_or_else(|error| Pending::Ready(Err(error)))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn blocks(&self) -> bool {
        unpoisoned(self.0.limits.lock()).block_for.is_some()
    }

    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.0).addr())
    }
}

/// The answer of a [`RedisLimiter`], no later than its deadline.
///
/// The operation is on its way already. When this is dropped it is done all the same.
pub struct RedisFuture(Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>);

impl RedisFuture {
    pub(super) fn new(
        answer: impl Future<Output = Result<Decision, LimiterError>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(answer))
    }
}

impl Future for RedisFuture {
    type Output = Result<Decision, LimiterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for RedisFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFuture").finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLimiter")
            .field("name", &self.0.name)
            .field("policies", &self.0.policies)
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}
