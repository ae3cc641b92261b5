//! The sharded table: keys with more state than one instant.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    capacity::Capacity,
    eviction::EntryIndex,
    hash::KeyHash,
    shard::{Entries, TableShard, times_held, weight},
    sliding_log_memory::LogBudget,
    state_file::{BlockWriter, Layout},
};
use crate::{
    algorithm::{Counts, State, Weight},
    clock::{ClockReading, SharedClock},
    decision::Decision,
    decision::Op,
    error::{ConfigError, LimiterError},
    limiter::{
        Tier,
        apply_operation::{Apply, Subject},
        block::Block,
        tier_set::TierSet,
    },
    lock::unpoisoned,
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
            meters: &quotas.meters,
            tier: chosen.index(),
            op,
        };
        let mut grew = false;
        let decision = if chosen.class().is_critical() {
            self.decide_by(entries, key, &request, &mut grew)
        } else {
            let meters = quotas.meters_of(chosen.class());
            self.decide_by(entries, key, &request.with_meters(&meters), &mut grew)
        };
        drop(shard);
        if grew && self.logs.is_tight() {
            self.relieve(key, time);
        }
        Ok(decision)
    }

    #[inline]
    fn decide_by<M: Counts<State = State>>(
        &self,
        entries: &mut Entries,
        key: KeyHash,
        request: &Apply<'_, M>,
        grew: &mut bool,
    ) -> Decision {
        match entries.find(key) {
            Some(entry) => self.decide_known(entries, entry, request, grew),
            None => self.decide_new(entries, key, request, grew),
        }
    }

    #[inline]
    fn decide_known<M: Counts<State = State>>(
        &self,
        entries: &mut Entries,
        entry: EntryIndex,
        request: &Apply<'_, M>,
        grew: &mut bool,
    ) -> Decision {
        let before = entries.times_held(entry);
        let decision = request.decide(&mut entries.subject(entry));
        *grew = self.logs.count(before, entries.times_held(entry));
        decision
    }

    /// Decides about a key without an entry, and makes room for it unless it stays fresh. Sets `grew`
    /// to whether logs hold more memory now.
    fn decide_new<M: Counts<State = State>>(
        &self,
        entries: &mut Entries,
        key: KeyHash,
        request: &Apply<'_, M>,
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
