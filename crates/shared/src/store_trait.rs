//! A user's store, which keeps the values of subjects: its trait, one in memory, and calls to it behind a breaker.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use super::{
    batching::{BatchCall, CallWindow, SubjectOps},
    ledger::AttachedMessage,
    prehashed_key_names::SubjectName,
    wire::{
        Reply, StoreCall, Write,
        reply::{self, SubjectResult},
        script_plan::{Plan, TierPlan},
    },
};
use tower_ratelimit_core::{
    clock::{Clock, ManualClock, OsClock, SharedClock, Timestamp},
    decision::Op,
    limiter::limits_in_force::{Chosen, LimitTerms, TierSet},
    lock::unpoisoned,
    quota::Quota,
};
use tower_ratelimit_store::{
    breaker::{Breaker, Guarded},
    error::{StoreError, StoreErrorKind},
    health::{Owner, StoreHealth, StoreWatch},
    runtime_thread::Home,
    stats::StoreStats,
};

/// The beginning of all names in a store that is not Redis.
const PREFIX: &str = "rl";

/// The longest deadline: sums of several of them are still instants.
const MAX_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// The longest duration of a trial, or twice the deadline if that is longer. Then it counts as
/// lost.
const TRIAL_LIMIT: Duration = Duration::from_secs(2);

const TRIAL_KEY: &str = "rl:trial";

/// Keeps the bytes of a value for each subject, for a [`SharedLimiter`](super::SharedLimiter).
///
/// A store with locks or transactions calls [`StoreCall::apply`] between reading and writing. A store
/// that compares and swaps implements [`CompareAndSwap`](super::CompareAndSwap) instead.
///
/// ```
/// use std::{collections::HashMap, sync::Mutex};
/// use tower_ratelimit::{
///     clock::{Clock, OsClock},
///     shared::{StoreCall, Reply, Store},
///     store::StoreError,
/// };
///
/// #[derive(Default)]
/// struct Values(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl Store for Values {
///     async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
///         let mut values = self.0.lock().expect("no panic");
///         let clock = OsClock::new();
///         let now = clock.wall(clock.now());
///         let applied = call.apply(values.get(key).map(Vec::as_slice), now)?;
///         if let Some(write) = applied.write {
///             values.insert(key.to_owned(), write.value);
///         }
///         Ok(applied.reply)
///     }
/// }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Applies `call` to the value under `key` in one step: no other call changes the value between
    /// the read and the write, and the future completes after the write.
    ///
    /// Use the store's own time if possible, so that nodes need not agree about it. A limiter
    /// usually has one call of a key in flight; more for several tiers, or for a thousand
    /// operations at once. While the store fails, limiters call it about the key `rl:trial` only.
    fn transact(
        &self,
        key: &str,
        call: &StoreCall<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// The longest duration of a call, at most an hour. After that the limiter's
    /// [`on_failure`](super::RedisLimiterBuilder::on_failure) decides. A limiter reads it when it
    /// is built. Defaults to 250 milliseconds.
    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }
}

impl<S: Store> Store for Arc<S> {
    fn transact(
        &self,
        key: &str,
        call: &StoreCall<'_>,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send {
        S::transact(self, key, call)
    }

    fn deadline(&self) -> Duration {
        S::deadline(self)
    }
}

/// The client of a user's store, which decides about one subject in a call.
pub struct CustomClient<S> {
    store: S,
    breaker: Breaker,
    /// Numbers of calls, as connections for the breaker: it counts the end of a connection once.
    calls: AtomicU64,
    trial: Plan,
}

impl<S: Store> StoreBackend for S {
    type Client = CustomClient<S>;
}

impl<S: Store> CallWindow for CustomClient<S> {
    fn deadline(&self) -> Duration {
        self.breaker.deadline
    }

    fn most_subjects(&self) -> usize {
        1
    }

    /// Each subject has at most one call in flight.
    fn expected(&self) -> Option<Duration> {
        None
    }
}

impl<S: Store> Client for CustomClient<S> {
    type Store = S;

    fn new(store: S, _: Option<ManualClock>) -> Self {
        let deadline = store.deadline().min(MAX_DEADLINE);
        // The value expires soon, and the limit is never reached, so that each trial writes.
        let limits = TierSet::new(LimitTerms::of(Quota::per_second(1_000_000)));
        let watch = StoreWatch::new(Owner::User, None);
        let trial_limit = TRIAL_LIMIT.max(2 * deadline);
        Self {
            store,
            breaker: Breaker::new(watch, (Home::of_callers(), deadline), trial_limit, None),
            calls: AtomicU64::new(0),
            trial: Plan::new(&limits.expect("a quota that makes sense")),
        }
    }

