//! The limiter of all nodes: [`SharedLimiter`].

use std::{
    fmt,
    iter::repeat_n,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout_at},
};

use super::{
    batching::{BatchCall, Batcher, CallSender, CallWindow as _, NewOp, OpReply, SubjectOps},
    deny_cache::{DenyCache, SentCall, hold_without_lease},
    fallback::Fallback,
    ledger::{AttachedMessage, KeyPlace, Ledger, LocalAnswer},
    mode::{Terms, check_in_store},
    prehashed_key_names::{MeasuredSubject, SubjectName, SubjectNames},
    store_trait::{Client, DecideCall, StoreBackend},
    wire::{
        reply::{LastStates, Run, SubjectResult},
        script_plan::{Plan, ReplyPlan},
    },
};
#[cfg(feature = "redis")]
use tower_ratelimit_core::quota::IntoQuotas;
use tower_ratelimit_core::{
    decision::{Decision, Degradation, Op, Policy, Receipt},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{
        call::{Call, Charge, OpRef, OwnedCharge},
        limiter::{BoxedFuture, Facts, Internals, Limiter, Pending},
        limits_in_force::{ChangingLimits, Chosen, TierSet},
    },
    lock::unpoisoned,
    quota::OwnedQuota,
};
#[cfg(feature = "redis")]
pub use tower_ratelimit_store::redis::RedisStore;
use tower_ratelimit_store::{
    error::{StoreError, StoreErrorKind},
    health::StoreHealth,
    key_name,
    single_background_task::{self, Solo},
    stats::{ModeStats, StoreStats},
};

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

type JointCheck = fn(&TierSet, &[Policy]) -> Result<(), ConfigError>;

/// The ledger, the tag of a key in it, and now.
type Here<'l> = (&'l Ledger, u64, Instant);

