//! The limiter of all nodes: [`SharedLimiter`].

mod maintenance;
mod store_calls;
mod store_request;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    batching::{Batcher, CallWindow as _, NewOp, OpReply},
    deny_cache::DenyCache,
    fallback::Fallback,
    hashed_key_names::{SubjectName, SubjectNames},
    ledger::{Ledger, LocalAnswer},
    mode::{Terms, check_in_store},
    quotas_in_force::CurrentPlan,
    store_backend::{Client, StoreBackend},
};
use tower_ratelimit_core::{
    decision::{Decision, Degradation, Op, Policy, Receipt},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{
        BoxedFuture, Call, ChangingLimits, Charge, Facts, InForce, Internals, Limiter, OpRef,
        Pending,
        tier_set::{Chosen, TierSet},
    },
    lock::unpoisoned,
    quota::OwnedQuota,
};
#[cfg(feature = "redis")]
use tower_ratelimit_core::{limiter::OwnedCharge, quota::IntoQuotas};
#[cfg(feature = "redis")]
pub use tower_ratelimit_store::redis::store::redis_store::RedisStore;
use tower_ratelimit_store::{
    health::StoreHealth,
    single_background_task::Solo,
    stats::{ModeStats, StoreStats},
};

use self::store_calls::StoreCalls;

/// A limit that all nodes share, through a [`Store`](crate::Store) of your own.
///
/// It decides as a [`RedisLimiter`](crate::limiter::RedisLimiter) does and keeps the same values. Operations
/// on one subject that arrive while a call about it is in flight share the next call, and denials
/// are cached, so a store usually has one call about a subject at a time. If the store does not
/// respond within its [deadline](crate::Store::deadline), or fails,
/// [`OnFailure`](crate::fallback::OnFailure) decides. After several failures in a row requests no longer wait
/// for the store, until one of the trials every 250 milliseconds succeeds; both are logged.
///
/// A clone is a handle to the same limiter.
pub struct SharedLimiter<S: StoreBackend>(Arc<Inner<S::Client>>);

#[cfg(feature = "redis")]
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
/// The server's clock counts, so nodes need not agree about the time, and decisions equal those of
/// the [`LocalLimiter`](tower_ratelimit_core::LocalLimiter) to the microsecond. A decision costs one round trip,
/// whatever the number of quotas, and often less. A client that retries after a denial costs none
/// until its wait is over, requests of one subject that arrive while a call about it is in flight
/// share the next call, and so do subjects that wait at the same moment.
///
/// A clone is a handle to the same limiter. See the [guide](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/redis/index.html) for running
/// Redis for rate limits.
pub type RedisLimiter = SharedLimiter<RedisStore>;

#[cfg(feature = "redis")]
impl RedisLimiter {
    /// Creates a limiter for `quotas` with the default settings, on the server at `url`.
    ///
    /// The first request opens the connection, so a service starts even while Redis is down. To
    /// share one connection between limiters, build them with [`RedisLimiter::builder`] on one
    /// [`RedisStore`].
    ///
    /// # Errors
    ///
    /// If the address is not valid, see [`RedisStore::connect`], or a quota is not valid, see
    /// [`Quota::check`](tower_ratelimit_core::Quota::check).
    pub fn connect(url: &str, quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build(&RedisStore::connect(url)?)
    }
}

/// The decision of a [`RedisLimiter`] or a [`SharedLimiter`], ready at its deadline at the latest.
///
/// The operation has already been sent: the store does it even if this future is dropped.
pub type RedisFuture = BoxedFuture;

/// The parts that a builder makes a limiter of.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) limits: TierSet,
    pub(super) fallback: Fallback,
    /// How long a denial stays cached at most; zero if none is cached.
    pub(super) longest_denial: Duration,
    pub(super) seed: Option<u64>,
    pub(super) accounts: Option<Terms>,
}

/// The ledger, the tag of a key in it, and now.
type Here<'l> = (&'l Ledger, u64, Instant);

struct Inner<C: Client> {
    client: Arc<C>,
    name: String,
    /// The default tier's policies when the limiter was built.
    policies: Arc<[Policy]>,
    limits: Mutex<TierSet>,
    current: ChangingLimits<Arc<CurrentPlan>>,
    subjects: SubjectNames,
    batcher: Arc<Batcher<StoreCalls<C>, CurrentPlan>>,
    /// The cached denials, unless the limiter is strict and caches none.
    denials: Option<Arc<DenyCache>>,
    /// The leases, unless the limiter is strict.
    ledger: Option<Arc<Ledger>>,
    maintenance: Solo,
    fallback: Fallback,
    /// Whether another limiter has replaced this one, with other numbers: then receipts do not
    /// refund.
    is_replaced: AtomicBool,
}

