//! A part of the sharded table, under a lock of its own: entries, and which of them gives way.

use std::{collections::TryReserveError, mem, ops::Range, sync::Arc};

use super::{
    hash::KeyHash,
    log_budget::{ENTRIES_LOOKED_AT, LOGS_LOOKED_AT},
    victim::{self, candidates},
};
use crate::{
    algorithm::{State, Weight},
    limiter::{apply::Subject, block::Block, limits::Limits, on_change::Replaced},
};

/// One lock's part of the table.
#[derive(Debug)]
pub(super) struct TableShard {
    /// Here, so that the holder of the lock sees one consistent set of quotas.
    pub(super) limits: Arc<Limits>,
    pub(super) entries: Entries,
}

/// Keys, and what is remembered of each. There are none before the first key comes.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// 0 for an entry that was never used.
    tags: Box<[u64]>,
    blocks: Box<[Block]>,
    /// As many for each entry as the limits say.
    states: Box<[State]>,
    /// Where the search for logs to give up goes on.
    hand: usize,
}

/// For how many times the logs among `states` have memory.
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
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            entries: Entries::default(),
        }
    }

    /// Puts other limits in force. Fails where a key has more counters than before and there is no
    /// memory for them: then all keys are forgotten.
    pub(super) fn install(
        &mut self,
        limits: &Arc<Limits>,
        replaced: &Replaced,
    ) -> Result<(), TryReserveError> {
        let (before, after) = (self.limits.width(), limits.width());
        self.limits = Arc::clone(limits);
        if replaced.starts_afresh {
            self.entries = Entries::default();
            return Ok(());
        }
        let mut old = mem::take(&mut self.entries).states_forgotten(before, &replaced.kept);
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

    pub(super) fn live_keys(&self, now: u64) -> usize {
        let entries = 0..self.entries.tags.len();
        let weights = entries.map(|entry| self.entries.weight(&self.limits, entry, now));
        weights
            .filter(|weight| *weight != Weight::default())
            .count()
    }
}

/// Room for the states of `entries` keys under `limits`.
pub(super) fn room(entries: usize, limits: &Limits) -> Result<Box<[State]>, TryReserveError> {
    filled(entries.saturating_mul(limits.states()), State::FRESH)
}

impl Entries {
    /// Makes room for this many keys, if there is none yet.
    #[inline]
    pub(super) fn make(&mut self, entries: usize, limits: &Limits) -> Result<(), TryReserveError> {
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

    /// The entries without the states of the counters, `width` for each key, that are not kept.
    fn states_forgotten(mut self, width: usize, kept: &[bool]) -> Self {
        for (state, kept) in self.states.iter_mut().zip(kept[..width].iter().cycle()) {
            if !kept {
                *state = State::FRESH;
            }
        }
        self
    }

    /// How many keys there is room for.
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    fn states_of(&self, entry: usize) -> Range<usize> {
        let width = self.states.len() / self.tags.len();
        entry * width..(entry + 1) * width
    }

    pub(super) fn subject(&mut self, entry: usize) -> Subject<'_> {
        let range = self.states_of(entry);
        Subject {
            states: &mut self.states[range],
            block: &mut self.blocks[entry],
        }
    }

    pub(super) fn put(&mut self, entry: usize, tag: u64, states: Vec<State>, block: Block) {
        self.tags[entry] = tag;
        let old = self.subject(entry);
        *old.block = block;
        for (old, new) in old.states.iter_mut().zip(states) {
            *old = new;
        }
    }

    pub(super) fn find(&self, key: KeyHash) -> Option<usize> {
        if self.tags.is_empty() {
            return None;
        }
        let mut entries = candidates(key, self.len()).into_iter().flatten();
        entries.find(|entry| self.tags[*entry] == key.tag)
    }

    /// The entry to replace, and what is forgotten with it: a free one of the emptier bucket, else
    /// the one with the least to forget.
    pub(super) fn victim(&self, limits: &Limits, key: KeyHash, now: u64) -> (usize, Weight) {
        let weigh = |entry| Some(self.weight(limits, entry, now));
        victim::victim(candidates(key, self.len()), weigh).expect("no entry has to stay")
    }

    fn weight(&self, limits: &Limits, entry: usize, now: u64) -> Weight {
        let mut block = self.blocks[entry];
        Weight {
            blocked: block.left(now, limits.block_for),
            ..limits.weight(&self.states[self.states_of(entry)], now)
        }
    }

    pub(super) fn all_times_held(&self) -> usize {
        times_held(&self.states)
    }

    pub(super) fn times_held(&self, entry: usize) -> usize {
        times_held(&self.states[self.states_of(entry)])
    }

    /// Gives up the log with the least to forget among the next few, but not that of `current`;
    /// unless `must`, only one with nothing to forget. Says for how many times there was memory,
    /// and whether anything is forgotten.
    pub(super) fn give_up_a_log(
        &mut self,
        limits: &Limits,
        current: u64,
        must: bool,
        now: u64,
    ) -> Option<(usize, bool)> {
        if self.tags.is_empty() {
            return None;
        }
        let from = self.hand;
        let looked_at = ENTRIES_LOOKED_AT.min(self.len());
        self.hand = (from + looked_at) % self.len();
        let entries = (from..from + looked_at).map(|entry| entry % self.len());
        let others = entries.filter(|entry| self.tags[*entry] != 0 && self.tags[*entry] != current);
        let logs = others.filter(|entry| self.times_held(*entry) > 0);
        let weighed = logs.map(|entry| (self.weight(limits, entry, now), entry));
        let (weight, entry) = weighed.take(LOGS_LOOKED_AT).min()?;
        let is_live = weight != Weight::default();
        if is_live && !must {
            return None;
        }
        let held = self.times_held(entry);
        self.subject(entry).states.fill(State::FRESH);
        Some((held, is_live))
    }
}
