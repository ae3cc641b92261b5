//! A shard of the store's table: one state for each entry, whoever's it is.

use std::{collections::TryReserveError, mem};

use crate::{
    algorithm::{State, Weight, Worth},
    limiter::local::{
        hash::KeyHash,
        log_budget::{ENTRIES_LOOKED_AT, LOGS_LOOKED_AT},
        shard::filled,
        victim::{candidates, victim},
    },
};

/// One lock's part of the table. It has no entries before the first key comes.
#[derive(Debug, Default)]
pub(super) struct StoreShard {
    /// 0 for an entry that was never used.
    tags: Box<[u64]>,
    records: Box<[Record]>,
    /// The limit that each entry is or was last used for, by its number; 0 if that left the store.
    owners: Box<[u32]>,
    /// The entries of each limit, by its number; a shard has fewer than 2^16. Those that became fresh
    /// are counted until another limit takes them: nobody has to look for them, and a key finds
    /// them first.
    held: Vec<u16>,
    /// Where the search for logs to give up goes on.
    hand: usize,
}

/// A key that is not in the shard: whose it is, and how many entries are that limit's own here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newcomer {
    pub(super) limit: u32,
    pub(super) share: usize,
}

/// A state, and all that is to be known of it by others than its limit.
#[derive(Debug, Clone, Default)]
struct Record {
    state: State,
    worth: Worth,
}

impl StoreShard {
    /// Makes room for this many entries, if there is none yet.
    pub(super) fn make(&mut self, entries: usize) -> Result<(), TryReserveError> {
        if self.tags.is_empty() {
            *self = Self {
                tags: filled(entries, 0)?,
                records: filled(entries, Record::default())?,
                owners: filled(entries, 0)?,
                ..Self::default()
            };
        }
        Ok(())
    }

    #[inline]
    pub(super) fn find(&self, key: KeyHash) -> Option<usize> {
        if self.tags.is_empty() {
            return None;
        }
        let mut buckets = candidates(key, self.tags.len()).into_iter();
        buckets.find_map(|bucket| {
            let first = bucket.start;
            let mut tags = self.tags[bucket].iter();
            tags.position(|tag| *tag == key.tag).map(|way| first + way)
        })
    }

    /// Takes a state into a call's hands, and keeps its entry from giving way until it is
    /// [put](Self::put) back.
    #[inline]
    pub(super) fn take(&mut self, entry: usize) -> State {
        let record = &mut self.records[entry];
        record.worth.pin();
        mem::take(&mut record.state)
    }

    #[inline]
    pub(super) fn put(&mut self, entry: usize, limit: u32, state: State, worth: Worth) {
        self.records[entry] = Record { state, worth };
        // A limiter of the same name may have been made after the last one was dropped.
        if self.owners[entry] != limit {
            self.own(entry, limit);
        }
    }

    /// An entry for a key that is not there, to be [put](Self::put) into: a free one of the
    /// emptier bucket, else one that [gives way](Self::displaced), but none that a call has in its
    /// hands. Says how much is forgotten, and for how many times its log had memory.
    pub(super) fn insert(
        &mut self,
        key: KeyHash,
        of: Newcomer,
        now: u64,
    ) -> Option<(usize, Weight, usize)> {
        let (mut entry, mut forgotten) = victim(candidates(key, self.tags.len()), |entry| {
            self.weight(entry, now)
        })?;
        if forgotten != Weight::default() {
            (forgotten, entry) = self.displaced(key, of, now)?;
        }
        self.tags[entry] = key.tag;
        self.own(entry, of.limit);
        let times = self.take(entry).times_held();
        Some((entry, forgotten, times))
    }

    /// The entry that gives way where none is free. A limit with more than its share here gives up
    /// an own one, or else that of another limit with more than its share; if there is none, its key
    /// is not kept. A limit within its share takes that of one above, or else whichever has the
    /// least to forget. So a flood of one limit's keys does not reset another limit's.
    fn displaced(&self, key: KeyHash, of: Newcomer, now: u64) -> Option<(Weight, usize)> {
        let all = candidates(key, self.tags.len()).into_iter().flatten();
        let all = all.filter_map(|entry| Some((self.weight(entry, now)?, entry)));
        let owner = |(_, entry): &(Weight, usize)| self.owners[*entry];
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

    /// Whether a limit has more entries than this; one that left the store has no share at all.
    fn is_above(&self, limit: u32, share: usize) -> bool {
        limit == 0 || self.held_by(limit) > share
    }

    fn held_by(&self, limit: u32) -> usize {
        self.held
            .get(limit as usize)
            .copied()
            .map_or(0, usize::from)
    }

    /// How much would be forgotten with the entry, unless a call has it in its hands.
    fn weight(&self, entry: usize, now: u64) -> Option<Weight> {
        let worth = self.records[entry].worth;
        (!worth.is_pinned()).then(|| worth.at(now))
    }

    /// Counts an entry for a limit in place of the one that it was used for.
    fn own(&mut self, entry: usize, limit: u32) {
        let before = mem::replace(&mut self.owners[entry], limit);
        if before > 0 {
            self.held[before as usize] -= 1;
        }
        let needed = limit as usize + 1;
        if self.held.len() < needed {
            self.held.reserve_exact(needed - self.held.len());
            self.held.resize(needed, 0);
        }
        self.held[limit as usize] += 1;
    }

    /// Takes its share from a limit that left the store, whose number another one may get.
    pub(super) fn disown(&mut self, limit: u32) {
        if self.held_by(limit) > 0 {
            self.held[limit as usize] = 0;
            let own = self.owners.iter_mut().filter(|owner| **owner == limit);
            own.for_each(|owner| *owner = 0);
        }
    }

    pub(super) fn live_states(&self, now: u64) -> usize {
        let records = self.records.iter();
        records
            .filter(|record| !record.worth.is_nothing(now))
            .count()
    }

    /// Gives up the log with the least to forget among the next few, but none that `is_current`;
    /// unless `must`, only one with nothing to forget. Says for how many times there was memory,
    /// and whether anything is forgotten.
    pub(super) fn give_up_a_log(
        &mut self,
        is_current: impl Fn(u64) -> bool,
        must: bool,
        now: u64,
    ) -> Option<(usize, bool)> {
        let all = self.tags.len();
        let looked_at = ENTRIES_LOOKED_AT.min(all);
        let from = self.hand;
        self.hand = (from + looked_at) % all.max(1);
        let entries = (from..from + looked_at).map(|entry| entry % all);
        let logs = entries.filter(|entry| self.records[*entry].state.times_held() > 0);
        let others = logs.filter(|entry| !is_current(self.tags[*entry]));
        let weighed = others.map(|entry| (self.records[entry].worth.at(now), entry));
        let (weight, entry) = weighed.take(LOGS_LOOKED_AT).min()?;
        let is_live = weight != Weight::default();
        if is_live && !must {
            return None;
        }
        let given_up = mem::take(&mut self.records[entry]);
        Some((given_up.state.times_held(), is_live))
    }
}