impl<S: StoreBackend> SharedLimiter<S> {
    pub(super) fn from_parts(client: S::Client, parts: Parts) -> Self {
        let Parts { limits, seed, .. } = parts;
        let caches = parts.accounts.is_some() || !parts.longest_denial.is_zero();
        let denials = caches.then(|| Arc::new(DenyCache::new()));
        let ledger = parts.accounts.zip(denials.clone());
        let ledger = ledger.map(|(mut terms, denials)| {
            terms.patience = 2 * client.deadline();
            let has_blocks = limits.block_for.is_some();
            Arc::new(Ledger::new(terms, has_blocks, (denials, seed)))
        });
        let client = Arc::new(client);
        let calls = StoreCalls {
            client: Arc::clone(&client),
            denials: denials.clone(),
            longest_denial: parts.longest_denial,
            ledger: ledger.clone(),
        };
        let current = CurrentPlan::new((client.prefix(), &*parts.name), &limits, 0);
        client.prepare(&current.plan);
        if let Some(ledger) = &ledger {
            ledger.begin(0, current.longest_memory());
        }
        Self(Arc::new(Inner {
            client,
            policies: limits.default_tier().policies.clone(),
            limits: Mutex::new(limits),
            current: ChangingLimits::new(Arc::new(current)),
            subjects: SubjectNames::new(seed),
            batcher: Batcher::new(calls),
            name: parts.name,
            denials,
            maintenance: Solo::every(
                ledger
                    .as_deref()
                    .map_or(Duration::MAX, |ledger| ledger.terms.tick()),
            ),
            ledger,
            fallback: parts.fallback,
            is_replaced: AtomicBool::new(false),
        }))
    }