    fn store(&self) -> &S {
        &self.store
    }

    fn prefix(&self) -> &str {
        PREFIX
    }

    fn runtime(&self) -> Option<Handle> {
        self.breaker.home.runtime()
    }

    fn refusal(self: &Arc<Self>, _: &SubjectName) -> Option<StoreError> {
        Guarded::refusal(self)
    }

    fn record_degraded(&self, error: StoreError) -> StoreError {
        let error = error.of_a_store();
        let breaker = &self.breaker;
        breaker.watch.record_degraded(&error, breaker.is_open());
        error
    }

    fn health(&self) -> StoreHealth {
        let breaker = &self.breaker;
        breaker.watch.with_strain(breaker.health())
    }

    fn stats(&self) -> StoreStats {
        self.breaker.watch.counters.read()
    }

    async fn decide(self: &Arc<Self>, call: DecideCall<'_>) -> Vec<SubjectResult> {
        let mut answers = Vec::with_capacity(call.sent.subjects.len());
        // A single one, see `most_subjects`.
        for (at, ops) in call.sent.subjects.iter().enumerate() {
            let own = call.of(at, ops);
            let reply = self.call(&ops.subject, &own).await;
            let answer = |reply: Reply| reply::of_store(reply, &call.tier.reply, &own);
            answers.push(reply.and_then(answer));
        }
        answers
    }
}

impl<S: Store> CustomClient<S> {
    /// Runs the call within the deadline, and reports the outcome to the breaker.
    async fn call(self: &Arc<Self>, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        let began_at = Instant::now();
        let outcome = match self.admit().await {
            Ok(epoch) => {
                let outcome = self.transact(key, call).await;
                self.learn(epoch, outcome.as_ref().err());
                outcome
            }
            Err(error) => Err(error),
        };
        self.breaker
            .watch
            .counters
            .count(&outcome, began_at.elapsed());
        outcome
    }

    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        match timeout(self.breaker.deadline, self.store.transact(key, call)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::timeout(self.breaker.deadline).of_a_store()),
        }
    }

    fn learn(self: &Arc<Self>, epoch: u64, error: Option<&StoreError>) {
        use StoreErrorKind::{BreakerOpen, Crowded, NoRuntime, Other};
        let Some(error) = error.filter(|error| !is_about_one_key(error)) else {
            return self.breaker.record_success(epoch);
        };
        match error.kind() {
            // No call was sent.
            Crowded | BreakerOpen | NoRuntime => {}
            Other => self.record_inconclusive(epoch),
            _ => {
                let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
                self.record_failure(epoch, call, error);
            }
        }
    }
}

/// Whether the error concerns one key only, or quotas of the calendar, so that the store works.
fn is_about_one_key(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::ClockApart | StoreErrorKind::Contended | StoreErrorKind::ForeignData
    )
}

impl<S: Store> Guarded for CustomClient<S> {
    fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Reads and writes a value as a call does.
    async fn try_out(&self, _: &mut u64) -> Result<(), StoreError> {
        let runs = [(Op::Hit(1), 1)];
        let call = StoreCall::new(&self.trial, Chosen::Tier(0), &runs);
        match self.transact(TRIAL_KEY, &call).await {
            Err(error) if !is_about_one_key(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<S> fmt::Debug for CustomClient<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomClient")
            .field("deadline", &self.breaker.deadline)
            .finish_non_exhaustive()
    }
}

/// A [`Store`] in memory: for tests and simulations, in which limiters are nodes that share it.
///
/// A clone is a handle to the same values. Expired values are removed when the number of values has
/// doubled since the last removal; there is no other bound. A service with one process uses a
/// [`LocalLimiter`](tower_ratelimit_core::LocalLimiter).
///
/// ```
/// # tokio_test();
/// # fn tokio_test() {
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// use tower_ratelimit::{Key, Quota, shared::{MemoryStore, SharedLimiter}};
///
/// let store = MemoryStore::new();
/// let node = || SharedLimiter::builder(Quota::per_second(10)).build_on(store.clone());
/// let (one, two) = (node()?, node()?);
/// one.acquire(&Key::from("alice"), 7).await?;
/// assert_eq!(two.acquire(&Key::from("alice"), 1).await?.remaining(), Some(2));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    clock: SharedClock,
    values: Mutex<Values>,
}

/// Values, each with the time at which it expires.
#[derive(Default)]
struct Values {
    all: HashMap<String, (Vec<u8>, Timestamp)>,
    /// Number of values after the last removal of expired ones.
    kept: usize,
}

impl MemoryStore {
    /// Creates an empty store on the system's clock.
    pub fn new() -> Self {
        Self::with_clock(OsClock::new())
    }

