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
    /// Where the search for logs to give up goes on.
    hand: usize,
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
                hand: 0,
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
    pub(super) fn put(&mut self, entry: usize, state: State, worth: Worth) {
        self.records[entry] = Record { state, worth };
    }

    /// An entry for a key that is not there, to be [put](Self::put) into: a free one of the
    /// emptier bucket, else the one with the least to forget of those that no call has in its
    /// hands. Says how much is forgotten, and for how many times its log had memory.
    pub(super) fn insert(&mut self, key: KeyHash, now: u64) -> Option<(usize, Weight, usize)> {
        let weigh = |entry: usize| {
            let worth = self.records[entry].worth;
            (!worth.is_pinned()).then(|| worth.at(now))
        };
        let (entry, forgotten) = victim(candidates(key, self.tags.len()), weigh)?;
        self.tags[entry] = key.tag;
        let times = self.take(entry).times_held();
        Some((entry, forgotten, times))
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