    /// Changes the quota of this name (`default` for a single quota without a name) in the default
    /// tier, for this limiter and all its clones, on this node. Call it on the other nodes, too.
    ///
    /// If the limit, burst, queue or soft share changes, the state of each key stays, up to the
    /// capacity of the new quota or the largest one of another tier that shares the counter. A
    /// raised limit therefore frees no key at once: an empty bucket gets its next unit at the new
    /// rate, and windows and logs have the new limit less the counted units. That is so with
    /// [`OnChange::Fresh`](tower_ratelimit_core::limiter::OnChange::Fresh), too; [`reset`](Self::reset) frees one key.
    ///
    /// If the algorithm, period, number of slices or refill step changes, all quotas of this
    /// limiter start fresh and blocks end, unless the tiers count in the same ways as before. They
    /// count under other keys, so nodes with the new configuration and nodes with the old one do
    /// not disturb each other. A request in flight returns to a bucket no more than its new numbers
    /// could have charged, see [`Receipt`].
    ///
    /// # Errors
    ///
    /// If the quota is not valid, see [`Quota::check`](tower_ratelimit_core::Quota::check), has another name, or
    /// no quota has this name; or if it is a leaky bucket and the limiter is charged together with
    /// others, see [`RateLimitLayer::all`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all).
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let (inner, quota) = (&*self.0, quota.into());
        inner.client.accepts(&quota, &inner.policies)?;
        let mut limits = unpoisoned(inner.limits.lock());
        let mut changed = limits.clone();
        changed.replace(name, &quota)?;
        check_in_store(&changed)?;
        if let Some(ledger) = &inner.ledger {
            ledger.terms.check(&changed)?;
        }
        let policy = changed.policy_name(name);
        inner.fallback.set_quota(policy, &quota)?;
        let generation = inner.current.read().generation + 1;
        let names = (inner.client.prefix(), &*inner.name);
        let current = CurrentPlan::new(names, &changed, generation);
        inner.client.prepare(&current.plan);
        let memory = current.longest_memory();
        inner.current.replace(Arc::new(current));
        if let Some(denials) = &inner.denials {
            denials.begin(generation);
        }
        if let Some(ledger) = &inner.ledger {
            ledger.begin(generation, memory);
        }
        *limits = changed;
        Ok(())
    }

    /// Whether the store works, as shown by this limiter's requests so far.
    pub fn health(&self) -> StoreHealth {
        self.0.client.health()
    }

    /// Counts of this limiter's calls so far, for metrics.
    pub fn stats(&self) -> StoreStats {
        self.0.client.stats()
    }

    /// The store.
    pub fn store(&self) -> &S {
        self.0.client.store()
    }

    pub(super) fn with_limits<T>(&self, read: impl FnOnce(&TierSet) -> T) -> T {
        let limits = unpoisoned(self.0.limits.lock());
        read(&limits)
    }

    /// Counts of decisions on this node and of leased units, see [`Mode`](crate::Mode).
    pub fn mode_stats(&self) -> ModeStats {
        let ledger = self.0.ledger.as_ref();
        ledger.map(|ledger| ledger.stats()).unwrap_or_default()
    }

    /// As [`call`](Limiter::call), for a caller that waits no longer than `within`. After
    /// that time [`OnFailure`](crate::fallback::OnFailure) decides, as it does after the store's
    /// [deadline](tower_ratelimit_store::redis::RedisStoreBuilder::deadline), which stays the longest wait.
    ///
    /// The operation has been sent to the server, which still does it.
    pub fn call_within(&self, within: Duration, call: &Call<'_>) -> Pending<RedisFuture> {
        let charge = match call.one() {
            Ok(charge) => charge,
            Err(error) => return Pending::Ready(Err(error)),
        };
        let inner = &*self.0;
        let changed;
        let current = match inner.current.read() {
            InForce::First(first) => first,
            // Without the lock: a store may change the quota during its call.
            InForce::Current(current) => {
                changed = Arc::clone(&current);
                &changed
            }
        };
        let mut here = None;
        if let Some(ledger) = &inner.ledger {
            let (tag, now) = (ledger.tag(charge.key), Instant::now());
            if let OpRef::Acquire(cost @ 1..) | OpRef::Reserve(cost @ 1..) = charge.op
                && charge.tier.is_default()
                && charge.class.is_critical()
                && let Some(quota) = current.plan.only_bucket()
                && let Some(charged) = ledger.charge((tag, current.generation), cost, now)
            {
                return Pending::Ready(Ok(charged.decision(cost, quota)));
            }
            here = Some((&**ledger, tag, now));
        }
        self.submit(within, *charge, current, here)
            .unwrap_or_else(|error| Pending::Ready(Err(error)))
    }

    /// [`call_within`](Self::call_within) for all but the usual request with a lease, which does not pay for the registers.
    #[inline(never)]
    fn submit(
        &self,
        within: Duration,
        mut charge: Charge<'_>,
        current: &Arc<CurrentPlan>,
        here: Option<Here<'_>>,
    ) -> Result<Pending<RedisFuture>, LimiterError> {
        if charge.op.receipt().is_some() {
            charge.op = self.by_own_receipt(charge.op)?;
        }
        let op = charge.op.to_owned();
        // An unknown tier is a mistake of the caller, not a failure of the store.
        let chosen = current.plan.choose(charge.tier, charge.class, charge.op)?;
        if !chosen.class().is_critical() {
            let check = self.check_mode();
            check.map_err(|error| LimiterError::unsupported(error.to_string()))?;
        }
        if charge.op.receipt().is_some_and(Receipt::is_degraded)
            && let policies = current.policies(chosen)
            // The store has not counted the charge, whatever the reason was.
            && let reason = Degradation::GivenUp
            && let Some(decision) = self.0.fallback.decide(&charge, &policies, reason)
        {
            return decision.map(|decision| Pending::Ready(Ok(decision)));
        }
        if let Some(here) = here
            && let Some(decision) = self.decide_here(here, (current, chosen), charge.key, &op)
        {
            return Ok(Pending::Ready(Ok(decision)));
        }
        let tag = here.map(|(_, tag, _)| tag);
        Ok(self.submit_to_store(within, (&charge, op), (current, chosen), tag))
    }
}

/// A limiter that is charged together with others.
#[cfg(feature = "redis")]
impl<S: StoreBackend> SharedLimiter<S> {
    pub(super) fn client(&self) -> &S::Client {
        &self.0.client
    }

    /// The cached denial of an operation, unless this node holds units for it.
    pub(super) fn denial(&self, charge: &OwnedCharge) -> Option<Decision> {
        let (inner, op) = (&*self.0, &charge.op);
        let current = Arc::clone(&inner.current.read());
        let chosen = current
            .plan
            .choose(&charge.tier, charge.class, op.as_ref())
            .ok()?;
        let ledger = inner.ledger.as_ref();
        let tag = ledger.map(|ledger| ledger.tag(&charge.key));
        if let Some((ledger, tag)) = ledger.zip(tag)
            && ledger.holds(current.measured(tag, chosen), Instant::now())
        {
            return None;
        }
        let subject = inner.subjects.of_key(&current.keyspace, &charge.key);
        inner.cached_denial(&subject.tagged(tag), chosen, op)
    }

    /// Whether this node leases units.
    pub(super) fn has_leases(&self) -> bool {
        self.0.ledger.is_some()
    }

