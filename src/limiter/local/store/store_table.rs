//! The table of a store: the states of many limits under the locks of its shards.

use std::{
    fmt,
    sync::{
        self, Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    entries::StoreShard,
    locks::{Locked, Mutex, MutexGuard, ShardIndex, lock},
    member_op::{Displaced, MemberOp, PreparedCall, ShardRoom, StoreCall},
    members::Members,
    stored_limit::StoredLimit,
};
use crate::{
    algorithm::Verdict,
    clock::{ClockReading, SharedClock},
    decision::{Decision, MergedDecisions, Op},
    error::{ConfigError, LimiterError},
    limiter::{
        local::{capacity::Capacity, hash::KeyHasher, sliding_log_memory::LogBudget},
        tier_set::TierSet,
    },
    lock::unpoisoned,
    log::{self, Code},
    small_list::SmallList,
};

/// The fewest keys for each limit: a store with fewer is too small to withstand floods.
const KEYS_PER_LIMIT: usize = 8;

/// The number of limits in most calls.
const FEW_LIMITS: usize = 4;

/// The states of many limits.
///
/// Each state and each block is an entry of its own. All entries of one limit and key are in one shard,
/// so that a call on one limit takes one lock.
pub(in super::super) struct StoreTable {
    pub(super) shards: Box<[Mutex<StoreShard>]>,
    /// The entries of each shard, once its first key has come.
    entries: usize,
    pub(in super::super) hasher: KeyHasher,
    pub(in super::super) clock: SharedClock,
    pub(super) members: sync::Mutex<Members>,
    pub(super) max_keys: usize,
    /// Each limit's share of a shard: the entries that other limits do not evict.
    share: AtomicUsize,
    has_warned: AtomicBool,
    pub(super) evictions: AtomicU64,
    pub(super) logs: LogBudget,
    /// The instant at which the last block ends. After it requests do not search for blocks; most stores
    /// never have one.
    pub(super) blocked_until: AtomicU64,
}

impl StoreTable {
    pub(super) fn try_new(
        capacity: Capacity,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        let (count, entries) = capacity.shards();
        let mut shards = Vec::new();
        let room = shards.try_reserve_exact(count);
        room.map_err(|_| capacity.refused())?;
        shards.resize_with(count, || Mutex::new(StoreShard::default()));
        Ok(Self {
            shards: shards.into_boxed_slice(),
            entries,
            hasher,
            clock,
            members: sync::Mutex::default(),
            max_keys: capacity.keys,
            share: AtomicUsize::new(capacity.keys),
            has_warned: AtomicBool::new(false),
            evictions: AtomicU64::new(0),
            logs: LogBudget::new(capacity.log_times),
            blocked_until: AtomicU64::new(0),
        })
    }

    /// Adds a limiter, which shares the counts of its name, until it [leaves](Self::leave).
    pub(in super::super) fn limit(&self, name: Option<&str>, limits: Arc<TierSet>) -> StoredLimit {
        let mut members = unpoisoned(self.members.lock());
        let limit = members.join(&self.hasher, name, limits);
        self.share_out(members.count());
        limit
    }

    /// Puts other quotas of a limit in force.
    pub(in super::super) fn replace(&self, limit: &StoredLimit, limits: Arc<TierSet>) {
        let mut members = unpoisoned(self.members.lock());
        members.replace(&self.hasher, limit, limits);
    }

    /// Removes a limiter. Its counts stay for another limiter of its name until they are evicted.
    pub(in super::super) fn leave(&self, limit: &StoredLimit) {
        let mut members = unpoisoned(self.members.lock());
        let is_last = members.leave(&self.hasher, limit);
        self.share_out(members.count());
        for shard in self.shards.iter().filter(|_| is_last) {
            lock(shard).disown(limit.number);
        }
    }

    /// Sets the share of each of `limits` limits.
    pub(super) fn share_out(&self, limits: usize) {
        let share = (self.max_keys / limits.max(1)).max(1);
        let in_shard = share.div_ceil(self.shards.len());
        self.share.store(in_shard, Ordering::Relaxed);
        let needed = limits.saturating_mul(KEYS_PER_LIMIT);
        if self.max_keys < needed && !self.has_warned.swap(true, Ordering::Relaxed) {
            let fault = format!(
                "{limits} limits count in a store whose max_keys is {}: each has room for {share} \
                 of its counts, and the keys of a flood take the rest; give it max_keys of {needed} \
                 at least",
                self.max_keys
            );
            log::report(Code::StoreCrowded, &fault);
        }
    }

    /// Applies an operation of one limit.
    pub(in super::super) fn decide(&self, call: StoreCall<'_>) -> Result<Decision, LimiterError> {
        let call = self.prepare(call)?;
        let mut shard = lock(&self.shards[call.shard.0]);
        // Read under the lock, so that a state later than now means that the clock stepped back.
        let time = self.clock.read().for_timer(call.call.late);
        let now = time.as_nanos();
        let checks_block = self.checks_block(call.call.op, now);
        let Some((entry, charge)) = call.in_place(&shard, checks_block, time) else {
            return Ok(self.decide_taken(&call, shard, checks_block, time));
        };
        let state = shard.state(entry);
        let before = state.times_held();
        let decision = charge.decide(state);
        let after = call.weigh(&mut shard, entry, time);
        drop(shard);
        self.settle_up(&Displaced::default(), (before, after), time, |tag| {
            call.owns(tag)
        });
        Ok(decision)
    }

    /// Applies an operation of one limit to states that are taken out of their shard.
    #[inline(never)]
    fn decide_taken(
        &self,
        call: &PreparedCall<'_>,
        mut shard: MutexGuard<'_, StoreShard>,
        checks_block: bool,
        time: ClockReading,
    ) -> Decision {
        let mut part = MemberOp::new(call);
        part.take(&mut shard, checks_block);
        let decision = part.decide(time);
        let mut displaced = Displaced::default();
        part.make_room(&mut shard, self.room(), time, &mut displaced);
        self.note_block(&part);
        let (before, after) = part.put(&mut shard, time);
        drop(shard);
        self.settle_up(&displaced, (before, after), time, |tag| call.owns(tag));
        decision
    }

    /// Applies operations of several limits in one step, each limit with one key. Operations that take
    /// units take them from all limits, or from none. No two may have one limit and key.
    pub(in super::super) fn decide_many<'a>(
        calls: impl Iterator<Item = (&'a Self, StoreCall<'a>)>,
    ) -> Result<Decision, LimiterError> {
        let mut table = None;
        let room = calls.size_hint().1.unwrap_or_default();
        let mut prepared = SmallList::<_, FEW_LIMITS>::with_room(room);
        let mut places = SmallList::<_, FEW_LIMITS>::with_room(room);
        // Not a `for` loop, which would copy each call out of the iterators.
        let mut calls = calls;
        calls.try_for_each(|(own, call)| {
            let call = own.prepare(call)?;
            places.push(call.shard);
            prepared.push(Some(call));
            table = Some(own);
            Ok::<_, LimiterError>(())
        })?;
        let table = table.ok_or_else(|| LimiterError::unsupported("no limiter in a store"))?;
        Ok(table.decide_prepared(prepared.as_slice(), places.as_mut_slice()))
    }

    /// Applies the operations of several limits, each on a key of the shard at its place.
    fn decide_prepared(
        &self,
        calls: &[Option<PreparedCall<'_>>],
        places: &mut [ShardIndex],
    ) -> Decision {
        let mut shards = Locked::all(&self.shards, places);
        let late = calls.iter().flatten().map(|call| call.call.late).min();
        let time = self.clock.read().for_timer(late.unwrap_or_default());
        let in_place = self.decide_in_place(calls, &mut shards, time);
        let Some((decision, times)) = in_place else {
            return self.decide_all_taken(calls, shards, time);
        };
        drop(shards);
        self.settle_up(&Displaced::default(), times, time, |tag| {
            calls.iter().flatten().any(|call| call.owns(tag))
        });
        decision
    }

    /// Takes the units of several limits, each from the state of its entry. Returns the number of times
    /// that the logs had memory for before, and have memory for now. `None` if one of the states has no
    /// entry, or a limit has several quotas or blocks.
    #[inline]
    fn decide_in_place(
        &self,
        calls: &[Option<PreparedCall<'_>>],
        shards: &mut Locked<'_, StoreShard>,
        time: ClockReading,
    ) -> Option<(Decision, (usize, usize))> {
        let now = time.as_nanos();
        if calls.len() < 2 {
            return None;
        }
        let mut found = SmallList::<_, FEW_LIMITS>::with_room(calls.len());
        for call in calls.iter().flatten() {
            let checks_block = self.checks_block(call.call.op, now);
            let (entry, charge) = call.in_place(shards.get(call.shard), checks_block, time)?;
            found.push(Some((call, entry, charge, Verdict::FITS)));
        }
        let found = found.as_mut_slice();
        // After all entries are found: a judgement may shrink a log.
        let (mut takes, mut before, mut after) = (true, 0, 0);
        for (call, entry, charge, verdict) in found.iter_mut().flatten() {
            let state = shards.get(call.shard).state(*entry);
            before += state.times_held();
            *verdict = charge.judge(state);
            takes &= verdict.fits();
        }
        let mut merged = MergedDecisions::with_room(calls.len());
        for (call, entry, charge, verdict) in found.iter().flatten() {
            let shard = shards.get(call.shard);
            let limit = self.identity_of(call.call.limit);
            charge.conclude(shard.state(*entry), *verdict, takes, limit, &mut merged);
            after += call.weigh(shard, *entry, time);
        }
        Some((merged.finish(), (before, after)))
    }

    /// Applies the operations of several limits to states that are taken out of their shards.
    #[inline(never)]
    fn decide_all_taken(
        &self,
        calls: &[Option<PreparedCall<'_>>],
        mut shards: Locked<'_, StoreShard>,
        time: ClockReading,
    ) -> Decision {
        let now = time.as_nanos();
        let mut parts = SmallList::<_, FEW_LIMITS>::with_room(calls.len());
        for call in calls.iter().flatten() {
            let mut part = MemberOp::new(call);
            let checks_block = self.checks_block(call.call.op, now);
            part.take(shards.get(part.shard), checks_block);
            parts.push(Some(part));
        }
        let parts = parts.as_mut_slice();
        let decision = self.decide_together(parts, time);
        let mut displaced = Displaced::default();
        for part in parts.iter_mut().flatten() {
            let shard = shards.get(part.shard);
            part.make_room(shard, self.room(), time, &mut displaced);
            self.note_block(part);
        }
        let mut times = (0, 0);
        for part in parts.iter_mut().flatten() {
            let (before, after) = part.put(shards.get(part.shard), time);
            times = (times.0 + before, times.1 + after);
        }
        drop(shards);
        self.settle_up(&displaced, times, time, |tag| {
            calls.iter().flatten().any(|call| call.owns(tag))
        });
        decision
    }

    /// Applies the operations of all members. Their shards are locked.
    fn decide_together(&self, parts: &mut [Option<MemberOp<'_>>], time: ClockReading) -> Decision {
        if let [Some(part)] = parts {
            return part.decide(time);
        }
        let room = parts.iter_mut().flatten().filter_map(|part| {
            let Op::AcquireUpTo(most) = part.call.op else {
                return None;
            };
            Some((*most).min(part.available(time).max(1)))
        });
        let room = room.min().unwrap_or(0);
        let mut takes = true;
        for part in parts.iter_mut().flatten() {
            let fits = match part.call.op {
                Op::Acquire(cost) | Op::Reserve(cost) => part.judge(*cost, time),
                Op::AcquireUpTo(_) => part.judge(room, time),
                _ => true,
            };
            takes &= fits;
        }
        let mut merged = MergedDecisions::with_room(parts.len());
        for part in parts.iter_mut().flatten() {
            let limit = self.identity_of(part.call.limit);
            part.conclude(takes, time, limit, &mut merged);
        }
        merged.finish()
    }

    #[inline]
    fn prepare<'a>(&self, call: StoreCall<'a>) -> Result<PreparedCall<'a>, LimiterError> {
        let shard = call.limit.shard(call.key, self.shards.len());
        PreparedCall::new(call, shard)
    }

    /// The identity of a limit of this store in joint receipts.
    pub(in super::super) fn identity_of(&self, limit: &StoredLimit) -> u64 {
        limit.tag() ^ std::ptr::from_ref(self).addr() as u64
    }

    pub(super) fn room(&self) -> ShardRoom {
        ShardRoom {
            entries: self.entries,
            share: self.share.load(Ordering::Relaxed),
        }
    }

    fn checks_block(&self, op: &Op, now: u64) -> bool {
        matches!(op, Op::Block(_) | Op::Reset) || self.blocked_until.load(Ordering::Relaxed) > now
    }

    /// Raises the instant at which the last block ends. Called under the lock of the key's shard, so that
    /// the next call on the key sees it.
    fn note_block(&self, part: &MemberOp<'_>) {
        let until = part.blocked_until();
        if until > 0 {
            self.blocked_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Counts the evictions of a call, and makes room for its logs.
    #[inline]
    fn settle_up(
        &self,
        displaced: &Displaced,
        (before, after): (usize, usize),
        time: ClockReading,
        is_current: impl Fn(u64) -> bool,
    ) {
        if displaced.live > 0 {
            self.evictions.fetch_add(displaced.live, Ordering::Relaxed);
        }
        let grew = self.logs.count(before + displaced.times, after);
        if grew && self.logs.is_tight() {
            self.logs.relieve(self.shards.len(), |place, must| {
                let mut shard = lock(&self.shards[place]);
                let evicted = shard.evict_log(&is_current, must, time.as_nanos());
                let (times, is_live) = evicted?;
                self.evictions
                    .fetch_add(u64::from(is_live), Ordering::Relaxed);
                Some(times)
            });
        }
    }

    /// The number of states and blocks that are not fresh. Walks the whole table.
    pub(super) fn live_states(&self) -> usize {
        let now = self.clock.now().as_nanos();
        let shards = self.shards.iter();
        shards.map(|shard| lock(shard).live_states(now)).sum()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for StoreTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTable").finish_non_exhaustive()
    }
}