    /// Creates an empty store on this clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self(Arc::new(Inner {
            clock: SharedClock::new(clock),
            values: Mutex::default(),
        }))
    }

    /// Number of values, including expired ones that have not been removed yet.
    pub fn len(&self) -> usize {
        unpoisoned(self.0.values.lock()).all.len()
    }

    /// Whether the store has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all values.
    pub fn clear(&self) {
        *unpoisoned(self.0.values.lock()) = Values::default();
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        let mut values = unpoisoned(self.0.values.lock());
        // Read under the lock, so that no value is later than now unless the clock stepped back.
        let now = self.0.clock.read().wall;
        let applied = call.apply(values.get(key, now), now)?;
        if let Some(write) = applied.write {
            values.put(key, write, now);
        }
        Ok(applied.reply)
    }
}

impl Values {
    fn get(&self, key: &str, now: Timestamp) -> Option<&[u8]> {
        let (value, expires_at) = self.all.get(key)?;
        (*expires_at > now).then_some(value)
    }

    fn put(&mut self, key: &str, write: Write, now: Timestamp) {
        let expires_at = now.saturating_add(write.expires_in);
        self.all.insert(key.to_owned(), (write.value, expires_at));
        if self.all.len() > 2 * self.kept.max(64) {
            self.all.retain(|_, (_, expires_at)| *expires_at > now);
            self.kept = self.all.len();
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("clock", &self.0.clock)
            .field("len", &self.len())
            .finish()
    }
}

/// A store of a [`SharedLimiter`](super::SharedLimiter): every [`Store`](super::Store), and Redis,
/// which has the [`RedisLimiter`](crate::limiter::RedisLimiter). Nothing else implements it.
pub trait StoreBackend: Sized + Send + Sync + 'static {
    /// The client through which a limiter calls the store.
    #[doc(hidden)]
    #[allow(private_bounds, reason = "nobody else implements it")]
    type Client: Client<Store = Self>;
}

pub(super) trait Client: CallWindow + fmt::Debug {
    type Store;

    /// Creates the client of one limiter. `clock` replaces the server's, for tests.
    fn new(store: Self::Store, clock: Option<ManualClock>) -> Self;

    fn store(&self) -> &Self::Store;

    /// The beginning of all keys' names.
    fn prefix(&self) -> &str;

    /// Prepares the store for decisions by these quotas.
    fn prepare(&self, _: &Plan) {}

    /// The runtime that drives calls, if any.
    fn runtime(&self) -> Option<Handle>;

    /// The error with which a call about this subject would fail at once, if any.
    fn refusal(self: &Arc<Self>, subject: &SubjectName) -> Option<StoreError>;

    /// Counts a decision made without the store because of this error, which then names the store.
    fn record_degraded(&self, error: StoreError) -> StoreError;

    fn health(&self) -> StoreHealth;

    fn stats(&self) -> StoreStats;

    /// Whether no specialized script can decide about the subject.
    fn is_complex(&self, _: &SubjectName, _: Instant) -> bool {
        true
    }

    /// Decides all operations of a call. Returns one answer for each subject.
    fn decide(
        self: &Arc<Self>,
        call: DecideCall<'_>,
    ) -> impl Future<Output = Vec<SubjectResult>> + Send;
}

/// Operations on subjects, decided by the quotas of one tier.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "parts for Redis"))]
pub(super) struct DecideCall<'a> {
    pub(super) sent: &'a BatchCall,
    pub(super) tier: &'a TierPlan,
    /// One for each subject; empty in strict mode.
    pub(super) messages: &'a [AttachedMessage],
}

impl<'a> DecideCall<'a> {
    /// The message about the subject at this index.
    pub(super) fn message(&self, at: usize) -> &'a AttachedMessage {
        self.messages.get(at).unwrap_or(&AttachedMessage::None)
    }

    /// The operations of the subject at this index, and its message.
    pub(super) fn of(&self, at: usize, ops: &'a SubjectOps) -> StoreCall<'a> {
        StoreCall {
            message: self.message(at).message(),
            keeps_states: !self.messages.is_empty(),
            ..StoreCall::new(&self.sent.plan, self.sent.tier, &ops.runs)
        }
    }
}