    /// Records that `next` replaces this limiter.
    pub(super) fn set_replacement(&self, next: &Self) {
        let own = self.with_limits(TierSet::clone);
        let charges_alike = next.with_limits(|next| own.charge_like(next));
        self.0.is_replaced.store(!charges_alike, Ordering::Relaxed);
    }
}

impl<S: StoreBackend> SharedLimiter<S> {
    pub(super) fn limit_identity(&self) -> u64 {
        Arc::as_ptr(&self.0).addr() as u64
    }

    /// Replaces a joint receipt by this limiter's share of it. If a limiter with other numbers has
    /// replaced this one, the operation refunds nothing.
    fn by_own_receipt<'a>(&self, op: OpRef<'a>) -> Result<OpRef<'a>, LimiterError> {
        let op = op.of_limit(self.limit_identity())?;
        if !self.0.is_replaced.load(Ordering::Relaxed) {
            return Ok(op);
        }
        Ok(match op {
            OpRef::Refund(_, Some(receipt)) => OpRef::Refund(0, Some(receipt)),
            OpRef::Settle(cost, receipt) => OpRef::Settle(cost.max(receipt.charged()), receipt),
            other => other,
        })
    }

    fn check_mode(&self) -> Result<(), ConfigError> {
        let ledger = self.0.ledger.as_ref();
        ledger.map_or(Ok(()), |ledger| ledger.check_priority())
    }

    /// Decides without a call, if the ledger can.
    fn decide_here(
        &self,
        (ledger, tag, now): Here<'_>,
        (current, chosen): (&Arc<CurrentPlan>, Chosen),
        key: &Key,
        op: &Op,
    ) -> Option<Decision> {
        let measured = current.measured(tag, chosen);
        let place = || Inner::<S::Client>::place(current, key);
        let answer = ledger.decide(measured, op, now, place);
        let decision = match answer {
            LocalAnswer::Decided(decision) if !ledger.terms.is_eventual() => return Some(decision),
            LocalAnswer::Decided(decision) => Some(decision),
            LocalAnswer::Low(decision) => {
                self.0.send_message(measured, place());
                Some(decision)
            }
            LocalAnswer::Ask => None,
        };
        self.0.keep_maintenance(ledger.terms.tick(), now);
        decision
    }
}

impl<C: Client> Inner<C> {
    /// Queues an operation for the store. Its deadline is the store's, even if the caller waits for
    /// a shorter time: queued operations are in the order of their deadlines.
    fn send(
        &self,
        subject: SubjectName,
        plan: Arc<CurrentPlan>,
        (tier, op): (Chosen, Op),
        now: Instant,
    ) -> oneshot::Receiver<OpReply> {
        let op = NewOp {
            is_specialized: self
                .client
                .is_specialized(&plan.plan, tier, &subject, &op, now),
            plan,
            tier,
            op,
        };
        self.batcher.submit(subject, op, now)
    }

    /// The cached denial. An operation that returns units drops it.
    fn cached_denial(&self, subject: &SubjectName, tier: Chosen, op: &Op) -> Option<Decision> {
        let denials = self.denials.as_ref()?;
        let now = Instant::now();
        if op.may_end_denials() {
            denials.forget(subject.tag(), now);
        }
        denials.answer(subject.tag(), tier, op, now)
    }
}

impl<C: Client> Drop for Inner<C> {
    /// Returns all held units if the runtime still runs. Otherwise other nodes get them when the
    /// leases end.
    fn drop(&mut self) {
        let held = self.ledger.as_ref().map(|ledger| ledger.close());
        for (measured, place) in held.into_iter().flatten() {
            self.send_message(measured, place);
        }
    }
}

tower_ratelimit_core::handle_methods!(SharedLimiter<S> where S: StoreBackend);

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl<S: StoreBackend> Limiter for SharedLimiter<S> {
    type Future = RedisFuture;

    fn call(&self, call: &Call<'_>) -> Pending<RedisFuture> {
        self.call_within(Duration::MAX, call)
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn facts(&self) -> Facts {
        let mut facts = self.with_limits(TierSet::facts);
        facts.classes = self.check_mode().and(facts.classes);
        facts.identified_by(&self.0)
    }

    fn boxed(future: RedisFuture) -> BoxedFuture {
        future
    }

    fn internals(&self) -> Option<&dyn Internals> {
        #[cfg(feature = "redis")]
        if let Some(limiter) = (self as &dyn std::any::Any).downcast_ref::<RedisLimiter>() {
            return Some(limiter);
        }
        None
    }
}

impl<S: StoreBackend> Clone for SharedLimiter<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: StoreBackend> fmt::Debug for SharedLimiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter")
            .field("name", &self.0.name)
            .field("policies", &self.0.policies)
            .field("store", &self.0.client)
            .finish_non_exhaustive()
    }
}
