//! A shard of a store's table: entries of one state each, of all limits.

use std::{collections::TryReserveError, io::Write, mem};

use crate::{
    algorithm::{EvictionWeight, State, States},
    clock::ClockReading,
    hash::KeyHash,
    limiter::local::{
        eviction::{self, ENTRIES_SEARCHED, EntryIndex, LOGS_SEARCHED, candidates},
        state_file::{BlockWriter, SavedEntry, scattered},
        store::stored_limit::ONLY_LIMIT,
    },
};

/// A shard: the part of the table under one lock. It has no entries until the first key comes.
#[derive(Debug, Default)]
pub(super) struct StoreShard {
    /// The tag of each entry; 0 for an unused one.
    tags: Box<[u64]>,
    records: Box<[Record]>,
    /// The number of the limit that each entry is or was last used for; 0 if that limit left the store. Empty in a
    /// table of one limit.
    owners: Box<[u32]>,
    /// The number of entries of each limit, by its number; a shard has fewer than 2^16. Fresh entries are
    /// counted until another limit takes them, so that no search for them is needed; a new key takes
    /// them first.
    held: Vec<u16>,
    /// The entry at which the next search for logs begins.
    hand: usize,
}

/// The room of a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardRoom {
    /// The number of entries.
    pub(super) entries: usize,
    /// Whether several limits share it.
    pub(super) is_shared: bool,
    /// Each limit's share of them.
    pub(super) share: usize,
}

/// The limit of a key without an entry, and the limit's share of this shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newcomer {
    pub limit: u32,
    pub(super) share: usize,
}

/// The states of a call: in their entries, or fresh ones without.
pub(super) struct InShard<'a> {
    pub(super) shard: &'a mut StoreShard,
    pub(super) entries: &'a [EntryIndex],
    pub(super) fresh: &'a mut [State],
}

impl States for InShard<'_> {
    #[inline(always)]
    fn state(&mut self, place: usize) -> &mut State {
        self.shard.state(self.entries[place], self.fresh)
    }
}

/// A state with its weight, for evictions by other limits.
#[derive(Debug, Clone, Default)]
struct Record {
    state: State,
    weight: EvictionWeight,
}

impl StoreShard {
    /// Allocates entries, if there are none yet.
    pub(super) fn make(&mut self, room: ShardRoom) -> Result<(), TryReserveError> {
        if self.tags.is_empty() {
            *self = Self {
                tags: filled(room.entries, 0)?,
                records: filled(room.entries, Record::default())?,
                owners: filled(if room.is_shared { room.entries } else { 0 }, 0)?,
                ..Self::default()
            };
        }
        Ok(())
    }

    #[inline]
    pub(super) fn find(&self, key: KeyHash) -> Option<EntryIndex> {
        eviction::find(&self.tags, key)
    }

