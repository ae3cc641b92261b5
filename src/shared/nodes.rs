//! The limiter of all nodes, on whichever store.

mod receipts;
mod tell;

use std::{
    fmt,
    sync::{
        Arc, Mutex, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{
    answer::RedisFuture,
    asker::{Asker, Current},
    coalesce::Coalescer,
    deny_cache::{self, DenyCache},
    fallback::Fallback,
    keeper::LeaseKeeper,
    ledger::{LeaseHolder, Ledger, LocalAnswer},
    mode::{LeaseTerms, ModeStats},
    nodes_store::NodesStore,
    rare_values::RareValues,
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
        limits::{Chosen, Limits},
    },
    lock::unpoisoned,
    quota::OwnedQuota,
    redis::store::error::{StoreError, StoreErrorKind},
};

/// The limiter of all nodes, on whichever store.
#[derive(Clone)]
pub(super) struct NodesLimiter(Arc<Inner>);

struct Inner {
    store: NodesStore,
    name: String,
    /// The default tier's policies, as they were at first.
    policies: Vec<Policy>,
    limits: Mutex<Limits>,
    current: RwLock<Arc<Current>>,
    subjects: SubjectNames,
    coalescer: Coalescer<Asker, Current>,
    denials: Option<Arc<DenyCache>>,
    /// The leases, unless the limiter is strict.
    ledger: Option<Arc<Ledger<Current>>>,
    keeper: LeaseKeeper,
    fallback: Fallback,
    /// Whether it is charged together with others.
    is_in_list: AtomicBool,
    /// Whether another limiter counts in its place, by numbers that could not have charged what its
    /// receipts say.
    is_replaced: AtomicBool,
}

/// The parts that a limiter is made of.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) fallback: Fallback,
    pub(super) denials: Option<DenyCache>,
    pub(super) test_clock: Option<ManualClock>,
    pub(super) seed: Option<u64>,
    pub(super) leases: Option<LeaseTerms>,
}

impl NodesLimiter {
    pub(super) fn from_parts(store: &NodesStore, parts: Parts) -> Self {
        let Parts {
            name,
            limits,
            fallback,
            denials,
            test_clock,
            seed,
            leases,
        } = parts;
        let denials = denials.map(Arc::new);
        let ledger = |terms| Ledger::new(terms, limits.block_for.is_some(), store.deadline(), seed);
        let ledger = leases.map(ledger).map(Arc::new);
        let asker = Asker {
            store: store.clone(),
            denials: denials.clone(),
            test_clock,
            ledger: ledger.clone(),
            rare_values: RareValues::new(Instant::now().into_std()),
        };
        let current = Current::new(store, &name, &limits, 0);
        if let Some(ledger) = &ledger {
            ledger.begin(0, current.longest_memory());
        }
        Self(Arc::new(Inner {
            store: store.clone(),
            policies: limits.default_tier().policies.clone(),
            limits: Mutex::new(limits),
            current: RwLock::new(Arc::new(current)),
            subjects: SubjectNames::new(seed),
            coalescer: Coalescer::new(asker),
            name,
            denials,
            ledger,
            keeper: LeaseKeeper::new(),
            fallback,
            is_in_list: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
        }))
    }

    pub(super) fn set_quota(
        &self,
        name: &str,
        quota: impl Into<OwnedQuota>,
    ) -> Result<(), ConfigError> {
        let (inner, quota) = (&*self.0, quota.into());
        let mut limits = unpoisoned(inner.limits.lock());
        let mut changed = limits.clone();
        changed.replace(name, &quota)?;
        if let Some(ledger) = &inner.ledger {
            ledger.check(&changed)?;
        }
        inner.fallback.set_quota(name, &quota)?;
        let generation = inner.current().generation + 1;
        let current = Current::new(&inner.store, &inner.name, &changed, generation);
        let memory = current.longest_memory();
        *unpoisoned(inner.current.write()) = Arc::new(current);
        if let Some(denials) = &inner.denials {
            denials.begin(generation);
        }
        if let Some(ledger) = &inner.ledger {
            ledger.begin(generation, memory);
        }
        *limits = changed;
        Ok(())
    }

