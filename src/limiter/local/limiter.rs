//! The limiter in this process: [`LocalLimiter`].

mod change;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use super::{
    blocks::Blocks,
    capacity::Capacity,
    hash::{KeyHash, KeyHasher},
    live::LiveLimits,
    lock_free::{LockFree, LoneLimit},
    sharded::Sharded,
    store::{LocalStore, StoreCall, StoredLimit},
};
use crate::{
    clock::{SharedClock, Timestamp},
    decision::Op,
    decision::{Decision, Policy, Receipt},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::Key,
    limiter::{
        Limiter, Never, Pending, Tier,
        apply::denied_for,
        block,
        limits::{Chosen, Limits, cannot_count},
    },
    lock::unpoisoned,
    quota::IntoQuotas,
};

/// The limiter in this process: exact, bounded in memory, with no background task.
///
/// A clone is a handle to the same counters.
///
/// # Memory
///
/// A table of fixed size, 30 bytes for each of the most keys it is to track, 262,144 unless
/// [`max_keys`](super::LocalLimiterBuilder::max_keys) says otherwise: about 8 MB for every limiter,
/// taken from the system as keys come. Windows, logs, blocks and several quotas take more, see
/// there. Keys themselves are not kept, only their keyed 64-bit hash, which also chooses the place.
/// Two given keys are taken for one another with a probability of 2^-64, any two of a million keys
/// with 2^-25, and a client cannot look for such pairs, since the hash is keyed at random.
///
/// A key takes up room only while it has something to remember: once its bucket is full again its
/// entry is free. When more keys are live than fit, the one with the least to forget is given up,
/// and [`evictions`](Self::evictions) counts it: that of which the least time flows back, so a key
/// that has used up its day outlives fresh keys that have used up their second. A flood of fresh
/// keys that send a request each cannot push out a key that has exhausted a burst of 2 or more.
/// Keys that are all exhausted, as with a burst of 1, are as good as each other, and a flood of
/// more of them than `max_keys` does push some out: size the table for the keys that can arrive
/// within one refill.
///
/// # Concurrency
///
/// One token bucket or leaky bucket for each key is updated without locks; all else under the lock
/// of a part of the table, of which there is one for about 2,000 keys, and so is everything in a
/// [`LocalStore`], one table for many limiters.
///
/// # Time
///
/// Valid for 36 years of uptime, and for clocks that step back to 18 years before the start.
#[derive(Clone)]
pub struct LocalLimiter(Arc<Inner>);

struct Inner {
    /// The default tier's policies, as they were at first.
    policies: Vec<Policy>,
    clock: SharedClock,
    hasher: KeyHasher,
    capacity: Capacity,
    /// The limits in force, for the next change.
    limits: Mutex<Arc<Limits>>,
    /// The lock-free table, where one instant for each key is enough.
    instants: Option<LiveLimits<LoneLimit>>,
    /// Keys that were blocked by hand while that was enough.
    blocks: Blocks,
    /// The sharded table, where one instant is not enough, from the start or since a change of
    /// quota.
    subjects: OnceLock<Sharded>,
    /// The table of others, in place of all of these.
    stored: Option<(LocalStore, StoredLimit)>,
}