    /// The state of an entry, to be changed in its place and [weighed](Self::weigh); one of these for a state without
    /// an entry.
    #[inline(always)]
    pub(super) fn state<'s>(
        &'s mut self,
        entry: EntryIndex,
        fresh: &'s mut [State],
    ) -> &'s mut State {
        match self.records.get_mut(entry.0) {
            Some(record) => &mut record.state,
            None => &mut fresh[entry.0 - EntryIndex::FRESH],
        }
    }

    /// The state of an entry, to be changed in its place and [weighed](Self::weigh).
    #[inline(always)]
    pub(super) fn state_at(&mut self, entry: EntryIndex) -> &mut State {
        &mut self.records[entry.0].state
    }

    /// Replaces the state of an entry, and its weight.
    pub(super) fn put(
        &mut self,
        entry: EntryIndex,
        limit: u32,
        state: State,
        weight: EvictionWeight,
    ) {
        self.records[entry.0] = Record { state, weight };
        self.own(entry, limit);
    }

    /// Sets the weight of a state that was changed in its place. Returns the number of times that its log
    /// has memory for.
    #[inline]
    pub(super) fn weigh(&mut self, entry: EntryIndex, limit: u32, weight: EvictionWeight) -> usize {
        let record = &mut self.records[entry.0];
        record.weight = weight;
        let times = record.state.times_held();
        self.own(entry, limit);
        times
    }

    /// Puts the state of a new key into an entry: a free one of the emptier bucket, otherwise an
    /// [evicted](Self::displaced) one, never one whose tag the call `owns`. Returns the weight of the evicted state, and
    /// the number of times that its log had memory for.
    pub(super) fn insert(
        &mut self,
        key: KeyHash,
        of: Newcomer,
        (state, weight): (State, EvictionWeight),
        now: u64,
        owns: impl Fn(u64) -> bool,
    ) -> Option<([u64; 3], usize)> {
        let (forgotten, entry) = self.room_for(key, of, now, owns)?;
        self.tags[entry.0] = key.tag;
        let times = self.records[entry.0].state.times_held();
        self.put(entry, of.limit, state, weight);
        Some((forgotten, times))
    }

    /// The entry for a new key, and the weight of the state that is evicted for it.
    fn room_for(
        &self,
        key: KeyHash,
        of: Newcomer,
        now: u64,
        owns: impl Fn(u64) -> bool,
    ) -> Option<([u64; 3], EntryIndex)> {
        let weigh = |entry: EntryIndex| {
            (!owns(self.tags[entry.0])).then(|| self.records[entry.0].weight.at(now))
        };
        let (entry, least) = eviction::least_weighty(&self.tags, key, weigh)?;
        if least == EvictionWeight::FRESH {
            return Some((least, entry));
        }
        self.displaced(key, of, weigh)
    }

    /// The entry to evict if none is free. For a limit above its share it is an own one, otherwise one
    /// of another limit above its share; without either, the key is dropped. For a limit within its
    /// share it is one of a limit above its share, otherwise the one with the least weight. So a flood
    /// of one limit's keys does not reset another limit's.
    fn displaced(
        &self,
        key: KeyHash,
        of: Newcomer,
        weigh: impl Fn(EntryIndex) -> Option<[u64; 3]>,
    ) -> Option<([u64; 3], EntryIndex)> {
        let all = candidates(key, self.tags.len()).into_iter().flatten();
        let all = all
            .map(EntryIndex)
            .filter_map(|entry| Some((weigh(entry)?, entry)));
        let owner = |(_, entry): &([u64; 3], EntryIndex)| self.owner(*entry, of.limit);
        let own = || all.clone().filter(|here| owner(here) == of.limit).min();
        let above = || {
            let is_above = |limit| limit != of.limit && self.is_above(limit, of.share);
            all.clone().filter(|here| is_above(owner(here))).min()
        };
        if self.held_by(of.limit) < of.share {
            above().or_else(|| all.clone().min())
        } else {
            own().or_else(above)
        }
    }

    /// Whether a limit has more entries than `share`. A limit that left the store has no share.
    fn is_above(&self, limit: u32, share: usize) -> bool {
        limit == 0 || self.held_by(limit) > share
    }

    fn held_by(&self, limit: u32) -> usize {
        self.held
            .get(limit as usize)
            .copied()
            .map_or(0, usize::from)
    }

    /// The number of the limit that the entry is used for; the `only` one in a table of one limit.
    fn owner(&self, entry: EntryIndex, only: u32) -> u32 {
        self.owners.get(entry.0).copied().unwrap_or(only)
    }

    /// Moves an entry to a limit from the one that it was used for, which may be a dropped one of the same name.
    #[inline]
    fn own(&mut self, entry: EntryIndex, limit: u32) {
        if self.owner(entry, limit) != limit {
            self.move_to(entry, limit);
        }
    }

    fn move_to(&mut self, entry: EntryIndex, limit: u32) {
        let before = mem::replace(&mut self.owners[entry.0], limit);
        if before > 0 {
            self.held[before as usize] -= 1;
        }
        if limit == 0 {
            return;
        }
        let needed = limit as usize + 1;
        if self.held.len() < needed {
            self.held.reserve_exact(needed - self.held.len());
            self.held.resize(needed, 0);
        }
        self.held[limit as usize] += 1;
    }

    /// Clears the entries' numbers of a limit that left the store, since another limit may get the
    /// number.
    pub(super) fn disown(&mut self, limit: u32) {
        if self.held_by(limit) > 0 {
            self.held[limit as usize] = 0;
            let own = self.owners.iter_mut().filter(|owner| **owner == limit);
            own.for_each(|owner| *owner = 0);
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// Saves entries from the one with the index `from` on, until the block is full. Returns the index of
    /// the next entry.
    pub(super) fn save<W: Write>(
        &self,
        from: usize,
        time: ClockReading,
        writer: &mut BlockWriter<W>,
    ) -> usize {
        let end = self.tags.len().min(from + ENTRIES_SEARCHED);
        let entry_of = scattered(self.tags.len());
        for number in from..end {
            if writer.is_full() {
                return number;
            }
            let entry = entry_of(number);
            let Record { state, weight } = &self.records[entry];
            if weight.is_nothing(time.as_nanos()) {
                continue;
            }
            let owner = self.owner(EntryIndex(entry), ONLY_LIMIT);
            writer.entry((self.tags[entry], owner), *weight, state, time);
        }
        end
    }

    /// Restores an entry. Returns the weight of the state that was evicted for it, or its own weight if it
    /// does not fit, and the number of times that the evicted log had memory for.
    pub(super) fn restore(
        &mut self,
        entry: SavedEntry,
        share: usize,
        now: u64,
    ) -> ([u64; 3], usize) {
        let SavedEntry {
            tag,
            limit,
            weight,
            state,
        } = entry;
        let of = Newcomer { limit, share };
        let key = KeyHash::of_tag(tag);
        let known = self.find(key).map(|entry| (EvictionWeight::FRESH, entry));
        let (forgotten, entry) = match known.or_else(|| self.room_for(key, of, now, |_| false)) {
            Some(found) if found.0 <= weight.at(now) => found,
            _ => return (weight.at(now), 0),
        };
        self.tags[entry.0] = tag;
        let times = self.records[entry.0].state.times_held();
        self.put(entry, of.limit, state, weight);
        (forgotten, times)
    }

    pub(super) fn live_states(&self, now: u64) -> usize {
        let records = self.records.iter();
        records
            .filter(|record| !record.weight.is_nothing(now))
            .count()
    }

    /// Evicts the log with the least weight among the next few, except those that are `is_current`;
    /// unless `must`, only a fresh one. Returns the number of times that it had memory for, and
    /// whether it was live.
    pub(super) fn evict_log(
        &mut self,
        is_current: impl Fn(u64) -> bool,
        must: bool,
        now: u64,
    ) -> Option<(usize, bool)> {
        let all = self.tags.len();
        let searched = ENTRIES_SEARCHED.min(all);
        let from = self.hand;
        self.hand = (from + searched) % all.max(1);
        let entries = (from..from + searched).map(|entry| entry % all);
        let logs = entries.filter(|entry| self.records[*entry].state.times_held() > 0);
        let others = logs.filter(|entry| !is_current(self.tags[*entry]));
        let weighed = others.map(|entry| (self.records[entry].weight.at(now), entry));
        let (weight, entry) = weighed.take(LOGS_SEARCHED).min()?;
        let is_live = weight != EvictionWeight::FRESH;
        if is_live && !must {
            return None;
        }
        let evicted = mem::take(&mut self.records[entry]);
        Some((evicted.state.times_held(), is_live))
    }
}

fn filled<T: Clone>(len: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, value);
    Ok(all.into_boxed_slice())
}
