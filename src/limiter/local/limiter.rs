//! `LocalLimiter`: the limiter in this process.

use std::{
    fmt,
    io::{self, Read, Write},
    path::Path,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use super::{
    eviction::Capacity,
    hash::{KeyHash, KeyHasher},
    lock_free_bucket_table::{Blocks, Charged, LockFree, LoneLimit},
    sharded::Sharded,
    state_file::{
        BlockReader, BlockWriter, FileHeader, Layout, LimiterHeader, RestoreError, SaveError,
        SaveErrorKind, Saved, replace_file,
    },
    store::{LocalStore, StoreCall, StoreTable, StoredLimit},
    swappable_limits::ChangingLimits,
};
use crate::{
    algorithm::{State, TokenBucket},
    clock::{ClockReading, SharedClock},
    decision::{Decision, Op, Policy, Receipt},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::Key,
    limiter::{
        Facts, Limiter, Never, Pending, Tier,
        apply_operation::denied_for,
        block::{self, Block},
        limiter::one_operation,
        limiter::{ErasedMember, MemberCall},
        tier_set::{Chosen, SingleBucket, TierSet, check_block, unsupported},
    },
    lock::unpoisoned,
    number_bytes::{push_u64, take_u64},
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
/// limiter, taken from the system as keys come. Windows, logs, blocks and several quotas take more, see
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
    policies: Vec<Policy>,
    clock: SharedClock,
    hasher: KeyHasher,
    capacity: Capacity,
    /// The limits in force; locked during a change.
    limits: Mutex<Arc<TierSet>>,
    /// The lock-free table, if one instant is the whole state of a key.
    instants: Option<LoneLimit>,
    /// The keys that were blocked by hand while the lock-free table is in use.
    blocks: Blocks,
    /// The sharded table, if one instant is not enough, from the start or since a change of quota.
    subjects: OnceLock<Sharded>,
    /// The table of a store, instead of the limiter's own tables.
    stored: Option<(LocalStore, StoredLimit)>,
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
        self.take(Priority::CRITICAL, key, cost)
            .unwrap_or_else(|| self.decide(key, &Op::Acquire(cost)))
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] is their number. Denied if there
    /// are none.
    #[must_use = "the decision may be a denial"]
    pub fn acquire_up_to(&self, key: &Key, most: u64) -> Decision {
        self.decide(key, &Op::AcquireUpTo(most))
    }

    /// Decides like [`acquire`](Self::acquire) and takes nothing.
    pub fn peek(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion. The outcome is that of
    /// [`acquire`](Self::acquire).
    pub fn hit(&self, key: &Key, cost: u64) -> Decision {
        self.decide(key, &Op::Hit(cost))
    }

    /// Refunds `cost` units. With the receipt of the decision that charged them, at most its charge less
    /// the units that have returned since; without a receipt, units of the newest charge.
    ///
    /// A receipt of several limits that were [charged together](crate::limiter::JointLimiter) counts
    /// with this limit's share. Without a share, nothing is refunded; through the trait [`Limiter`] that
    /// is an error.
    pub fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Decision {
        let op = Op::Refund(cost, receipt);
        let own = op.of_limit(self.limit_identity()).ok().flatten();
        self.decide(key, own.as_ref().unwrap_or(&op))
    }

    /// Denies the key everything for this time from now on, whatever its quotas hold; zero ends a block,
    /// also one that a denial started.
    ///
    /// # Errors
    ///
    /// If the block is longer than 18 years.
    pub fn block(&self, key: &Key, block: Duration) -> Result<Decision, LimiterError> {
        self.decide_in(&Tier::DEFAULT, key, &Op::Block(block), Duration::ZERO)
    }

    /// Resets the key to its initial state, in all tiers, and ends its block. The decision has the quotas of
    /// a fresh key.
    pub fn reset(&self, key: &Key) -> Decision {
        self.decide(key, &Op::Reset)
    }

    /// Takes units by a lone token bucket, in one step without locks: what most requests do. `None` if
    /// there is more to do, and nothing was taken.
    #[inline(never)]
    fn charge(
        &self,
        lone: &LoneLimit,
        bucket: &TokenBucket,
        class: Priority,
        key: &Key,
        units: u64,
    ) -> Option<Charged> {
        // The clock first: the CPU hashes while it waits for the time.
        let now = self.0.clock.now();
        let hash = self.0.hasher.hash(key);
        if self.0.blocks.are_any(now.as_nanos()) {
            return None;
        }
        lone.table.charge(hash, now, bucket, class, units)
    }

    #[inline]
    fn take(&self, class: Priority, key: &Key, units: u64) -> Option<Decision> {
        let lone = self.instants()?;
        let measured @ (bucket, _) = lone.token_bucket()?;
        let charged = self.charge(lone, bucket, class, key, units)?;
        Some(charged.decision(class, measured))
    }

    fn decide(&self, key: &Key, op: &Op) -> Decision {
        self.decide_by_tables(&Tier::DEFAULT, key, op, Duration::ZERO)
            .expect("there is always a default tier")
    }

    /// Decides the cases apart from a [charge](Self::charge): another tier, an operation that does not just
    /// take units, a state of more than one instant, or a late timer.
    #[inline(never)]
    fn decide_in(
        &self,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let own = op.of_limit(self.limit_identity())?;
        let op = own.as_ref().unwrap_or(op);
        check_block(op)?;
        // A lone bucket has no window to count in, and may be a queue.
        if self.instants().is_some() && !self.supports(op) {
            return Err(unsupported(op));
        }
        self.decide_by_tables(tier, key, op, late)
    }

    fn decide_by_tables(
        &self,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        match self.instants() {
            Some(lone) => self.decide_alone(lone, tier, key, op, late),
            None => self.decide_locked(tier, key, op, late),
        }
    }

    fn supports(&self, op: &Op) -> bool {
        !matches!(op, Op::Count(_) | Op::Spend(_)) || self.with_limits(|limits| limits.supports(op))
    }

    /// The quota and the lock-free table, if that table is in use.
    #[inline]
    fn instants(&self) -> Option<&LoneLimit> {
        let in_force = self.0.subjects.get().is_none();
        self.0.instants.as_ref().filter(|_| in_force)
    }

    /// Decides any operation by a lone bucket, or by a request's own quota, the only other tier of a
    /// lock-free table.
    fn decide_alone(
        &self,
        lone: &LoneLimit,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let class = tier.priority();
        if tier.request().is_none() && !tier.has_default_quotas() {
            return Err(tier.unknown());
        }
        let time = ClockReading::alike(self.0.clock.now()).for_timer(late);
        let hash = self.0.hasher.hash(key);
        let bucket = lone.bucket.read();
        let chosen = match tier.request() {
            Some(request) => Chosen::Request(bucket.own.fit(request)),
            None => Chosen::Tier(0),
        };
        let chosen = chosen.in_class(class);
        Ok(self.decide_rarely(hash, time, (&lone.table, &bucket), chosen, op))
    }

    /// Decides any operation by any quota. Checks for blocks by hand, which are not in the table.
    #[cold]
    #[inline(never)]
    fn decide_rarely(
        &self,
        hash: KeyHash,
        time: ClockReading,
        (table, quota): (&LockFree, &SingleBucket),
        chosen: Chosen,
        op: &Op,
    ) -> Decision {
        let Inner {
            blocks,
            capacity,
            subjects,
            ..
        } = &*self.0;
        match op {
            Op::Block(length) => blocks.set(hash, time.as_nanos(), *length, capacity.keys),
            Op::Reset => blocks.set(hash, time.as_nanos(), Duration::ZERO, capacity.keys),
            _ => {}
        }
        if let (Op::Block(_) | Op::Reset, Some(subjects)) = (op, subjects.get()) {
            // The quota has changed since, and the sharded table stores the blocks now.
            let decided = subjects.decide(hash, &self.0.clock, &Tier::DEFAULT, op, Duration::ZERO);
            return decided.expect("there is always a default tier");
        }
        let blocked = blocks.left(hash, time.as_nanos());
        let instead = block::instead_of(op).filter(|_| blocked > 0);
        let done = instead.as_ref().unwrap_or(op);
        let chosen = chosen.by_receipt(op, 1, Some(&quota.own));
        let request = match chosen.of_all() {
            Chosen::Request(fitted) => quota.of_request(fitted),
            _ => None,
        };
        let measured = request.as_ref().unwrap_or(&quota.measured);
        let decision = table.decide_in(chosen.class(), hash, time, measured, done);
        let decision = decision.in_tier(chosen.index());
        match op {
            Op::Refund(..) | Op::Settle(..) => decision,
            _ => denied_for(decision, blocked),
        }
    }

    /// The store in which the limiter counts, and its limit there.
    fn stored(&self) -> Option<&(LocalStore, StoredLimit)> {
        self.0.stored.as_ref()
    }

    fn decide_locked(
        &self,
        tier: &Tier,
        key: &Key,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let key = self.0.hasher.hash(key);
        if let Some((store, limit)) = &self.0.stored {
            return store.table().decide(StoreCall {
                limit,
                key,
                tier,
                op,
                late,
            });
        }
        let Some(subjects) = self.0.subjects.get() else {
            return Err(tier.unknown());
        };
        subjects.decide(key, &self.0.clock, tier, op, late)
    }

    pub(super) fn from_parts(
        limits: TierSet,
        capacity: Capacity,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        let limits = Arc::new(limits);
        let subjects = OnceLock::new();
        let stored = None;
        let instants = match limits.single_bucket() {
            Some(quota) => Some(LoneLimit {
                bucket: ChangingLimits::new(quota),
                table: LockFree::try_new(capacity, clock.now())?,
            }),
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
            hasher,
            capacity,
            limits: Mutex::new(limits),
            instants,
            subjects,
            stored,
        })))
    }

    /// A limiter that counts in a store.
    pub(super) fn in_store(limits: TierSet, name: Option<&str>, store: &LocalStore) -> Self {
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

    /// A limiter with these quotas and this clock, for another number of keys, with a table of its own.
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
        let hasher = KeyHasher::new(None);
        Self::from_parts(
            TierSet::clone(&limits),
            capacity,
            inner.clock.clone(),
            hasher,
        )
    }

    /// The number of keys that are not fresh.
    ///
    /// This walks the whole table, in about a millisecond for 262,144 keys: use it for a metrics scrape,
    /// not for every request. For a limiter in a store it is the [store's](LocalStore::tracked_keys)
    /// number.
    pub fn tracked_keys(&self) -> usize {
        if let Some((store, _)) = &self.0.stored {
            return store.tracked_keys();
        }
        let time = self.0.clock.read();
        match (self.0.subjects.get(), &self.0.instants) {
            (Some(subjects), _) => subjects.live_keys(time),
            (None, Some(lone)) => (lone.table).live_keys(&lone.bucket.read().measured.0, time.now),
            (None, None) => 0,
        }
    }

    /// The number of keys that were evicted before they were fresh, since the start. More than a few mean
    /// that `max_keys` is too small for the traffic, or that somebody floods it. For a limiter in a store
    /// it is the [store's](LocalStore::evictions) number.
    pub fn evictions(&self) -> u64 {
        if let Some((store, _)) = &self.0.stored {
            return store.evictions();
        }
        let instants = self.0.instants.as_ref();
        let instants = instants.map(|lone| lone.table.evictions());
        let subjects = self.0.subjects.get().map(Sharded::evictions);
        instants.unwrap_or(0) + subjects.unwrap_or(0)
    }

    /// Changes the quota of this name (`default` for one that stands alone and was given none) in
    /// the default tier, for this limiter and all its clones.
    ///
    /// If the limit, burst, queue or soft share changes, each key keeps its state, at most as much as the
    /// new quota holds, or the largest quota of another tier that shares the counter. So a raised limit
    /// does not free exhausted keys: a bucket gets its next unit at the new rate, windows and logs have
    /// the new limit less their count. That is so with [`OnChange::Fresh`](crate::OnChange::Fresh), too;
    /// [`reset`](Self::reset) frees one key.
    /// [`QuotaChange`](crate::limiter::QuotaChange) computes the effect of a change. Requests that
    /// [wait](crate::RateLimitLayer::wait) retry at the end of their wait, not earlier, and later
    /// requests of their key queue behind them.
    ///
    /// If the algorithm, period, slices or refill step changes, the quota gets another counter: that of
    /// another tier that counts alike, or a fresh one. The old counts are dropped; a
    /// [store](crate::LocalStore) keeps them until they have returned, and a quota that is changed back
    /// continues with them. Headers show the new quota from the next decision on. Requests that are open
    /// during the change refund to a bucket only units that its new numbers could have charged, see
    /// [`Receipt`](crate::Receipt).
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
        if let Some((store, limit)) = &inner.stored {
            let limits = Arc::new(limits);
            store.table().replace(limit, Arc::clone(&limits));
            *current = limits;
            return Ok(());
        }
        let limits = Arc::new(limits);
        match (
            inner.subjects.get(),
            &inner.instants,
            limits.single_bucket(),
        ) {
            (None, Some(lone), Some(bucket)) => lone.change(bucket, &kept, inner.clock.now()),
            (None, ..) => {
                let made = Sharded::try_new(inner.capacity, &limits)?;
                let made = inner.subjects.get_or_init(|| made);
                for (key, left) in inner.blocks.take(inner.clock.now().as_nanos()) {
                    let block = Op::Block(left);
                    drop(made.decide(key, &inner.clock, &Tier::DEFAULT, &block, Duration::ZERO));
                }
            }
            (Some(subjects), ..) => subjects.install(&limits, &kept),
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
        if inner.stored.is_some() {
            return Err(SaveError::new(
                SaveErrorKind::InStore,
                "this limiter counts in a store, which saves all its limiters together: call \
                 LocalStore::save",
            ));
        }
        let time = inner.clock.read();
        let limits = self.limits_in_force();
        let layout = Layout::of(&limits);
        let header = FileHeader {
            saved_at: time.wall,
            max_keys: inner.capacity.keys as u64,
            hash_key: inner.hasher.key(),
            of: LimiterHeader {
                counter_mark: limits.counter_mark(),
                layout,
            },
        };
        let mut writer = BlockWriter::begin(to, &header.to_bytes())?;
        self.save_entries(&header.of.layout, time, &mut writer)?;
        let (entries, bytes) = writer.finish()?;
        Ok(Saved {
            entries,
            bytes,
            at: time.wall,
        })
    }

    fn save_entries(
        &self,
        layout: &Layout,
        time: ClockReading,
        writer: &mut BlockWriter<impl Write>,
    ) -> io::Result<()> {
        let inner = &*self.0;
        match (self.instants(), inner.subjects.get()) {
            (Some(lone), _) => {
                // Not a guard: a change of quota would wait for it, and all requests for the change.
                let (bucket, _) = lone.bucket.read().measured;
                let mut blocks = inner.blocks.all(time.as_nanos());
                lone.table
                    .save(&bucket, time.now, writer, |to, tag, instant| {
                        let block = blocks.remove(&tag).unwrap_or(Block::NONE);
                        push_instant(to, layout, (tag, block, instant), time);
                    })?;
                for (tag, block) in blocks {
                    writer.entry(|to| push_instant(to, layout, (tag, block, 0), time));
                }
            }
            (None, Some(subjects)) => subjects.save(layout, time, writer)?,
            (None, None) => {}
        }
        Ok(())
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

    /// Restores the entries of a file with this header. The limiter has no keys yet.
    pub(super) fn restore_entries(
        &self,
        header: &FileHeader<LimiterHeader>,
        reader: &mut BlockReader<impl Read>,
    ) -> Result<(), RestoreError> {
        let limits = self.limits_in_force();
        let own = Layout::of(&limits);
        let saved = &header.of.layout;
        own.check_saved(saved)?;
        let positions = own.positions_in(saved);
        let time = self.0.clock.read();
        let starts_afresh = header.of.counter_mark != limits.counter_mark();
        reader.entries(|bytes| {
            let key = KeyHash::of_tag(take_u64(bytes)?);
            let block = Block::from_instant(time.of_wall(take_u64(bytes)?));
            let states = (0..saved.states()).map(|_| State::take_from(bytes, time));
            let mut states: Vec<State> = states.collect::<Option<_>>()?;
            if !starts_afresh {
                let own = positions.iter().map(|position| {
                    let state = position.and_then(|position| states.get_mut(position));
                    state.map(std::mem::take).unwrap_or_default()
                });
                let own = own.collect();
                self.restore_entry(key, own, block, time);
            }
            Some(())
        })?;
        // The keys of a larger bucket. All other tables clamp a key when a request comes.
        if let Some(LoneLimit { bucket, table }) = self.instants()
            && own != *saved
        {
            table.fit_to(&bucket.read().measured.0, time.now);
        }
        Ok(())
    }

    fn limits_in_force(&self) -> Arc<TierSet> {
        let limits = unpoisoned(self.0.limits.lock());
        Arc::clone(&limits)
    }

    fn restore_entry(&self, key: KeyHash, states: Vec<State>, block: Block, time: ClockReading) {
        let inner = &*self.0;
        let nanos = time.as_nanos();
        if let Some(subjects) = inner.subjects.get() {
            subjects.restore(key, states, block, time);
        } else if let Some(LoneLimit { bucket, table }) = &inner.instants {
            let (bucket, _) = &bucket.read().measured;
            for state in &states {
                table.restore(bucket, key, time.now, *state.as_instant());
            }
            if block.to_state().1 > nanos {
                inner.blocks.put(key, nanos, block, inner.capacity.keys);
            }
        }
    }

    /// Applies operations of several limiters of one store in one step.
    pub(crate) fn decide_many<'a>(
        calls: impl Iterator<Item = MemberCall<'a, Self>>,
    ) -> Result<Decision, LimiterError> {
        StoreTable::decide_many(calls.filter_map(|call| {
            let (store, limit) = call.limiter.stored()?;
            let table = store.table();
            let call = StoreCall {
                limit,
                key: table.hasher.hash_bytes(call.key),
                tier: call.tier,
                op: call.op,
                late: call.late,
            };
            Some((table, call))
        }))
    }

    pub(crate) fn shares_store_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some((store, _)), Some((other, _))) => store.is(other),
            _ => false,
        }
    }

    /// The identity of this limiter's share in a joint receipt; 0 for a limiter outside a store, which
    /// has no share.
    fn limit_identity(&self) -> u64 {
        self.stored()
            .map_or(0, |(store, limit)| store.table().identity_of(limit))
    }

    /// Whether both count with the same counters of one store.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        match (self.stored(), other.stored()) {
            (Some((_, limit)), Some((_, other))) => limit.counts_with(other),
            _ => false,
        }
    }

    /// Whether the limiter is in a store and has quotas for this tier.
    pub(crate) fn has_tier(&self, tier: &Tier) -> bool {
        self.stored()
            .is_some_and(|(_, limit)| limit.read().limits.knows(tier))
    }
}

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl Limiter for LocalLimiter {
    type Future = Never;

    #[inline]
    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    #[inline]
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        if let Op::Acquire(units) | Op::Reserve(units) = op
            && let Some(class) = tier.default_class()
            && let Some(decision) = self.take(class, key, units)
        {
            return Pending::Ready(Ok(decision));
        }
        Pending::Ready(self.decide_in(tier, key, &op, Duration::ZERO))
    }

    fn apply_late(
        &self,
        tier: &Tier,
        key: &Key,
        ops: &[Op],
        late: Duration,
    ) -> Pending<Self::Future> {
        Pending::Ready(one_operation(ops).and_then(|op| self.decide_in(tier, key, op, late)))
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn facts(&self) -> Facts {
        self.with_limits(TierSet::facts).identified_by(&self.0)
    }

    fn member(&self) -> Option<&dyn ErasedMember> {
        Some(self)
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

/// Writes an entry of a lone bucket: its tag, its block, and its instant.
fn push_instant(
    to: &mut Vec<u8>,
    layout: &Layout,
    (tag, block, instant): (u64, Block, u64),
    time: ClockReading,
) {
    push_u64(to, tag);
    push_u64(to, time.wall_of(block.to_state().1));
    let states = layout.labels.iter().map(|label| match label {
        Some(_) => State::Instant(instant),
        None => State::FRESH,
    });
    states.for_each(|state| state.push_to(to, time));
}
