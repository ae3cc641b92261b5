//! The sharded table: keys with more state than one instant. A shard is what one lock guards.

use std::{
    collections::TryReserveError,
    io::{self, Write},
    mem,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    eviction::Capacity,
    eviction::{self, EntryIndex, candidates},
    eviction::{ENTRIES_SEARCHED, LOGS_SEARCHED, LogBudget},
    hash::KeyHash,
    state_file::{BlockWriter, Layout, scattered},
};
use crate::{
    algorithm::{State, Weight},
    clock::{ClockReading, SharedClock},
    decision::{Decision, Op},
    error::{ConfigError, LimiterError},
    limiter::{
        Tier,
        apply_operation::{Apply, Subject},
        block::Block,
        tier_set::TierSet,
    },
    lock::unpoisoned,
    number_bytes::push_u64,
};

/// A table of keys with more state than one instant: several quotas, windows, a log, a block. Each is
/// updated under the lock of its shard.
///
/// As in the lock-free table, the entry of a fresh key is free, and if none is free the one with the
/// least usage is evicted.
#[derive(Debug)]
pub(super) struct Sharded {
    shards: Box<[Mutex<TableShard>]>,
    /// The entries of each shard, once its first key has come.
    entries: usize,
    evictions: AtomicU64,
    logs: LogBudget,
}

impl Sharded {
    pub(super) fn try_new(capacity: Capacity, limits: &Arc<TierSet>) -> Result<Self, ConfigError> {
        let (count, entries) = capacity.shards();
        let mut shards = Vec::new();
        let room = shards.try_reserve_exact(count);
        room.map_err(|_| capacity.refused())?;
        shards.resize_with(count, || Mutex::new(TableShard::new(Arc::clone(limits))));
        Ok(Self {
            shards: shards.into_boxed_slice(),
            entries,
            evictions: AtomicU64::new(0),
            logs: LogBudget::new(capacity.log_times),
        })
    }

    pub(super) fn decide(
        &self,
        key: KeyHash,
        clock: &SharedClock,
        tier: &Tier,
        op: &Op,
        late: Duration,
    ) -> Result<Decision, LimiterError> {
        let mut shard = lock(&self.shards[key.tag as usize % self.shards.len()]);
        // Read under the lock, so that a state later than now means that the clock stepped back.
        let time = clock.read().for_timer(late);
        let TableShard { limits, entries } = &mut *shard;
        let chosen = limits.choose(tier, op)?;
        let mut own = None;
        let quotas = limits.measured_by(chosen, &mut own)?;
        let request = Apply {
            time,
            limits,
            quotas,
            tier: chosen.index(),
            class: chosen.class(),
            held: &[],
            op,
        };
        let mut grew = false;
        let decision = match entries.find(key) {
            Some(entry) => self.decide_known(entries, entry, &request, &mut grew),
            None => self.decide_new(entries, key, &request, &mut grew),
        };
        drop(shard);
        if grew && self.logs.is_tight() {
            self.relieve(key, time);
        }
        Ok(decision)
    }

    #[inline]
    fn decide_known(
        &self,
        entries: &mut Entries,
        entry: EntryIndex,
        request: &Apply<'_>,
        grew: &mut bool,
    ) -> Decision {
        let before = entries.times_held(entry);
        let decision = request.decide(&mut entries.subject(entry));
        *grew = self.logs.count(before, entries.times_held(entry));
        decision
    }

    /// Decides about a key without an entry, and makes room for it unless it stays fresh. Sets `grew`
    /// to whether logs hold more memory now.
    fn decide_new(
        &self,
        entries: &mut Entries,
        key: KeyHash,
        request: &Apply<'_>,
        grew: &mut bool,
    ) -> Decision {
        let mut states = vec![State::FRESH; request.limits.states()];
        let mut block = Block::NONE;
        let decision = request.decide(&mut Subject {
            states: &mut states,
            block: &mut block,
        });
        let time = request.time;
        if block == Block::NONE && request.limits.weight(&states, time) == Weight::default() {
            return decision;
        }
        if entries.make(self.entries, request.limits).is_err() {
            // Without memory for entries, the key is dropped as if all others weighed more.
            self.evictions.fetch_add(1, Ordering::Relaxed);
            return decision;
        }
        let (entry, forgotten) = entries.least_weighty(request.limits, key, time);
        *grew = self
            .logs
            .count(entries.times_held(entry), times_held(&states));
        entries.put(entry, key.tag, states, block);
        let evicted = forgotten != Weight::default();
        self.evictions
            .fetch_add(u64::from(evicted), Ordering::Relaxed);
        decision
    }

    /// Makes room for a log, without evicting that of the current key.
    #[cold]
    fn relieve(&self, current: KeyHash, time: ClockReading) {
        self.logs.relieve(self.shards.len(), |place, must| {
            let mut shard = lock(&self.shards[place]);
            let TableShard { limits, entries } = &mut *shard;
            let evicted = entries.evict_log(limits, current.tag, must, time);
            let (times, is_live) = evicted?;
            self.evictions
                .fetch_add(u64::from(is_live), Ordering::Relaxed);
            Some(times)
        });
    }

