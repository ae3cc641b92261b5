//! The table of a store: the states of many limits under the locks of its shards, and the limits that are in it.

use std::{
    borrow::Cow,
    collections::HashMap,
    iter,
    sync::{
        self, Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    shard::{
        Locked, Mutex, MutexGuard, SavedEntry, ShardIndex, ShardRoom, Shards, StoreShard,
        StoredCounters, StoredLimit, lock, shard_of_tag,
    },
    store_call::{Changes, Keys, PreparedCall, QuotaCharge, Terms, UsualCall, charge_all},
};
use crate::{
    algorithm::{EvictionWeight, Most, State},
    clock::{ClockReading, SharedClock},
    decision::{Decision, JointDecision},
    error::{ConfigError, LimiterError},
    hash::{KeyHash, KeyHasher},
    key::Key,
    limiter::{
        apply_operation::Block,
        call::{Call, Charge},
        limits_in_force::{ChangingLimits, CounterLabel, NamedQuota, TierSet},
        local::eviction::{Capacity, LogBudget},
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
pub(crate) struct StoreTable {
    shards: Box<[Mutex<StoreShard>]>,
    /// The entries of each shard, once its first key has come.
    entries: usize,
    pub(crate) hasher: KeyHasher,
    pub clock: SharedClock,
    members: sync::Mutex<Members>,
    max_keys: usize,
    /// Each limit's share of a shard: the entries that other limits do not evict.
    share: AtomicUsize,
    /// Whether it is a store's table; otherwise it is that of a limiter.
    is_shared: bool,
    has_warned: AtomicBool,
    evictions: AtomicU64,
    logs: LogBudget,
    /// The instant at which the last block ends. After it requests do not search for blocks; most stores
    /// never have one.
    blocked_until: AtomicU64,
}

impl StoreTable {
    /// The table of a store, or of a limiter whose keys have this number of states.
    pub(crate) fn try_new(
        capacity: Capacity,
        states: Option<usize>,
        clock: SharedClock,
        hasher: KeyHasher,
    ) -> Result<Self, ConfigError> {
        let (count, entries) = capacity.shards(states.unwrap_or(1));
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
            is_shared: states.is_none(),
            has_warned: AtomicBool::new(false),
            evictions: AtomicU64::new(0),
            logs: LogBudget::new(capacity.log_times),
            blocked_until: AtomicU64::new(0),
        })
    }

    /// Adds a limiter, which shares the counts of its name, until it [leaves](Self::leave).
    pub(crate) fn limit(&self, name: Option<&str>, limits: Arc<TierSet>) -> StoredLimit {
        let mut members = unpoisoned(self.members.lock());
        let limit = members.join(&self.hasher, name, limits);
        self.share_out(members.count());
        limit
    }

    /// Puts other quotas of a limit in force.
    pub(crate) fn replace(&self, limit: &StoredLimit, limits: Arc<TierSet>) {
        let mut members = unpoisoned(self.members.lock());
        members.replace(&self.hasher, limit, limits);
    }

    /// Removes a limiter. Its counts stay for another limiter of its name until they are evicted.
    pub(crate) fn leave(&self, limit: &StoredLimit) {
        let mut members = unpoisoned(self.members.lock());
        let is_last = members.leave(&self.hasher, limit);
        self.share_out(members.count());
        for shard in self.shards.iter().filter(|_| is_last) {
            lock(shard).disown(limit.number);
        }
    }

    /// Sets the share of each of `limits` limits.
    fn share_out(&self, limits: usize) {
        if !self.is_shared {
            return;
        }
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
            log::report(Code::STORE_CROWDED, &fault);
        }
    }

    /// Applies an operation of one limit, one of the charges of a call.
    pub(crate) fn decide(
        &self,
        limit: &StoredLimit,
        charge: &Charge<'_>,
        call: &Call<'_>,
    ) -> Result<Decision, LimiterError> {
        let counted = limit.read();
        let chosen = (counted.limits).choose(charge.tier, charge.class, charge.op)?;
        let place_of = |key: &Key| self.place_of(limit, key);
        let rarely = |counted| self.decide_rarely(iter::once((&(limit, counted), charge)), call);
        let Some(usual) = UsualCall::of((limit, &counted), charge, chosen, place_of) else {
            return rarely(counted);
        };
        let mut shard = lock(&self.shards[usual.shard.0]);
        let (terms, mut changes) = (self.terms(call), Changes::default());
        if terms.may_block {
            drop(shard);
            return rarely(counted);
        }
        if !usual.has_one_quota() {
            return Ok(self.charge_several(&usual, shard, &terms));
        }
        let charged = usual.charge_alone(&mut shard, &terms, || self.room(), &mut changes);
        drop(shard);
        self.settle_up(&changes, terms.time, |tag| usual.owns(tag));
        Ok(usual.decision(charged, terms.time))
    }

    /// Takes units by several quotas of a limit.
    #[inline(never)]
    fn charge_several(
        &self,
        usual: &UsualCall<'_>,
        shard: MutexGuard<'_, StoreShard>,
        terms: &Terms,
    ) -> Decision {
        let mut charges = SmallList::<_, FEW_LIMITS>::default();
        usual
            .charges()
            .for_each(|charge| charges.push(Some(charge)));
        self.charge_all(charges.as_mut_slice(), shard, terms)
    }

    /// Applies the operations of a call in one step. Operations that take units take them from all limits, or from none.
    /// No two may have one limit and key.
    pub(crate) fn decide_many<'a>(
        call: &Call<'a>,
        limit_of: impl Fn(&Charge<'_>) -> Option<(&'a Self, &'a StoredLimit)>,
    ) -> Result<Decision, LimiterError> {
        if let [charge] = call.charges
            && let Some((own, limit)) = limit_of(charge)
        {
            return own.decide(limit, charge, call);
        }
        let (mut table, room) = (None, call.charges.len());
        let mut limits = SmallList::<_, FEW_LIMITS>::defaults(room);
        for (place, charge) in limits.as_mut_slice().iter_mut().zip(call.charges) {
            if let Some((own, limit)) = limit_of(charge) {
                *place = Some((limit, limit.read()));
                table = Some(own);
            }
        }
        let table = table.ok_or_else(|| LimiterError::unsupported("no limiter in a store"))?;
        let limits = limits.as_slice().iter().zip(call.charges);
        let limits = limits.filter_map(|(limit, charge)| Some((limit.as_ref()?, charge)));
        let mut places = SmallList::<_, FEW_LIMITS>::with_room(room);
        let mut usual = SmallList::<_, FEW_LIMITS>::with_room(room);
        for ((limit, counted), charge) in limits.clone() {
            let chosen = (counted.limits).choose(charge.tier, charge.class, charge.op)?;
            let place_of = |key: &Key| table.place_of(limit, key);
            let Some(one) = UsualCall::of((limit, counted), charge, chosen, place_of) else {
                return table.decide_rarely(limits, call);
            };
            places.push(one.shard);
            usual.push(Some(one));
        }
        let mut charges = SmallList::<_, FEW_LIMITS>::with_room(room);
        for usual in usual.as_slice().iter().flatten() {
            usual
                .charges()
                .for_each(|charge| charges.push(Some(charge)));
        }
        let shards = Locked::all(&table.shards, places.as_mut_slice());
        let terms = table.terms(call);
        if !terms.may_block {
            return Ok(table.charge_all(charges.as_mut_slice(), shards, &terms));
        }
        drop(shards);
        table.decide_rarely(limits, call)
    }

    /// Applies operations of which some do more than a [usual](UsualCall) call.
    #[cold]
    #[inline(never)]
    fn decide_rarely<'a>(
        &self,
        limits: impl Iterator<
            Item = (
                &'a (&'a StoredLimit, Cow<'a, Arc<StoredCounters>>),
                &'a Charge<'a>,
            ),
        >,
        call: &Call<'_>,
    ) -> Result<Decision, LimiterError> {
        let mut places = SmallList::<_, FEW_LIMITS>::default();
        let mut calls = SmallList::<_, FEW_LIMITS>::default();
        for ((limit, counted), charge) in limits {
            let op = charge.op.of_limit(self.identity_of(limit))?;
            let of = self.place_of(limit, charge.key);
            places.push(of.1);
            calls.push(Some(PreparedCall::new(
                (limit, counted),
                &charge.op(op),
                of,
            )?));
        }
        let mut shards = Locked::all(&self.shards, places.as_mut_slice());
        let (calls, terms) = (calls.as_slice(), self.terms(call));
        let mut changes = Changes::default();
        let decision = self.run(calls, &mut shards, &terms, &mut changes);
        drop(shards);
        self.settle_up(&changes, terms.time, |tag| {
            calls.iter().flatten().any(|call| call.owns(tag))
        });
        Ok(decision)
    }

    /// The terms of a call whose shards are locked, so that a state later than now means that the clock stepped back.
    fn terms(&self, call: &Call<'_>) -> Terms {
        let time = self.clock.read().for_timer(call.late);
        Terms {
            time,
            may_block: self.may_block(time.as_nanos()),
            wants: call.wants,
        }
    }

    /// Takes units by quotas whose shards are locked, all or none.
    #[inline(always)]
    fn charge_all(
        &self,
        charges: &mut [Option<QuotaCharge<'_>>],
        mut shards: impl Shards<StoreShard>,
        terms: &Terms,
    ) -> Decision {
        let by = (
            || self.room(),
            |limit: &StoredLimit| self.identity_of(limit),
        );
        let mut changes = Changes::default();
        let decision = charge_all(charges, &mut shards, terms, by, &mut changes);
        drop(shards);
        self.settle_up(&changes, terms.time, |tag| {
            charges.iter().flatten().any(|charge| charge.owns(tag))
        });
        decision
    }

    /// Applies the operations of calls, whose shards are locked: all entries are found first, then the operations that
    /// take units are judged, and then all are concluded.
    #[inline(never)]
    fn run(
        &self,
        calls: &[Option<PreparedCall<'_>>],
        shards: &mut Locked<'_, StoreShard>,
        terms: &Terms,
        changes: &mut Changes,
    ) -> Decision {
        let (time, may_block) = (terms.time, terms.may_block);
        let into = (self.room(), time);
        let mut keys = Keys::of(calls);
        for (at, call) in calls.iter().flatten().enumerate() {
            keys.find(at, call, shards.get(call.shard), may_block, changes);
        }
        let most = calls.iter().flatten().enumerate().filter_map(|(at, call)| {
            let (apply, mut key) = keys.of_call(at, call, shards.get(call.shard), time);
            apply.room(&mut key)
        });
        let room = most.min().unwrap_or(0);
        let mut takes = true;
        for (at, call) in calls.iter().flatten().enumerate() {
            let (apply, mut key) = keys.of_call(at, call, shards.get(call.shard), time);
            if let Some(cost) = apply.cost(room) {
                takes &= apply.judge(&mut key, cost, call.overflows);
            }
        }
        let owns = |tag| calls.iter().flatten().any(|call| call.owns(tag));
        let decision = if let [Some(call)] = calls {
            let (apply, mut key) = keys.of_call(0, call, shards.get(call.shard), time);
            let outcome = apply.conclude(&mut key, apply.cost(room), takes);
            let decision = apply.decision(&outcome, &mut key);
            call.leave(key.states, *key.block, into, owns, changes);
            decision
        } else {
            let mut joint = JointDecision::with_room(calls.len());
            for (at, call) in calls.iter().flatten().enumerate() {
                let limit = self.identity_of(call.limit);
                let (apply, mut key) = keys.of_call(at, call, shards.get(call.shard), time);
                let outcome = apply.conclude(&mut key, apply.cost(room), takes);
                apply.write_to(&mut joint, limit, &outcome, &mut key);
                call.leave(key.states, *key.block, into, owns, changes);
            }
            joint.finish(|at| calls[at].as_ref().is_some_and(|call| call.overflows))
        };
        if changes.blocked_until > 0 {
            // Under the locks, so that the next call on the key sees it.
            let until = changes.blocked_until;
            self.blocked_until.fetch_max(until, Ordering::Relaxed);
        }
        decision
    }

    /// The hash of a key, and the shard of its entries.
    #[inline(always)]
    fn place_of(&self, limit: &StoredLimit, key: &Key) -> (KeyHash, ShardIndex) {
        let key = self.hasher.hash(key);
        (key, limit.shard(key, self.shards.len()))
    }

    /// The identity of a limit of this store in joint receipts.
    pub(crate) fn identity_of(&self, limit: &StoredLimit) -> u64 {
        limit.tag() ^ std::ptr::from_ref(self).addr() as u64
    }

    fn room(&self) -> ShardRoom {
        ShardRoom {
            entries: self.entries,
            is_shared: self.is_shared,
            share: self.share.load(Ordering::Relaxed),
        }
    }

    /// Counts the evictions of a call, and makes room for its logs.
    #[inline]
    fn settle_up(&self, changes: &Changes, time: ClockReading, is_current: impl Fn(u64) -> bool) {
        if changes.evicted > 0 {
            self.evictions.fetch_add(changes.evicted, Ordering::Relaxed);
        }
        let (before, after) = changes.times;
        let grew = self.logs.count(before, after);
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
    pub(crate) fn live_states(&self) -> usize {
        let now = self.clock.now().as_nanos();
        let shards = self.shards.iter();
        shards.map(|shard| lock(shard).live_states(now)).sum()
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// The number of limiters ever added, and the limits: those that are in the store, and those that are awaited.
    ///
    /// # Errors
    ///
    /// If a limit has no name: its first quota.
    pub(crate) fn saved(&self) -> Result<(u64, Vec<SavedLimit>), String> {
        unpoisoned(self.members.lock()).saved()
    }

    /// Visits states and blocks that are not fresh from a place on, while `visit` returns `true`, and at most a few under one
    /// lock. Returns the place of the next.
    pub(crate) fn visit(
        &self,
        (place, from): (usize, usize),
        now: u64,
        visit: impl FnMut((u64, u32), EvictionWeight, &State) -> bool,
    ) -> Option<(usize, usize)> {
        let shard = lock(self.shards.get(place)?);
        let next = shard.visit(from, now, visit);
        Some(if next < shard.len() {
            (place, next)
        } else {
            (place + 1, 0)
        })
    }

    /// Adds the limits of a saved state, whose limiters will be added. Returns their new numbers by those that they had. The
    /// store has no limits yet.
    pub(crate) fn restore_limits(
        &self,
        limiters: u64,
        limits: Vec<SavedLimit>,
    ) -> HashMap<u32, u32> {
        let mut members = unpoisoned(self.members.lock());
        let numbers = members.restore(&self.hasher, limiters, limits);
        drop(members);
        self.share_out(numbers.len());
        numbers
    }

    /// Restores an entry of the limit with this number here.
    pub(crate) fn restore_entry(&self, entry: SavedEntry, now: u64) {
        let room = self.room();
        let until = entry.weight.blocked_until();
        let held = entry.state.times_held();
        let place = shard_of_tag(entry.tag, self.shards.len());
        let mut shard = lock(&self.shards[place.0]);
        let (forgotten, freed) = match shard.make(room) {
            Ok(()) => shard.restore(entry, room.share, now),
            Err(_) => (entry.weight.at(now), 0),
        };
        drop(shard);
        self.blocked_until.fetch_max(until, Ordering::Relaxed);
        self.logs.count(freed, held);
        let evicted = u64::from(forgotten != EvictionWeight::FRESH);
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
    }

    /// Whether a key may be blocked.
    #[inline]
    pub(crate) fn may_block(&self, now: u64) -> bool {
        self.blocked_until.load(Ordering::Relaxed) > now
    }

    /// Nanoseconds until the block of a key ends.
    pub(crate) fn block_left(&self, limit: &StoredLimit, key: KeyHash, now: u64) -> u64 {
        if !self.may_block(now) {
            return 0;
        }
        let counted = limit.read();
        let mut shard = lock(&self.shards[limit.shard(key, self.shards.len()).0]);
        let Some(entry) = shard.find(counted.block_of(key)) else {
            return 0;
        };
        let mut block = Block::from_state(shard.state(entry, &mut []));
        let left = block.left(now, counted.limits.block_for);
        // The clock may have stepped back, and the block stays as short as it is reported.
        let (state, until) = block.to_state();
        let weight = EvictionWeight::of_block(until);
        shard.put(entry, limit.number, state, weight);
        left
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }
}

/// The limits of a store. Limiters of one name are one limit.
#[derive(Debug, Default)]
struct Members {
    limits: HashMap<KeyHash, MemberLimit>,
    /// The numbers of limits that left, to be used again.
    free: Vec<u32>,
    /// The limits of a restored state whose limiters are not added yet.
    awaited: HashMap<KeyHash, SavedLimit>,
    /// The number of limiters ever added.
    limiters: u64,
}

/// A limit and its limiters.
#[derive(Debug)]
struct MemberLimit {
    number: u32,
    name: Option<String>,
    limiters: Vec<LimiterInStore>,
}

/// A limiter of a limit.
#[derive(Debug)]
struct LimiterInStore {
    live: Arc<ChangingLimits<Arc<StoredCounters>>>,
    /// The limiter's quotas without regard to others of its name.
    own: Arc<TierSet>,
    /// The largest values of the limiter's counters in force.
    most: Vec<Most>,
    /// These values when the limiter was added, unless its quotas have changed since.
    first: Option<Vec<Most>>,
}

impl Members {
    /// The number of limits.
    fn count(&self) -> usize {
        self.limits.len()
    }

    /// Adds a limiter.
    fn join(
        &mut self,
        hasher: &KeyHasher,
        name: Option<&str>,
        limits: Arc<TierSet>,
    ) -> StoredLimit {
        let id = StoredLimit::id_of(hasher, name, self.limiters);
        self.limiters += 1;
        // Numbers in use and free ones are contiguous from 1; 0 belongs to no limit.
        let next = self.limits.len() + self.free.len() + self.awaited.len() + 1;
        let awaited = self.awaited.remove(&id);
        if let Some(saved) = &awaited {
            saved.warn_of_changes(&limits.labels());
        }
        let limit = self.limits.entry(id).or_insert_with(|| {
            let number = awaited.map(|saved| saved.number);
            let number = number.or_else(|| self.free.pop());
            MemberLimit {
                number: number.unwrap_or(next as u32),
                name: name.map(str::to_owned),
                limiters: Vec::new(),
            }
        });
        let counters = StoredCounters::new(hasher, id, Arc::clone(&limits));
        let live = Arc::new(ChangingLimits::new(Arc::new(counters)));
        let most = limits.mosts();
        limit.limiters.push(LimiterInStore {
            live: Arc::clone(&live),
            own: limits,
            first: Some(most.clone()),
            most,
        });
        limit.measure(hasher, id);
        StoredLimit::new(id, limit.number, live)
    }

    fn saved(&self) -> Result<(u64, Vec<SavedLimit>), String> {
        let mut limits: Vec<SavedLimit> = self.awaited.values().cloned().collect();
        for limit in self.limits.values() {
            let own = limit.limiters.iter().map(|one| &one.own);
            let Some(name) = limit.name.clone() else {
                let mut quotas = own.flat_map(|limits| &limits.default_tier().quotas);
                return Err(quotas.next().map(ToString::to_string).unwrap_or_default());
            };
            limits.push(SavedLimit {
                number: limit.number,
                name: Some(name),
                counter_mark: 0,
                labels: own.flat_map(|limits| limits.labels()).collect(),
            });
        }
        Ok((self.limiters, limits))
    }

    fn restore(
        &mut self,
        hasher: &KeyHasher,
        limiters: u64,
        limits: Vec<SavedLimit>,
    ) -> HashMap<u32, u32> {
        // Limiters without a name must not get the identity of a former one.
        self.limiters = limiters;
        let mut numbers = HashMap::new();
        for (limit, number) in limits.into_iter().zip(1..) {
            numbers.insert(limit.number, number);
            let id = StoredLimit::id_of(hasher, limit.name.as_deref(), 0);
            self.awaited.insert(id, SavedLimit { number, ..limit });
        }
        numbers
    }

    /// Puts other quotas of a limiter in force. A counter that counts as before keeps its name; the states
    /// of other counters stay until they are fresh.
    fn replace(&mut self, hasher: &KeyHasher, of: &StoredLimit, limits: Arc<TierSet>) {
        let Some(limit) = self.limits.get_mut(&of.id) else {
            return;
        };
        if let Some(member) = limit.limiters.iter_mut().find(|member| member.is_of(of)) {
            member.own = limits;
            (member.most, member.first) = (Vec::new(), None);
        }
        limit.measure(hasher, of.id);
    }

    /// Removes a limiter, and returns whether its limit is gone. The caller must hold the lock of the
    /// members until the limit's entries are cleared, since the number is free from now on.
    fn leave(&mut self, hasher: &KeyHasher, of: &StoredLimit) -> bool {
        let Some(limit) = self.limits.get_mut(&of.id) else {
            return false;
        };
        limit.limiters.retain(|member| !member.is_of(of));
        if limit.limiters.is_empty() {
            self.limits.remove(&of.id);
            self.free.push(of.number);
            return true;
        }
        limit.measure(hasher, of.id);
        false
    }
}

impl MemberLimit {
    /// Sets the largest values of all limiters to the maximum among them.
    fn measure(&mut self, hasher: &KeyHasher, id: KeyHash) {
        let mut all: Vec<NamedQuota> = Vec::new();
        for quota in self.limiters.iter().flat_map(|one| one.own.named_quotas()) {
            if !all.contains(&quota) {
                all.push(quota);
            }
        }
        for member in &mut self.limiters {
            member.measure_with(&all, hasher, id);
        }
    }
}

impl LimiterInStore {
    fn is_of(&self, limit: &StoredLimit) -> bool {
        Arc::ptr_eq(&self.live, &limit.live)
    }

    fn measure_with(&mut self, all: &[NamedQuota], hasher: &KeyHasher, id: KeyHash) {
        let mut limits = TierSet::clone(&self.own);
        limits.include_others(all);
        let most = limits.mosts();
        if most == self.most {
            return;
        }
        self.most = most;
        if self.first.as_ref() == Some(&self.most) {
            // Readers take no lock.
            self.live.return_to_first();
        } else {
            let counters = StoredCounters::new(hasher, id, Arc::new(limits));
            self.live.replace(Arc::new(counters));
        }
    }
}

/// A limit of a saved state: of a store, or of a limiter with a table of its own.
#[derive(Debug, Clone)]
pub(in super::super) struct SavedLimit {
    /// The number of its entries.
    pub(in super::super) number: u32,
    pub(in super::super) name: Option<String>,
    /// The part of the counters' names that is made of numbers.
    pub(in super::super) counter_mark: u32,
    /// The counters of all its limiters.
    pub(in super::super) labels: Vec<CounterLabel>,
}

impl SavedLimit {
    /// Logs the first counter of the limit that counts otherwise than the saved one of its name: it starts
    /// afresh.
    fn warn_of_changes(&self, own: &[CounterLabel]) {
        let mut labels = self.labels.iter();
        let changed = labels.find_map(|label| Some((label, changed(own, label)?)));
        if let Some((label, own)) = changed {
            let fault = format!(
                "{:?} counts its quota {} as \"{}\", and the restored state as \"{}\": algorithm, period, \
                 slices or refill step differ, so this quota starts afresh",
                self.name.as_deref().unwrap_or_default(),
                label.shown_name(),
                own.text,
                label.text
            );
            log::report(Code::STATE_CHANGED, &fault);
        }
    }
}

/// The counter of this name that counts otherwise than `label`, if none of this name counts like it.
pub(in super::super) fn changed<'a>(
    own: &'a [CounterLabel],
    label: &CounterLabel,
) -> Option<&'a CounterLabel> {
    let counts_like = own.iter().any(|own| own.counts_like(label));
    let mut own = own.iter().filter(|_| !counts_like);
    own.find(|own| own.name == label.name)
}