impl LocalLimiter {
    /// A limiter for `quota` with the default settings.
    ///
    /// # Panics
    ///
    /// When the quota makes no sense, with the text of [`Quota::check`](crate::Quota::check).
    #[must_use]
    #[track_caller]
    pub fn new(quotas: impl IntoQuotas) -> Self {
        match Self::try_new(quotas) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// A limiter for `quota` with the default settings.
    ///
    /// # Errors
    ///
    /// When the quota makes no sense, see [`Quota::check`](crate::Quota::check).
    pub fn try_new(quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build()
    }

    pub(super) fn from_parts(
        limits: Limits,
        capacity: Capacity,
        clock: SharedClock,
        seed: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let limits = Arc::new(limits);
        let subjects = OnceLock::new();
        let stored = None;
        let instants = match limits.lone_bucket() {
            Some(quota) => {
                let table = LockFree::try_new(capacity, clock.now())?;
                Some(LiveLimits::new(LoneLimit::new(quota, table)))
            }
            None => {
                let made = Sharded::try_new(capacity, &limits)?;
                subjects.get_or_init(|| made);
                None
            }
        };
        Ok(Self(Arc::new(Inner {
            policies: limits.default_tier().policies.clone(),
            blocks: Blocks::default(),
            clock,
            hasher: KeyHasher::new(seed),
            capacity,
            limits: Mutex::new(limits),
            instants,
            subjects,
            stored,
        })))
    }

    /// A limiter whose counts are kept in a store.
    pub(super) fn in_store(limits: Limits, name: Option<&str>, store: &LocalStore) -> Self {
        let limits = Arc::new(limits);
        let limit = store.table().limit(name, Arc::clone(&limits));
        Self(Arc::new(Inner {
            policies: limits.default_tier().policies.clone(),
            blocks: Blocks::default(),
            clock: store.table().clock.clone(),
            hasher: store.table().hasher.clone(),
            capacity: Capacity::NONE,
            limits: Mutex::new(limits),
            instants: None,
            subjects: OnceLock::new(),
            stored: Some((store.clone(), limit)),
        }))
    }

    /// A limiter of the same quotas and clock for another number of keys, which counts for itself.
    pub(crate) fn with_max_keys(&self, max_keys: usize) -> Result<Self, ConfigError> {
        let inner = &*self.0;
        if inner.stored.is_some() {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                "max_keys of a limiter in a store is the store's: set it there",
            ));
        }
        let limits = unpoisoned(inner.limits.lock());
        let capacity = Capacity::checked(max_keys, inner.capacity.log_times)?;
        Self::from_parts(Limits::clone(&limits), capacity, inner.clock.clone(), None)
    }

    /// Takes `cost` units if they are available.
    #[must_use = "the decision may be a denial"]
    pub fn acquire(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Acquire(cost))
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] says how many.
    #[must_use = "the decision may be a denial"]
    pub fn acquire_up_to(&self, key: &Key, most: u64) -> Decision {
        self.decide(key, &Op::AcquireUpTo(most))
    }

    /// Says what [`acquire`](Self::acquire) would say, and takes nothing.
    #[must_use]
    pub fn peek(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion; the outcome is
    /// what [`acquire`](Self::acquire) would have said.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn hit(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Hit(cost))
    }

    /// Gives back `cost` units: with the receipt of the decision that charged them, at most what it
    /// charged, less what has come back by itself meanwhile; without one, of the newest charge.
    ///
    /// Of a receipt of several limits that were [charged together](crate::limiter::JointLimiter) it takes
    /// the share of this limit. If that has none, nothing is given back; through the trait
    /// [`Limiter`] it is an error.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Decision {
        let op = Op::Refund(cost, receipt);
        let own = op.of_limit(self.limit_identity()).ok().flatten();
        self.decide(key, own.as_ref().unwrap_or(&op))
    }

    /// Denies the key everything for this long from now on, at most 18 years, whatever its quotas
    /// say; zero ends a block, also one that a denial started.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn block(&self, key: &Key, block: Duration) -> Decision {
        self.decide(key, &Op::Block(block))
    }

    /// Forgets the key and ends its block: it is as good as new.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn reset(&self, key: &Key) -> Decision {
        self.decide(key, &Op::Reset)
    }

    /// Keys that have used something that has not come back yet.
    ///
    /// This walks the whole table, about a millisecond for 262,144 keys: something for a metrics
    /// scrape, not for every request. Of a limiter in a store it is the
    /// [store's](LocalStore::tracked_keys) number.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        if let Some((store, _)) = &self.0.stored {
            return store.tracked_keys();
        }
        let now = self.0.clock.now();
        match (self.0.subjects.get(), &self.0.instants) {
            (Some(subjects), _) => subjects.live_keys(now.as_nanos()),
            (None, Some(live)) => {
                let lone = live.read();
                lone.table.live_keys(&lone.bucket.measured.0, now)
            }
            (None, None) => 0,
        }
    }

    /// Keys that were given up while they still had something to remember, since the start. More
    /// than a few mean that `max_keys` is too small for the traffic, or that somebody floods it. Of
    /// a limiter in a store it is the [store's](LocalStore::evictions) number.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        if let Some((store, _)) = &self.0.stored {
            return store.evictions();
        }
        let instants = self
            .0
            .instants
            .as_ref()
            .map(|live| live.read().table.evictions());
        let subjects = self.0.subjects.get().map(Sharded::evictions);
        instants.unwrap_or(0) + subjects.unwrap_or(0)
    }

    #[inline]
    fn decide(&self, key: &Key, op: &Op) -> Decision {
        match self.instants() {
            Some(instants) => self.decide_alone(instants, key, op),
            None => (self.decide_locked(&Tier::DEFAULT, key, op))
                .expect("there is always a default tier"),
        }
    }

    /// By a tier that is not the default one, for an operation that takes no units, or where more is
    /// counted than one instant.
    #[inline(never)]
    fn decide_in(&self, tier: &Tier, key: &Key, op: &Op) -> Result<Decision, LimiterError> {
        let own = op.of_limit(self.limit_identity())?;
        let op = own.as_ref().unwrap_or(op);
        match self.instants() {
            // A bucket is no window.
            Some(_) if matches!(op, Op::Count(_)) => Err(cannot_count()),
            Some(instants) if tier.is_default() => Ok(self.decide_alone(instants, key, op)),
            Some(instants) => self.decide_request(instants, tier, key, op),
            None => self.decide_locked(tier, key, op),
        }
    }

    /// The quota and the table of the lock-free way, where that is the way.
    #[inline]
    fn instants(&self) -> Option<&LiveLimits<LoneLimit>> {
        let in_force = self.0.subjects.get().is_none();
        self.0.instants.as_ref().filter(|_| in_force)
    }

    fn decide_alone(&self, live: &LiveLimits<LoneLimit>, key: &Key, op: &Op) -> Decision {
        // The clock first: the CPU hashes while it waits for the time.
        let now = self.0.clock.now();
        let hash = self.0.hasher.hash(key);
        let lone = live.read();
        match op {
            Op::Acquire(cost) | Op::Reserve(cost) if !self.0.blocks.are_any(now.as_nanos()) => {
                lone.table.acquire(hash, now, &lone.bucket.measured, *cost)
            }
            _ => self.decide_rarely(hash, now, &lone, Chosen::Tier(0), op),
        }
    }

    /// By a quota that the request brings, of which the lock-free way knows no other tiers.
    fn decide_request(
        &self,
        live: &LiveLimits<LoneLimit>,
        tier: &Tier,
        key: &Key,
        op: &Op,
    ) -> Result<Decision, LimiterError> {
        let Some(asked) = tier.request() else {
            return Err(tier.unknown());
        };
        let now = self.0.clock.now();
        let hash = self.0.hasher.hash_bytes(key.as_bytes());
        let lone = live.read();
        let asked = Chosen::Request(lone.bucket.own.fit(asked));
        Ok(self.decide_rarely(hash, now, &lone, asked, op))
    }

    /// Any operation by any quota, on keys that may have been blocked by hand, of which the table
    /// knows nothing.
    #[cold]
    #[inline(never)]
    fn decide_rarely(
        &self,
        hash: KeyHash,
        now: Timestamp,
        lone: &LoneLimit,
        asked: Chosen,
        op: &Op,
    ) -> Decision {
        let Inner {
            blocks,
            capacity,
            subjects,
            ..
        } = &*self.0;
        match op {
            Op::Block(length) => blocks.set(hash, now.as_nanos(), *length, capacity.keys),
            Op::Reset => blocks.set(hash, now.as_nanos(), Duration::ZERO, capacity.keys),
            _ => {}
        }
        if let (Op::Block(_) | Op::Reset, Some(subjects)) = (op, subjects.get()) {
            // The quota has been changed meanwhile, and blocks are kept there now.
            let decided = subjects.decide(hash, &self.0.clock, &Tier::DEFAULT, op);
            return decided.expect("there is always a default tier");
        }
        let quota = &lone.bucket;
        let blocked = blocks.left(hash, now.as_nanos());
        let instead = block::instead_of(op).filter(|_| blocked > 0);
        let done = instead.as_ref().unwrap_or(op);
        let chosen = asked.by_receipt(op, 1, Some(&quota.own));
        let request = match chosen {
            Chosen::Request(fitted) => quota.of_request(fitted),
            Chosen::Tier(_) => None,
        };
        let measured = request.as_ref().unwrap_or(&quota.measured);
        let decision = lone.table.decide(hash, now, measured, done);
        let decision = decision.in_tier(chosen.index());
        match op {
            Op::Refund(..) | Op::Settle(..) => decision,
            _ => denied_for(decision, blocked),
        }
    }

    /// The store that the counts are kept in, and the limit there.
    pub(super) fn stored(&self) -> Option<&(LocalStore, StoredLimit)> {
        self.0.stored.as_ref()
    }

    fn decide_locked(&self, tier: &Tier, key: &Key, op: &Op) -> Result<Decision, LimiterError> {
        let key = self.0.hasher.hash_bytes(key.as_bytes());
        if let Some((store, limit)) = &self.0.stored {
            return store.table().decide(StoreCall {
                limit,
                key,
                tier,
                op,
            });
        }
        let Some(subjects) = self.0.subjects.get() else {
            return Err(tier.unknown());
        };
        subjects.decide(key, &self.0.clock, tier, op)
    }
}

/// Whether it is the usual operation of a layer, which has no receipt.
#[inline]
const fn takes(op: &Op) -> bool {
    matches!(op, Op::Acquire(_) | Op::Reserve(_))
}

impl Limiter for LocalLimiter {
    type Future = Never;

    #[inline]
    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    #[inline]
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        match self.instants() {
            Some(instants) if tier.is_default() && takes(&op) => {
                Pending::Ready(Ok(self.decide_alone(instants, key, &op)))
            }
            _ => Pending::Ready(self.decide_in(tier, key, &op)),
        }
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

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((store, limit)) = &self.stored {
            store.table().leave(limit);
        }
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