    /// Puts other limits in force, shard by shard. If keys have more counters than before and there is no
    /// memory for them, a shard drops its keys.
    pub(super) fn install(&self, limits: &Arc<TierSet>, kept: &[bool]) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.entries.all_times_held();
            if shard.install(limits, kept).is_err() {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            self.logs.count(before, shard.entries.all_times_held());
        }
    }

    /// Saves all keys that are not fresh, with the states of this layout. Each shard is locked for a few
    /// entries at a time.
    pub(super) fn save<W: Write>(
        &self,
        layout: &Layout,
        time: ClockReading,
        writer: &mut BlockWriter<W>,
    ) -> io::Result<()> {
        let mut known: Option<(Arc<TierSet>, Vec<Option<usize>>)> = None;
        for shard in &self.shards {
            let mut next = 0;
            loop {
                let shard = lock(shard);
                let TableShard { limits, entries } = &*shard;
                // Quotas may change during the save: then other states of an entry have this layout.
                let (_, positions) = match &mut known {
                    Some(known) if Arc::ptr_eq(&known.0, limits) => known,
                    known => {
                        let positions = layout.positions_in(&Layout::of(limits));
                        known.insert((Arc::clone(limits), positions))
                    }
                };
                next = entries.save(limits, positions, next, time, writer);
                let is_last = next >= entries.len();
                drop(shard);
                if writer.is_full() {
                    writer.flush()?;
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Restores a key, unless it is fresh. In a full table the key with the least usage is dropped.
    pub(super) fn restore(
        &self,
        key: KeyHash,
        states: Vec<State>,
        block: Block,
        time: ClockReading,
    ) {
        let mut shard = lock(&self.shards[key.tag as usize % self.shards.len()]);
        let TableShard { limits, entries } = &mut *shard;
        let weight = weight(limits, &states, block, time);
        if weight == Weight::default() {
            return;
        }
        if entries.make(self.entries, limits).is_err() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (entry, forgotten) = match entries.find(key) {
            Some(entry) => (entry, Weight::default()),
            None => entries.least_weighty(limits, key, time),
        };
        let evicted = forgotten != Weight::default();
        self.evictions
            .fetch_add(u64::from(evicted), Ordering::Relaxed);
        if forgotten > weight {
            return;
        }
        self.logs
            .count(entries.times_held(entry), times_held(&states));
        entries.put(entry, key.tag, states, block);
    }

    /// The number of keys that are not fresh at this time. Walks the whole table.
    pub(super) fn live_keys(&self, time: ClockReading) -> usize {
        let shards = self.shards.iter().map(lock);
        shards.map(|shard| shard.live_keys(time)).sum()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

fn lock(shard: &Mutex<TableShard>) -> MutexGuard<'_, TableShard> {
    unpoisoned(shard.lock())
}

/// A shard: the part of the table under one lock.
#[derive(Debug)]
struct TableShard {
    /// The limits in force, under the lock, so that its holder sees one consistent set of quotas.
    limits: Arc<TierSet>,
    entries: Entries,
}

/// The keys of a shard and their states; empty until the first key comes.
#[derive(Debug, Default)]
struct Entries {
    /// The tag of each entry; 0 for an unused one.
    tags: Box<[u64]>,
    blocks: Box<[Block]>,
    /// The states of all entries; each has as many as the limits have states.
    states: Box<[State]>,
    /// The entry at which the next search for logs begins.
    hand: usize,
}

/// The number of times that the logs among `states` have memory for.
fn times_held(states: &[State]) -> usize {
    states.iter().map(State::times_held).sum()
}

pub(super) fn filled<T: Clone>(len: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, value);
    Ok(all.into_boxed_slice())
}

impl TableShard {
    fn new(limits: Arc<TierSet>) -> Self {
        Self {
            limits,
            entries: Entries::default(),
        }
    }

    /// Puts other limits in force. If a key has more counters than before and there is no memory for them,
    /// all keys are dropped.
    fn install(&mut self, limits: &Arc<TierSet>, kept: &[bool]) -> Result<(), TryReserveError> {
        let (before, after) = (self.limits.width(), limits.width());
        self.limits = Arc::clone(limits);
        let mut old = mem::take(&mut self.entries).states_forgotten(before, kept);
        if after > before && old.len() > 0 {
            let mut states = room(old.len(), limits)?;
            for (at, state) in old.states.iter_mut().enumerate() {
                states[at / before * after + at % before] = mem::take(state);
            }
            old.states = states;
        }
        self.entries = old;
        Ok(())
    }

    fn live_keys(&self, time: ClockReading) -> usize {
        let entries = (0..self.entries.tags.len()).map(EntryIndex);
        let weights = entries.map(|entry| self.entries.weight(&self.limits, entry, time));
        weights
            .filter(|weight| *weight != Weight::default())
            .count()
    }
}

/// Allocates the states of `entries` keys under `limits`.
fn room(entries: usize, limits: &TierSet) -> Result<Box<[State]>, TryReserveError> {
    filled(entries.saturating_mul(limits.states()), State::FRESH)
}

/// The weight of a key.
fn weight(limits: &TierSet, states: &[State], mut block: Block, time: ClockReading) -> Weight {
    Weight {
        blocked: block.left(time.as_nanos(), limits.block_for),
        ..limits.weight(states, time)
    }
}

impl Entries {
    /// Allocates this many entries, if there are none yet.
    #[inline]
    fn make(&mut self, entries: usize, limits: &TierSet) -> Result<(), TryReserveError> {
        if self.tags.is_empty() {
            *self = Self {
                tags: filled(entries, 0)?,
                blocks: filled(entries, Block::NONE)?,
                states: room(entries, limits)?,
                hand: 0,
            };
        }
        Ok(())
    }

    /// Resets the states of counters that are not kept; a key has `width` counters.
    fn states_forgotten(mut self, width: usize, kept: &[bool]) -> Self {
        for (state, kept) in self.states.iter_mut().zip(kept[..width].iter().cycle()) {
            if !kept {
                *state = State::FRESH;
            }
        }
        self
    }

    /// The number of entries.
    fn len(&self) -> usize {
        self.tags.len()
    }

    fn states_of(&self, EntryIndex(entry): EntryIndex) -> Range<usize> {
        let width = self.states.len() / self.tags.len();
        entry * width..(entry + 1) * width
    }

    fn subject(&mut self, entry: EntryIndex) -> Subject<'_> {
        let range = self.states_of(entry);
        Subject {
            states: &mut self.states[range],
            block: &mut self.blocks[entry.0],
        }
    }

    fn put(&mut self, entry: EntryIndex, tag: u64, states: Vec<State>, block: Block) {
        self.tags[entry.0] = tag;
        let old = self.subject(entry);
        *old.block = block;
        for (old, new) in old.states.iter_mut().zip(states) {
            *old = new;
        }
    }

    #[inline]
    fn find(&self, key: KeyHash) -> Option<EntryIndex> {
        eviction::find(&self.tags, key)
    }

    /// The entry to replace, and its weight: a free one of the emptier bucket, otherwise the one with the
    /// least weight.
    fn least_weighty(
        &self,
        limits: &TierSet,
        key: KeyHash,
        time: ClockReading,
    ) -> (EntryIndex, Weight) {
        let weigh = |entry| Some(self.weight(limits, entry, time));
        eviction::least_weighty(candidates(key, self.len()), weigh).expect("no entry has to stay")
    }

    fn weight(&self, limits: &TierSet, entry: EntryIndex, time: ClockReading) -> Weight {
        let states = &self.states[self.states_of(entry)];
        weight(limits, states, self.blocks[entry.0], time)
    }

    /// Saves entries from the one with the index `from` on, until the block is full. A saved key has a
    /// state of the entry for each of `positions`. Returns the index of the next entry.
    fn save<W: Write>(
        &self,
        limits: &TierSet,
        positions: &[Option<usize>],
        from: usize,
        time: ClockReading,
        writer: &mut BlockWriter<W>,
    ) -> usize {
        let end = self.len().min(from + ENTRIES_SEARCHED);
        let entry_of = scattered(self.len());
        for number in from..end {
            if writer.is_full() {
                return number;
            }
            let entry = EntryIndex(entry_of(number));
            if self.weight(limits, entry, time) == Weight::default() {
                continue;
            }
            let states = &self.states[self.states_of(entry)];
            writer.entry(|to| {
                push_u64(to, self.tags[entry.0]);
                push_u64(to, time.wall_of(self.blocks[entry.0].to_state().1));
                for position in positions {
                    let state = position.and_then(|position| states.get(position));
                    state.unwrap_or(&State::FRESH).push_to(to, time);
                }
            });
        }
        end
    }

    fn all_times_held(&self) -> usize {
        times_held(&self.states)
    }

    fn times_held(&self, entry: EntryIndex) -> usize {
        times_held(&self.states[self.states_of(entry)])
    }

    /// Evicts the log with the least weight among the next few, except that of `current`; unless `must`,
    /// only a fresh one. Returns the number of times that it had memory for, and whether it was live.
    fn evict_log(
        &mut self,
        limits: &TierSet,
        current: u64,
        must: bool,
        time: ClockReading,
    ) -> Option<(usize, bool)> {
        if self.tags.is_empty() {
            return None;
        }
        let from = self.hand;
        let searched = ENTRIES_SEARCHED.min(self.len());
        self.hand = (from + searched) % self.len();
        let entries = (from..from + searched).map(|entry| EntryIndex(entry % self.len()));
        let others = entries.filter(|entry| ![0, current].contains(&self.tags[entry.0]));
        let logs = others.filter(|entry| self.times_held(*entry) > 0);
        let weighed = logs.map(|entry| (self.weight(limits, entry, time), entry));
        let (weight, entry) = weighed.take(LOGS_SEARCHED).min()?;
        let is_live = weight != Weight::default();
        if is_live && !must {
            return None;
        }
        let held = self.times_held(entry);
        self.subject(entry).states.fill(State::FRESH);
        Some((held, is_live))
    }
}