    /// It is charged together with others from now on.
    pub(super) fn take_into_list(&self) {
        self.0.is_in_list.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_in_list(&self) -> bool {
        self.0.is_in_list.load(Ordering::Relaxed)
    }

    pub(super) fn store(&self) -> &NodesStore {
        &self.0.store
    }

    pub(super) fn with_limits<T>(&self, read: impl FnOnce(&Limits) -> T) -> T {
        let limits = unpoisoned(self.0.limits.lock());
        read(&limits)
    }

    pub(super) fn mode_stats(&self) -> ModeStats {
        let ledger = self.0.ledger.as_ref();
        ledger.map(|ledger| ledger.stats()).unwrap_or_default()
    }

    /// The denial that is remembered of an operation like this.
    pub(super) fn denial(&self, tier: &Tier, key: &Key, op: &Op) -> Option<Decision> {
        let current = Arc::clone(&self.0.current());
        let chosen = current.plan.choose(tier, op).ok()?;
        if let Some(ledger) = &self.0.ledger {
            let holder = LeaseHolder {
                tag: ledger.tag(key),
                chosen,
                generation: current.generation,
            };
            if let Some(denied) = ledger.denial(holder, op, Instant::now()) {
                return Some(denied);
            }
        }
        let subject = self.0.subjects.of_key(&current.keyspace, key);
        self.0.remembered(&subject, chosen, op)
    }

    /// Whether this node holds units that it spends by itself.
    pub(super) fn has_leases(&self) -> bool {
        self.0.ledger.is_some()
    }

    pub(super) fn submit(
        &self,
        within: Duration,
        tier: &Tier,
        key: &Key,
        op: Op,
    ) -> Result<Pending<RedisFuture>, LimiterError> {
        let op = self.by_own_receipt(op)?;
        let inner = &*self.0;
        // Not under its lock: a store may change the quota within the call.
        let current = Arc::clone(&inner.current());
        // A tier that is not known is a mistake, not a failure of the store.
        let chosen = current.plan.choose(tier, &op)?;
        if let Op::Refund(_, Some(receipt)) | Op::Settle(_, receipt) = &op
            && receipt.is_degraded()
            && let Some(decision) = inner.give_back(tier, key, &op, &current.policies(chosen))
        {
            return decision.map(|decision| Pending::Ready(Ok(decision)));
        }
        let tag = inner.ledger.as_ref().map_or(0, |ledger| ledger.tag(key));
        if let Some(decision) = self.decide_here(tag, (&current, chosen), key, &op) {
            return Ok(Pending::Ready(Ok(decision)));
        }
        let subject = inner.subjects.of_key(&current.keyspace, key).tagged(tag);
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
        Ok(match inner.store.refusal(&subject) {
            Some(error) => Pending::Ready(question.fall_back(error)),
            None => question.ask(subject, within),
        })
    }
}

impl NodesLimiter {
    /// Decides from what this node has leased, if that is enough.
    #[inline]
    fn decide_here(
        &self,
        tag: u64,
        (current, chosen): (&Arc<Current>, Chosen),
        key: &Key,
        op: &Op,
    ) -> Option<Decision> {
        let ledger = self.0.ledger.as_ref()?;
        let holder = LeaseHolder {
            tag,
            chosen,
            generation: current.generation,
        };
        let now = Instant::now();
        let answer = match ledger.ahead() {
            None => ledger.decide(holder, op, now),
            Some(terms) => {
                let start = || self.0.start(ledger, (current, holder), key, now);
                ledger.decide_ahead((holder, terms), op, now, start)
            }
        };
        let decision = match answer {
            LocalAnswer::Decided(decision) if ledger.ahead().is_none() => return Some(decision),
            LocalAnswer::Decided(decision) => Some(decision),
            LocalAnswer::Low(decision) => {
                self.0.ask_for_more(Arc::clone(current), key, holder);
                Some(decision)
            }
            LocalAnswer::Ask => None,
        };
        let tick = (ledger.tick(), now);
        let keeper = &self.0.keeper;
        keeper.keep(&self.0, tick, || self.0.store.runtime(), Inner::look);
        decision
    }
}

/// An operation, kept for the fallback in case that nobody answers.
struct Question {
    limiter: NodesLimiter,
    current: Arc<Current>,
    tier: Tier,
    chosen: Chosen,
    key: Key,
    op: Op,
}

impl Question {
    /// Has the operation done, and waits for the answer no longer than the deadline, nor than the caller does; not at
    /// all when none is to be expected by the deadline.
    fn ask(self, subject: SubjectName, within: Duration) -> Pending<RedisFuture> {
        let Inner {
            coalescer, store, ..
        } = &*self.limiter.0;
        let Some(runtime) = store.runtime() else {
            return Pending::Ready(self.fall_back(StoreError::no_runtime()));
        };
        let entered = runtime.enter();
        let (current, op) = (Arc::clone(&self.current), Op::clone(&self.op));
        let deadline = store.deadline();
        let (now, within) = (Instant::now(), within.min(deadline));
        // Operations wait in the order of their deadlines, so one whose caller gives up early keeps its own.
        let until = now + deadline;
        let answer = match coalescer.submit(subject, current, self.chosen, op, until) {
            Ok(answer) => timeout_at(now + within, answer),
            Err(error) => return Pending::Ready(self.fall_back(error)),
        };
        drop(entered);
        Pending::Later(RedisFuture::new(async move {
            let error = match answer.await {
                Ok(Ok(Ok(decision))) => return Ok(decision),
                Ok(Ok(Err(error))) => error,
                Ok(Err(_)) => StoreError::abandoned(),
                Err(_) => StoreError::timeout(within),
            };
            self.fall_back(error)
        }))
    }

