//! A shard of the sharded table: entries under one lock, and their eviction.

use std::{collections::TryReserveError, io::Write, mem, ops::Range, sync::Arc};

use super::{
    eviction::{self, EntryIndex, candidates},
    hash::KeyHash,
    sliding_log_memory::{ENTRIES_SEARCHED, LOGS_SEARCHED},
    state_file::{BlockWriter, scattered},
};
use crate::{
    algorithm::{State, Weight},
    clock::ClockReading,
    limiter::{apply_operation::Subject, block::Block, tier_set::TierSet},
    number_bytes::push_u64,
};

/// A shard: the part of the table under one lock.
#[derive(Debug)]
pub(super) struct TableShard {
    /// The limits in force, under the lock, so that its holder sees one consistent set of quotas.
    pub(super) limits: Arc<TierSet>,
    pub(super) entries: Entries,
}

/// The keys of a shard and their states; empty until the first key comes.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// The tag of each entry; 0 for an unused one.
    tags: Box<[u64]>,
    blocks: Box<[Block]>,
    /// The states of all entries; each has as many as the limits have states.
    states: Box<[State]>,
    /// The entry at which the next search for logs begins.
    hand: usize,
}

/// The number of times that the logs among `states` have memory for.
pub(super) fn times_held(states: &[State]) -> usize {
    states.iter().map(State::times_held).sum()
}

pub(super) fn filled<T: Clone>(len: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, value);
    Ok(all.into_boxed_slice())
}

impl TableShard {
    pub(super) fn new(limits: Arc<TierSet>) -> Self {
        Self {
            limits,
            entries: Entries::default(),
        }
    }

    /// Puts other limits in force. If a key has more counters than before and there is no memory for them,
    /// all keys are dropped.
    pub(super) fn install(
        &mut self,
        limits: &Arc<TierSet>,
        kept: &[bool],
    ) -> Result<(), TryReserveError> {
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

    pub(super) fn live_keys(&self, time: ClockReading) -> usize {
        let entries = (0..self.entries.tags.len()).map(EntryIndex);
        let weights = entries.map(|entry| self.entries.weight(&self.limits, entry, time));
        weights
            .filter(|weight| *weight != Weight::default())
            .count()
    }
}

/// Allocates the states of `entries` keys under `limits`.
pub(super) fn room(entries: usize, limits: &TierSet) -> Result<Box<[State]>, TryReserveError> {
    filled(entries.saturating_mul(limits.states()), State::FRESH)
}

/// The weight of a key.
pub(super) fn weight(
    limits: &TierSet,
    states: &[State],
    mut block: Block,
    time: ClockReading,
) -> Weight {
    Weight {
        blocked: block.left(time.as_nanos(), limits.block_for),
        ..limits.weight(states, time)
    }
}

impl Entries {
    /// Allocates this many entries, if there are none yet.
    #[inline]
    pub(super) fn make(&mut self, entries: usize, limits: &TierSet) -> Result<(), TryReserveError> {
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
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    fn states_of(&self, EntryIndex(entry): EntryIndex) -> Range<usize> {
        let width = self.states.len() / self.tags.len();
        entry * width..(entry + 1) * width
    }

    pub(super) fn subject(&mut self, entry: EntryIndex) -> Subject<'_> {
        let range = self.states_of(entry);
        Subject {
            states: &mut self.states[range],
            block: &mut self.blocks[entry.0],
        }
    }

    pub(super) fn put(&mut self, entry: EntryIndex, tag: u64, states: Vec<State>, block: Block) {
        self.tags[entry.0] = tag;
        let old = self.subject(entry);
        *old.block = block;
        for (old, new) in old.states.iter_mut().zip(states) {
            *old = new;
        }
    }

    #[inline]
    pub(super) fn find(&self, key: KeyHash) -> Option<EntryIndex> {
        eviction::find(&self.tags, key)
    }

    /// The entry to replace, and its weight: a free one of the emptier bucket, otherwise the one with the
    /// least weight.
    pub(super) fn least_weighty(
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
    pub(super) fn save<W: Write>(
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

    pub(super) fn all_times_held(&self) -> usize {
        times_held(&self.states)
    }

    pub(super) fn times_held(&self, entry: EntryIndex) -> usize {
        times_held(&self.states[self.states_of(entry)])
    }

    /// Evicts the log with the least weight among the next few, except that of `current`; unless `must`,
    /// only a fresh one. Returns the number of times that it had memory for, and whether it was live.
    pub(super) fn evict_log(
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