struct Inner<C: Client> {
    client: Arc<C>,
    name: String,
    /// The default tier's policies when the limiter was built.
    policies: Arc<[Policy]>,
    limits: Mutex<TierSet>,
    current: ChangingLimits<Arc<Plan>>,
    subjects: SubjectNames,
    batcher: Arc<Batcher<StoreCalls<C>>>,
    /// The cached denials, unless the limiter is strict and caches none.
    denials: Option<Arc<DenyCache>>,
    /// The leases, unless the limiter is strict.
    ledger: Option<Arc<Ledger>>,
    maintenance: Solo,
    fallback: Fallback,
    /// The check of new limits, once the limiter is charged together with others.
    joint_check: OnceLock<JointCheck>,
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
        let current = Plan::in_force((client.prefix(), &*parts.name), &limits, 0);
        client.prepare(&current);
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
            joint_check: OnceLock::new(),
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
        let mut limits = unpoisoned(inner.limits.lock());
        let mut changed = limits.clone();
        changed.replace(name, &quota)?;
        check_in_store(&changed)?;
        if let Some(check) = inner.joint_check.get() {
            check(&changed, &inner.policies)?;
        }
        if let Some(ledger) = &inner.ledger {
            ledger.terms.check(&changed)?;
        }
        let policy = changed.policy_name(name);
        inner.fallback.set_quota(policy, &quota)?;
        let generation = inner.current.read().generation + 1;
        let names = (inner.client.prefix(), &*inner.name);
        let current = Plan::in_force(names, &changed, generation);
        inner.client.prepare(&current);
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
        let current: &Arc<Plan> = &inner.current.read();
        let mut here = None;
        if let Some(ledger) = &inner.ledger {
            let (tag, now) = (ledger.tag(charge.key), Instant::now());
            if let OpRef::Acquire(cost @ 1..) | OpRef::Reserve(cost @ 1..) = charge.op
                && charge.tier.is_default()
                && charge.class.is_critical()
                && let Some(quota) = current.only_bucket()
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
        current: &Arc<Plan>,
        here: Option<Here<'_>>,
    ) -> Result<Pending<RedisFuture>, LimiterError> {
        if charge.op.receipt().is_some() {
            charge.op = self.by_own_receipt(charge.op)?;
        }
        let op = charge.op.to_owned();
        // An unknown tier is a mistake of the caller, not a failure of the store.
        let chosen = current
            .limits
            .choose(charge.tier, charge.class, charge.op)?;
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

    /// Answers with a cached denial, or sends the operation. Compiled apart, so that decisions from a
    /// lease do not pay for its registers.
    #[inline(never)]
    fn submit_to_store(
        &self,
        within: Duration,
        (charge, op): (&Charge<'_>, Op),
        (current, chosen): (&Arc<Plan>, Chosen),
        tag: Option<u64>,
    ) -> Pending<RedisFuture> {
        let (inner, key) = (&*self.0, charge.key);
        let subject = inner.subjects.of_key(&current.keyspace, key).tagged(tag);
        if let Some(denied) = inner.cached_denial(&subject, chosen, &op) {
            return Pending::Ready(Ok(denied));
        }
        inner.fallback.follow(key, &op);
        let (limiter, current) = (self.clone(), Arc::clone(current));
        let (plan, sent_op) = (Arc::clone(&current), Op::clone(&op));
        let charge = OwnedCharge::new(charge, op);
        let fall_back = move |error| limiter.0.fall_back((&current, chosen), &charge, error);
        if let Some(error) = inner.client.refusal(&subject) {
            return Pending::Ready(fall_back(error));
        }
        let Some(runtime) = inner.client.runtime() else {
            return Pending::Ready(fall_back(StoreError::no_runtime()));
        };
        let entered = runtime.enter();
        let (now, within) = (Instant::now(), within.min(inner.client.deadline()));
        let answer = inner.send(subject, plan, (chosen, sent_op), now);
        let answer = timeout_at(now + within, answer);
        drop(entered);
        Pending::Later(Box::pin(async move {
            fall_back(match answer.await {
                Ok(Ok(Ok(decision))) => return Ok(decision),
                Ok(Ok(Err(error))) => error,
                Ok(Err(_)) => StoreError::abandoned(),
                Err(_) => StoreError::timeout(within),
            })
        }))
    }
}

/// A limiter that is charged together with others.
#[cfg(feature = "redis")]
impl<S: StoreBackend> SharedLimiter<S> {
    pub(super) fn join(&self, check: JointCheck) {
        let _ = self.0.joint_check.set(check);
    }

    /// The cached denial of an operation, unless this node holds units for it.
    pub(super) fn denial(&self, charge: &OwnedCharge) -> Option<Decision> {
        let (inner, op) = (&*self.0, &charge.op);
        let current = Arc::clone(&inner.current.read());
        let chosen = current
            .limits
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
        (current, chosen): (&Arc<Plan>, Chosen),
        key: &Key,
        op: &Op,
    ) -> Option<Decision> {
        let measured = current.measured(tag, chosen);
        let place = || key_place(current, key);
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
        plan: Arc<Plan>,
        (tier, op): (Chosen, Op),
        now: Instant,
    ) -> oneshot::Receiver<OpReply> {
        let is_specialized = plan.is_specialized(tier, &op);
        let op = NewOp {
            is_specialized: is_specialized && !self.client.is_complex(&subject, now),
            plan,
            tier,
            op,
        };
        self.batcher.submit(subject, op, now)
    }

    fn fall_back(
        &self,
        (plan, chosen): (&Plan, Chosen),
        charge: &OwnedCharge,
        error: StoreError,
    ) -> Result<Decision, LimiterError> {
        // A call outside a runtime is a mistake of the caller, not a failure of the store.
        if error.kind() == StoreErrorKind::NoRuntime {
            return Err(LimiterError::unavailable(error));
        }
        let error = self.client.record_degraded(error);
        let (policies, reason) = (plan.policies(chosen), error.degradation());
        let decision = (self.fallback).decide(&charge.as_ref(), &policies, reason);
        decision.unwrap_or_else(|| Err(LimiterError::unavailable(error).logged()))
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

    /// Sends the ledger's message about a subject, attached to a peek. Nobody waits for the answer.
    #[cold]
    fn send_message(&self, measured: MeasuredSubject, place: KeyPlace) {
        let Some(runtime) = self.client.runtime() else {
            return;
        };
        let KeyPlace { key, plan } = place;
        let subject = self.subjects.named(&format!("{}{key}", plan.keyspace));
        let subject = subject.tagged(Some(measured.tag));
        if self.client.refusal(&subject).is_some() {
            return;
        }
        let _entered = runtime.enter();
        let op = (measured.chosen, Op::Peek(1));
        drop(self.send(subject, plan, op, Instant::now()));
    }

    /// Starts the task that maintains the leases every `tick`, unless it runs. It ends when the
    /// limiter is dropped.
    fn keep_maintenance(self: &Arc<Self>, tick: Duration, now: Instant) {
        let task = |run: single_background_task::Run| {
            let this = Arc::downgrade(self);
            async move {
                loop {
                    sleep(tick).await;
                    let this = this.upgrade();
                    let now = Instant::now();
                    let Some(this) = this.filter(|_| run.renew(now.into_std())) else {
                        return;
                    };
                    let ledger = this.ledger.as_ref();
                    for (measured, place) in ledger.iter().flat_map(|ledger| ledger.due(now)) {
                        this.send_message(measured, place);
                    }
                }
            }
        };
        let runtime = || self.client.runtime();
        self.maintenance.keep(now.into_std(), runtime, task);
    }
}

/// The name of a key in the store, and its quotas.
#[cold]
fn key_place(plan: &Arc<Plan>, key: &Key) -> KeyPlace {
    let mut name = String::new();
    key_name::push(key, &mut name);
    KeyPlace {
        key: name.into(),
        plan: Arc::clone(plan),
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

/// Sends calls by the quotas in force, and updates denials and ledger by their answers.
struct StoreCalls<C> {
    client: Arc<C>,
    denials: Option<Arc<DenyCache>>,
    /// The longest time that a denial without a lease stays cached.
    longest_denial: Duration,
    ledger: Option<Arc<Ledger>>,
}

impl<C: Client> StoreCalls<C> {
    /// The ledger's message for each subject of a call; an empty list in strict mode.
    fn messages(&self, sent: &BatchCall) -> Vec<AttachedMessage> {
        let Some(ledger) = &self.ledger else {
            return Vec::new();
        };
        let (current, tier) = (&sent.plan, sent.tier);
        let most = current.most_units(tier);
        let message = |ops: &SubjectOps| {
            let place = || KeyPlace {
                key: ops.subject[current.keyspace.len()..].into(),
                plan: Arc::clone(current),
            };
            let takes = ops.most_taken(most);
            let call = sent_call(ops, current, tier, sent.at);
            ledger.message((&call, takes), (place, most))
        };
        sent.subjects.iter().map(message).collect()
    }

    /// Applies the answer about one subject to denials and ledger. `attached` is the message that
    /// the call carried.
    fn apply(
        &self,
        denials: &DenyCache,
        (call, plan): (&SentCall, &Arc<ReplyPlan>),
        attached: &AttachedMessage,
        (runs, answer): (&[(Op, usize)], &mut SubjectResult),
        now: Instant,
    ) {
        let answered = answer.as_ref().ok();
        let hold = answered.and_then(|answered| answered.hold);
        let reply = answered.and_then(|answered| answered.lease.as_deref().copied());
        let last = answered.and_then(|answered| answered.runs.last());
        // The node's own units that the store's decisions count as used.
        let own = match (attached, &self.ledger, &reply) {
            (AttachedMessage::Sent(message), Some(ledger), Some(reply)) => {
                ledger.receive(call, (message, reply), last.map(|last| (plan, last)), now)
            }
            (AttachedMessage::Sent(message), Some(ledger), None) => {
                ledger.lose(call, message, now);
                0
            }
            (AttachedMessage::UnderWay, Some(ledger), _) => ledger.held(call.subject),
            _ => 0,
        };
        let hold = |run: &mut Run| match (attached, &self.ledger, &reply) {
            (AttachedMessage::None, ..) | (_, None, _) => {
                hold_without_lease(&run.decision, hold).min(self.longest_denial)
            }
            (_, Some(ledger), Some(reply)) => ledger.hold(reply, (plan, run)),
            _ => Duration::ZERO,
        };
        let returns = runs.iter().any(|(op, _)| op.may_end_denials());
        match answer {
            Ok(answer) => {
                let held = with_ops(runs, &mut answer.runs).map(|(op, run)| {
                    let hold = hold(run);
                    (op, &run.decision, hold)
                });
                denials.learn(call, held, now);
            }
            // The call may have ended them.
            Err(_) if returns => denials.forget(call.subject.tag, now),
            Err(_) => {}
        }
        if let Some(ledger) = self.ledger.as_ref().filter(|_| returns) {
            ledger.end_pauses(call.subject.tag);
        }
        let runs = answer.as_mut().map(|answer| &mut answer.runs);
        for run in runs.into_iter().flatten() {
            LastStates::give_back(plan, run, own);
        }
    }
}

/// A call about one subject, by these quotas, that leaves after `at`.
fn sent_call(ops: &SubjectOps, current: &Plan, tier: Chosen, at: Instant) -> SentCall {
    let subject = current.measured(ops.subject.tag(), tier);
    SentCall { subject, at }
}

/// The runs of an answer with their operations. Each lies within one run of the call.
fn with_ops<'a>(
    runs: &'a [(Op, usize)],
    answers: &'a mut [Run],
) -> impl Iterator<Item = (&'a Op, &'a mut Run)> {
    let mut ops = runs.iter().flat_map(|(op, count)| repeat_n(op, *count));
    answers.iter_mut().map_while(move |run| {
        let op = ops.next()?;
        ops.by_ref().take(run.count - 1).for_each(drop);
        Some((op, run))
    })
}

impl<C: Client> CallSender for StoreCalls<C> {
    type Window = C;

    fn window(&self) -> &C {
        &self.client
    }

    async fn send(&self, sent: &BatchCall) -> Vec<SubjectResult> {
        let (current, subjects) = (&sent.plan, &*sent.subjects);
        let Some(plan) = current.of(sent.tier) else {
            let error = StoreError::foreign("there is no such tier");
            return subjects.iter().map(|_| Err(error.clone())).collect();
        };
        let messages = self.messages(sent);
        let call = DecideCall {
            sent,
            tier: &plan,
            messages: &messages,
        };
        let mut answers = self.client.decide(call).await;
        // Without cached denials there is no ledger either, and nothing to learn from answers.
        if let Some(denials) = &self.denials {
            let now = Instant::now();
            for (place, (ops, answer)) in subjects.iter().zip(&mut answers).enumerate() {
                let sent = sent_call(ops, current, sent.tier, sent.at);
                let own = (&*ops.runs, answer);
                self.apply(denials, (&sent, &plan.reply), call.message(place), own, now);
            }
        }
        answers
    }
}
