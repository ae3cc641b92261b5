//! `LocalLimiter`: the limiter in this process.

use std::{
    fmt,
    io::{Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    eviction::Capacity,
    lock_free_bucket_table::{LockFree, LoneLimit},
    state_file::{
        self, BlockReader, BlockWriter, FileHeader, RestoreError, SaveError, SaveErrorKind, Saved,
        SavedLimit, replace_file,
    },
    store::{LocalStore, ONLY_LIMIT, StoreTable, StoredCounters, StoredLimit},
};
use crate::hash::{KeyHash, KeyHasher};
use crate::{
    algorithm::State,
    clock::{ClockReading, SharedClock, Timestamp},
    decision::{Decision, Op, Policy, Receipt},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::Key,
    limiter::{
        apply_operation::{denied_for, instead_of},
        call::{Call, Charge, Charged, OpRef},
        limiter::{Facts, Internals, Limiter, Never, Pending},
        tier::Tier,
        tier_set::{ChangingLimits, Chosen, SingleBucket, TierSet, check_block, unsupported},
    },
    lock::unpoisoned,
    quota::{IntoQuotas, OwnedQuota, Priority},
};

/// The limiter in this process: exact, bounded in memory, with no background task.
///
/// A clone is a handle to the same counters.
///
/// # Memory
///
/// The table has a fixed size: 30 bytes for each of
/// [`max_keys`](super::LocalLimiterBuilder::max_keys) keys, by default 262,144, about 8 MB for every
/// limiter. It takes 64 KiB for the first 4,000 keys, and the rest when more come. Windows, logs, blocks and several quotas take more, see
/// there. The table does not store keys, only their keyed 64-bit hashes. Two given keys collide with a
/// probability of 2^-64, any two of a million keys with 2^-25. Clients cannot search for collisions,
/// since the hash is keyed at random.
///
/// A key needs an entry only while it is not fresh: once its bucket is full again its entry is free.
/// If more keys are live than fit, the key with the least usage is evicted, and
/// [`evictions`](Self::evictions) counts it. Usage is measured by the time in which it returns, so a
/// key that has exhausted its day outlives fresh keys that have exhausted their second. A flood of
/// fresh keys with a request each cannot evict a key that has exhausted a burst of 2 or more. Exhausted
/// keys, as all keys are with a burst of 1, have equal weight, and a flood of more than `max_keys` of
/// them evicts some: size the table for the keys that can arrive within one refill.
///
/// # Concurrency
///
/// A single token bucket or leaky bucket for each key is updated without locks. All other quotas are
/// updated under the lock of a part of the table with about 2,000 keys, and so is everything in a
/// [`LocalStore`], one table for many limiters.
///
/// # Time
///
/// Valid for 36 years of uptime, and for clocks that step back to 18 years before the start.
#[derive(Clone)]
pub struct LocalLimiter(Arc<Inner>);

struct Inner {
    /// The default tier's policies when the limiter was made.
    policies: Arc<[Policy]>,
    clock: SharedClock,
    hasher: KeyHasher,
    capacity: Capacity,
    /// The limits in force; locked during a change.
    limits: Mutex<Arc<TierSet>>,
    /// The lock-free table, if one instant was the whole state of a key when the limiter was made.
    instants: Option<LoneLimit>,
    /// The table under locks, if one instant is not enough, or once somebody has blocked a key by hand.
    locked: OnceLock<LockedLimit>,
    /// Whether the table under locks has all counts, from the start or since a change of quota.
    counts_locked: AtomicBool,
}

/// A limiter's limit in a table under locks: that of a store, or its own.
struct LockedLimit {
    store: LocalStore,
    limit: StoredLimit,
}

impl LockedLimit {
    fn new(store: LocalStore, name: Option<&str>, limits: &Arc<TierSet>) -> Self {
        let limit = store.table().limit(name, Arc::clone(limits));
        Self { store, limit }
    }

    fn table(&self) -> &StoreTable {
        self.store.table()
    }
}

impl Inner {
    /// The table under locks, which is made for these limits if there is none.
    fn locked(&self, limits: &Arc<TierSet>) -> Result<&LockedLimit, ConfigError> {
        if let Some(locked) = self.locked.get() {
            return Ok(locked);
        }
        let (clock, hasher) = (self.clock.clone(), self.hasher.clone());
        let store = LocalStore::from_parts(self.capacity, Some(limits.states()), clock, hasher)?;
        let made = LockedLimit::new(store, None, limits);
        Ok(self.locked.get_or_init(|| made))
    }

    /// Whether any key of a lone bucket may be blocked by hand.
    #[inline]
    fn may_block(&self, now: Timestamp) -> bool {
        let locked = self.locked.get();
        locked.is_some_and(|locked| locked.table().may_block(now.as_nanos()))
    }

    /// Blocks a key of a lone bucket, or ends its block, if that is the operation. Returns the nanoseconds until its block
    /// ends.
    fn block_of(&self, charge: &Charge<'_>, hash: KeyHash, now: Timestamp) -> u64 {
        let Some(LockedLimit { store, limit }) = self.locked.get() else {
            return 0;
        };
        if matches!(charge.op, OpRef::Block(_) | OpRef::Reset) {
            let charge = Charge::new(charge.key, charge.op);
            drop(store.table().decide(limit, &charge, &Call::of(&[])));
        }
        store.table().block_left(limit, hash, now.as_nanos())
    }
}

impl LocalLimiter {
    /// A limiter for `quota` with the default settings.
    ///
    /// # Panics
    ///
    /// If the quota is invalid, with the text of [`Quota::check`](crate::Quota::check).
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
    /// If the quota is invalid, see [`Quota::check`](crate::Quota::check).
    pub fn try_new(quotas: impl IntoQuotas) -> Result<Self, ConfigError> {
        Self::builder(quotas).build()
    }

    /// Takes `cost` units if they are available, all or nothing. A cost of 0 takes nothing; a cost above
    /// the capacity, soft share included, is always denied, without a
    /// [`retry_after`](Decision::retry_after).
    #[must_use = "the decision may be a denial"]
    pub fn acquire(&self, key: &Key, cost: u64) -> Decision {
        match self.charge_alone(Priority::CRITICAL, key, cost) {
            Some(charged) => charged.decision(),
            None => self.decide(key, OpRef::Acquire(cost)),
        }
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] is their number. Denied if there
    /// are none.
    #[must_use = "the decision may be a denial"]
    pub fn acquire_up_to(&self, key: &Key, most: u64) -> Decision {
        self.decide(key, OpRef::AcquireUpTo(most))
    }

    /// Decides like [`acquire`](Self::acquire) and takes nothing.
    pub fn peek(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, OpRef::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion. The outcome is that of
    /// [`acquire`](Self::acquire).
    pub fn hit(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, OpRef::Hit(cost))
    }

    /// Refunds `cost` units. With the receipt of the decision that charged them, at most its charge less
    /// the units that have returned since; without a receipt, units of the newest charge.
    ///
    /// A receipt of several limits that were [charged together](crate::limiter::JointLimiter) counts
    /// with this limit's part. Without one, nothing is refunded; through the trait [`Limiter`] that
    /// is an error.
    pub fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Decision {
        let op = Op::Refund(cost, receipt);
        let own = op.as_ref().of_limit(self.limit_identity());
        self.decide(key, own.unwrap_or(OpRef::Refund(0, None)))
    }

    /// Denies the key everything for this time from now on, whatever its quotas hold; zero ends a block,
    /// also one that a denial started.
    ///
    /// # Errors
    ///
    /// If the block is longer than 18 years.
    pub fn block(&self, key: &Key, block: Duration) -> Result<Decision, LimiterError> {
        let Pending::Ready(decided) =
            self.call(&Call::of(&[Charge::new(key, OpRef::Block(block))]));
        decided
    }

    /// Resets the key to its initial state, in all tiers, and ends its block. The decision has the quotas of
    /// a fresh key.
    pub fn reset(&self, key: &Key) -> Decision {
        self.decide(key, OpRef::Reset)
    }

    /// Takes units by a lone token bucket, in one step without locks: what most requests do. `None` if
    /// there is more to do, and nothing was taken.
    #[inline(always)]
    fn charge_alone(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        let lone = self.instants()?;
        let measured = lone.token_bucket()?;
        // The clock first: the CPU hashes while it waits for the time.
        let now = self.0.clock.now();
        let hash = self.0.hasher.hash(key);
        if self.0.may_block(now) {
            return None;
        }
        lone.table.charge(hash, now, measured, class, units)
    }

    fn decide(&self, key: &Key, op: OpRef<'_>) -> Decision {
        let charge = Charge::new(key, op);
        let decided = match self.instants() {
            Some(lone) => self.decide_alone(lone, &charge, Duration::ZERO),
            None => self.decide_locked(&charge, &Call::of(&[])),
        };
        decided.expect("there is always a default tier")
    }

    /// Decides by a lone bucket what is more than a [charge](Self::charge_alone): another tier, an operation that does not
    /// just take units, or a late timer. The charge is one of the call's.
    #[inline(never)]
    fn decide_in(
        &self,
        lone: &LoneLimit,
        charge: &Charge<'_>,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let op = charge.op.of_limit(self.limit_identity())?;
        check_block(op)?;
        if matches!(op, OpRef::Block(_)) {
            let limits = unpoisoned(self.0.limits.lock());
            let made = self.0.locked(&limits);
            made.map_err(|error| LimiterError::unsupported(error.to_string()))?;
        }
        // A lone bucket has no window to count in, and may be a queue.
        if !self.supports(op) {
            return Err(unsupported(op));
        }
        self.decide_alone(lone, &charge.op(op), late)
    }

    fn decide_locked(
        &self,
        charge: &Charge<'_>,
        call: &Call<'_>,
    ) -> Result<Decision, LimiterError> {
        match self.0.locked.get() {
            Some(locked) => locked.table().decide(&locked.limit, charge, call),
            None => Err(charge.tier.unknown()),
        }
    }

    fn supports(&self, op: OpRef<'_>) -> bool {
        !matches!(op, OpRef::Count(_) | OpRef::Spend(_))
            || self.with_limits(|limits| limits.supports(op))
    }

    /// The quota and the lock-free table, if that table is in use.
    #[inline]
    fn instants(&self) -> Option<&LoneLimit> {
        let lone = self.0.instants.as_ref()?;
        (!self.0.counts_locked.load(Ordering::Acquire)).then_some(lone)
    }

    /// Decides any operation by a lone bucket, or by a request's own quota, the only other tier of a
    /// lock-free table.
    fn decide_alone(
        &self,
        lone: &LoneLimit,
        charge: &Charge<'_>,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let tier = charge.tier;
        if tier.request().is_none() && !tier.is_default() {
            return Err(tier.unknown());
        }
        let time = ClockReading::alike(self.0.clock.now()).for_timer(late);
        let bucket = lone.bucket.read();
        let chosen = match tier.request() {
            Some(request) => Chosen::Request(bucket.own.fit(request)),
            None => Chosen::Tier(0),
        };
        let chosen = chosen.in_class(charge.class);
        Ok(self.decide_rarely(charge, time, (&lone.table, &bucket), chosen))
    }

    /// Decides any operation by any quota. Checks for blocks by hand, which are not in the table.
    #[cold]
    #[inline(never)]
    fn decide_rarely(
        &self,
        charge: &Charge<'_>,
        time: ClockReading,
        (table, quota): (&LockFree, &SingleBucket),
        chosen: Chosen,
    ) -> Decision {
        let (op, hash) = (charge.op, self.0.hasher.hash(charge.key));
        let blocked = self.0.block_of(charge, hash, time.now);
        let instead = instead_of(op).filter(|_| blocked > 0);
        let chosen = chosen.by_receipt(op, 1, Some(&quota.own));
        let request = match chosen.of_all() {
            Chosen::Request(fitted) => quota.of_request(fitted),
            _ => None,
        };
        let measured = request.as_ref().unwrap_or(&quota.measured);
        let done = instead.unwrap_or(op);
        let decision = table.decide_in(chosen.class(), hash, time, measured, done);
        let decision = decision.in_tier(chosen.index());
        match op {
            OpRef::Refund(..) | OpRef::Settle(..) => decision,
            _ => denied_for(decision, blocked),
        }
    }

    /// The store in which the limiter counts, and its limit there.
    fn stored(&self) -> Option<&LockedLimit> {
        let locked = self.0.locked.get();
        locked.filter(|locked| locked.table().is_shared())
    }

    pub(super) fn from_parts(
        limits: TierSet,
        capacity: Capacity,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        let limits = Arc::new(limits);
        let instants = match limits.single_bucket() {
            Some(quota) => Some(LoneLimit {
                bucket: ChangingLimits::new(quota),
                table: LockFree::try_new(capacity, clock.now())?,
            }),
            None => None,
        };
        let inner = Inner {
            policies: limits.default_tier().policies.clone(),
            clock,
            hasher,
            capacity,
            counts_locked: AtomicBool::new(instants.is_none()),
            instants,
            locked: OnceLock::new(),
            limits: Mutex::new(Arc::clone(&limits)),
        };
        if inner.instants.is_none() {
            inner.locked(&limits)?;
        }
        Ok(Self(Arc::new(inner)))
    }

    /// A limiter that counts in a store.
    pub(super) fn in_store(limits: TierSet, name: Option<&str>, store: &LocalStore) -> Self {
        let limits = Arc::new(limits);
        let locked = LockedLimit::new(store.clone(), name, &limits);
        Self(Arc::new(Inner {
            policies: limits.default_tier().policies.clone(),
            clock: store.table().clock.clone(),
            hasher: store.table().hasher.clone(),
            capacity: Capacity::NONE,
            limits: Mutex::new(limits),
            instants: None,
            locked: OnceLock::from(locked),
            counts_locked: AtomicBool::new(true),
        }))
    }

    /// A limiter with these quotas and this clock, for another number of keys, with a table of its own.
    #[doc(hidden)]
    pub fn with_max_keys(&self, max_keys: usize) -> Result<Self, ConfigError> {
        let inner = &*self.0;
        if self.stored().is_some() {
            return Err(ConfigError::new(
                ConfigErrorKind::Store,
                "max_keys of a limiter in a store is the store's: set it there",
            ));
        }
        let limits = unpoisoned(inner.limits.lock());
        let capacity = Capacity::checked(max_keys, inner.capacity.log_times)?;
        let hasher = KeyHasher::new(None);
        Self::from_parts(
            TierSet::clone(&limits),
            capacity,
            inner.clock.clone(),
            hasher,
        )
    }

    /// The number of keys that are not fresh. A limiter that takes a lock counts each quota of a key, and each block.
    ///
    /// This walks the whole table, in about a millisecond for 262,144 keys: use it for a metrics scrape,
    /// not for every request. For a limiter in a store it is the [store's](LocalStore::tracked_keys)
    /// number.
    pub fn tracked_keys(&self) -> usize {
        let now = self.0.clock.now();
        let instants = self.instants();
        let instants =
            instants.map(|lone| (lone.table).live_keys(&lone.bucket.read().measured.0, now));
        let locked = self.0.locked.get();
        let locked = locked.map(|locked| locked.store.tracked_keys());
        instants.unwrap_or(0) + locked.unwrap_or(0)
    }

    /// The number of keys that were evicted before they were fresh, since the start. A limiter that takes a lock counts
    /// each quota of a key, and each block: it evicts these one by one. More than a few mean
    /// that `max_keys` is too small for the traffic, or that somebody floods it. For a limiter in a store
    /// it is the [store's](LocalStore::evictions) number.
    pub fn evictions(&self) -> u64 {
        let instants = self.0.instants.as_ref();
        let instants = instants.map(|lone| lone.table.evictions());
        let locked = self.0.locked.get();
        let locked = locked.map(|locked| locked.store.evictions());
        instants.unwrap_or(0) + locked.unwrap_or(0)
    }

    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones.
    ///
    /// If the limit, burst, queue or soft share changes, each key keeps its state, at most as much as the
    /// new quota holds, or the largest quota of another tier that shares the counter. So a raised limit
    /// does not free exhausted keys: a bucket gets its next unit at the new rate, windows and logs have
    /// the new limit less their count. That is so with [`OnChange::Fresh`](crate::limiter::OnChange::Fresh), too;
    /// [`reset`](Self::reset) frees one key.
    /// [`QuotaChange`](crate::limiter::QuotaChange) computes the effect of a change. Requests that
    /// [wait](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.wait) retry at the end of their wait, not earlier, and later
    /// requests of their key queue behind them.
    ///
    /// If the algorithm, period, slices or refill step changes, the quota gets another counter: that of
    /// another tier that counts alike, or a fresh one. The old counts stay until they have returned, and a quota that is
    /// changed back continues with them. Only those of a single bucket with a table of its own are dropped. Headers show the new quota from the next decision on. Requests that are open
    /// during the change refund to a bucket only units that its new numbers could have charged, see
    /// [`Receipt`](crate::decision::Receipt).
    ///
    /// # Errors
    ///
    /// If the quota is invalid, see [`Quota::check`](crate::Quota::check), has another name, there is no
    /// quota of this name, or there is no memory for the new counters.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let inner = &*self.0;
        let mut current = unpoisoned(inner.limits.lock());
        let mut limits = TierSet::clone(&current);
        let kept = limits.replace(name, &quota.into())?;
        let limits = Arc::new(limits);
        match (self.instants(), limits.single_bucket()) {
            (Some(lone), Some(bucket)) => lone.change(bucket, &kept, inner.clock.now()),
            _ => {
                match inner.locked.get() {
                    Some(LockedLimit { store, limit }) => {
                        store.table().replace(limit, Arc::clone(&limits));
                    }
                    None => drop(inner.locked(&limits)?),
                }
                inner.counts_locked.store(true, Ordering::Release);
            }
        }
        *current = limits;
        Ok(())
    }

    /// Reads the limits in force.
    pub(crate) fn with_limits<T>(&self, read: impl FnOnce(&TierSet) -> T) -> T {
        let limits = unpoisoned(self.0.limits.lock());
        read(&limits)
    }

    /// Saves the counts of all keys, for
    /// [`restore`](crate::limiter::LocalLimiterBuilder::restore) in the next process: a deployment then
    /// gives no client a new daily quota.
    ///
    /// The save does not stop requests: each key is saved as it is at some moment of the save. When
    /// requests have stopped, everything is exact. The save takes memory for one buffer, and locks a few keys at a time.
    /// The file contains hashes of keys and the secret of these hashes: who can read it can test whether a
    /// key was counted.
    ///
    /// # Errors
    ///
    /// If `to` cannot be written, or the limiter is in a store, which saves all its limiters together by
    /// [`LocalStore::save`](crate::LocalStore::save).
    pub fn save(&self, to: impl Write) -> Result<Saved, SaveError> {
        let inner = &*self.0;
        if self.stored().is_some() {
            return Err(SaveError::new(
                SaveErrorKind::InStore,
                "this limiter counts in a store, which saves all its limiters together: call \
                 LocalStore::save",
            ));
        }
        let time = inner.clock.read();
        let limits = self.limits_in_force();
        let header = FileHeader {
            hash_key: inner.hasher.key(),
            limiters: 1,
            limits: vec![SavedLimit {
                number: ONLY_LIMIT,
                name: None,
                counter_mark: limits.counter_mark(),
                labels: limits.labels(),
            }],
        };
        state_file::write(to, &header, time, |writer| {
            if let Some(lone) = self.instants() {
                let counters = StoredCounters::alone(&inner.hasher, Arc::clone(&limits));
                // Not a guard: a change of quota would wait for it, and all requests for the change.
                let (bucket, _) = lone.bucket.read().measured;
                let save = |writer: &mut BlockWriter<_>, tag, instant| {
                    let state = State::Instant(instant);
                    let weight = limits.eviction_weight(0, &state, time);
                    writer.entry((counters.lone_tag(tag), ONLY_LIMIT), weight, &state, time);
                };
                lone.table.save(&bucket, time.now, writer, save)?;
            }
            match inner.locked.get() {
                Some(locked) => locked.table().save_entries(time, writer),
                None => Ok(()),
            }
        })
    }

    /// [Saves](Self::save) to a file, which only its owner can read. It is written beside `path` and then
    /// renamed, so that a process that is killed meanwhile leaves the old file.
    ///
    /// # Errors
    ///
    /// The same as [`save`](Self::save); the text names the file, and the step that failed.
    pub fn save_to(&self, path: impl AsRef<Path>) -> Result<Saved, SaveError> {
        replace_file(path.as_ref(), |file| self.save(file))
    }

    /// Restores the entries of a file about this limit. The limiter has no keys yet.
    pub(super) fn restore_entries(
        &self,
        saved: &SavedLimit,
        reader: &mut BlockReader<impl Read>,
    ) -> Result<(), RestoreError> {
        let inner = &*self.0;
        let limits = self.limits_in_force();
        let own = limits.labels();
        saved.check(&own)?;
        let time = inner.clock.read();
        let starts_afresh = saved.counter_mark != limits.counter_mark();
        let counters = StoredCounters::alone(&inner.hasher, Arc::clone(&limits));
        reader.entries(time, |entry| {
            match self.instants() {
                _ if starts_afresh => {}
                // The count of a former quota becomes one of a key that nobody asks for.
                Some(LoneLimit { bucket, table }) if entry.weight.blocked_until() == 0 => {
                    let key = KeyHash::of_tag(counters.lone_tag(entry.tag));
                    let bucket = &bucket.read().measured.0;
                    table.restore(bucket, key, time.now, *entry.state.as_instant());
                }
                _ => {
                    let locked = inner.locked(&limits)?;
                    locked.table().restore_entry(entry, time.as_nanos());
                }
            }
            Ok(())
        })?;
        // The keys of a larger bucket. All other tables clamp a key when a request comes.
        if let Some(LoneLimit { bucket, table }) = self.instants()
            && own != saved.labels
        {
            table.fit_to(&bucket.read().measured.0, time.now);
        }
        Ok(())
    }

    fn limits_in_force(&self) -> Arc<TierSet> {
        let limits = unpoisoned(self.0.limits.lock());
        Arc::clone(&limits)
    }

    /// Applies operations of several limiters of one store in one step.
    pub(crate) fn decide_many<'a>(
        of: impl Fn(usize) -> Option<&'a Self>,
        call: &Call<'_>,
    ) -> Result<Decision, LimiterError> {
        StoreTable::decide_many(call, |charge| {
            let locked = of(charge.index())?.stored()?;
            Some((locked.table(), &locked.limit))
        })
    }

    pub(crate) fn shares_store_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some(own), Some(other)) => own.store.is(&other.store),
            _ => false,
        }
    }

    /// The identity of this limiter's part in a receipt of several limits; 0 for a limiter outside a store, which
    /// has none.
    fn limit_identity(&self) -> u64 {
        self.stored()
            .map_or(0, |locked| locked.table().identity_of(&locked.limit))
    }

    /// Whether both count with the same counters of one store.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some(own), Some(other)) => own.limit.counts_with(&other.limit),
            _ => false,
        }
    }

    /// Whether the limiter is in a store and has quotas for this tier.
    pub(crate) fn has_tier(&self, tier: &Tier) -> bool {
        self.stored()
            .is_some_and(|locked| locked.limit.read().limits.knows(tier))
    }
}

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl Limiter for LocalLimiter {
    type Future = Never;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let charge = match call.one() {
            Ok(charge) => charge,
            Err(error) => return Pending::Ready(Err(error)),
        };
        let Some(lone) = self.instants() else {
            return Pending::Ready(self.decide_locked(charge, call));
        };
        if let OpRef::Acquire(units) | OpRef::Reserve(units) = charge.op
            && charge.tier.is_default()
            && call.late.is_zero()
            && let Some(charged) = Limiter::charge(self, charge.class, charge.key, units)
        {
            return Pending::Ready(Ok(charged.decision()));
        }
        Pending::Ready(self.decide_in(lone, charge, call.late))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        self.charge_alone(class, key, units)
    }

    fn facts(&self) -> Facts {
        let mut facts = self.with_limits(TierSet::facts).identified_by(&self.0);
        facts.answers_at_once = true;
        facts
    }

    fn internals(&self) -> Option<&dyn Internals> {
        Some(self)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(LockedLimit { store, limit }) = self.locked.get() {
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