    fn fall_back(&self, error: StoreError) -> Result<Decision, LimiterError> {
        // A call from outside of a runtime is a mistake, not a failure of the store.
        if error.kind() == StoreErrorKind::NoRuntime {
            return Err(LimiterError::unavailable(error));
        }
        let Inner {
            store, fallback, ..
        } = &*self.limiter.0;
        let error = store.go_without(error);
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
        op: &Op,
        policies: &[Policy],
    ) -> Option<Result<Decision, LimiterError>> {
        let op = Op::clone(op);
        // The server has not counted the charge, for whichever reason.
        let reason = Degradation::GivenUp;
        self.fallback.decide(tier, key, op, policies, reason)
    }

    /// The remembered answer, which needs no server. An operation that gives something back ends
    /// it.
    fn remembered(&self, subject: &SubjectName, tier: Chosen, op: &Op) -> Option<Decision> {
        let denials = self.denials.as_ref()?;
        let now = Instant::now().into_std();
        if deny_cache::may_end_denials(op) {
            denials.forget(subject, now);
        }
        denials.answer(subject, tier, op, now)
    }

    fn current(&self) -> RwLockReadGuard<'_, Arc<Current>> {
        unpoisoned(self.current.read())
    }
}

impl Drop for Inner {
    /// Gives back all units that are held, if the runtime goes on; others get them when the leases
    /// end.
    fn drop(&mut self) {
        let held = self.ledger.as_ref().map(|ledger| ledger.close());
        for (holder, place) in held.into_iter().flatten() {
            self.tell(holder.chosen, place);
        }
    }
}

impl NodesLimiter {
    /// Adds all that is told of a limiter but its store.
    pub(super) fn debug(&self, debug: &mut fmt::DebugStruct<'_, '_>) {
        debug
            .field("name", &self.0.name)
            .field("policies", &self.0.policies);
    }
}

impl Limiter for NodesLimiter {
    type Future = RedisFuture;

    fn apply(&self, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<RedisFuture> {
        self.submit(Duration::MAX, tier, key, op)
            .unwrap_or_else(|error| Pending::Ready(Err(error)))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn supports(&self, op: &Op) -> bool {
        !matches!(op, Op::Count(_)) || unpoisoned(self.0.limits.lock()).count_on()
    }

    fn blocks(&self) -> bool {
        unpoisoned(self.0.limits.lock()).block_for.is_some()
    }

    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.0).addr())
    }

    fn epoch(&self, _: usize) -> u32 {
        self.with_limits(|limits| limits.epoch().mark())
    }
}
