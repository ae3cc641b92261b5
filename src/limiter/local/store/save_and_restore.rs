//! Saves and restores of a store.

use std::{
    collections::HashMap,
    io::{Read, Write},
    path::Path,
    sync::atomic::Ordering,
};

use super::{
    builder::LocalStoreBuilder, entries::Newcomer, local_store::LocalStore, locks::lock,
    store_table::StoreTable, stored_limit::shard_of_tag,
};
use crate::{
    algorithm::{EvictionWeight, State},
    error::ConfigError,
    limiter::local::{
        hash::KeyHasher,
        state_file::{
            BlockReader, BlockWriter, FileHeader, RestoreError, SaveError, Saved, StoreHeader,
            log_refused, open, replace_file,
        },
    },
    lock::unpoisoned,
    number_bytes::{take_u32, take_u64},
};

impl LocalStore {
    /// Saves the counts of all limiters, for [`restore`](LocalStoreBuilder::restore) in the next process:
    /// a deployment then gives no client a new daily quota. Permits of
    /// [`ConcurrencyLayer`](crate::ConcurrencyLayer) are not saved.
    ///
    /// The save does not stop requests, see [`LocalLimiter::save`](crate::LocalLimiter::save).
    ///
    /// # Errors
    ///
    /// If `to` cannot be written, or a limiter of the store has no
    /// [name](crate::limiter::LocalLimiterBuilder::name), and the next process could not find its counts.
    pub fn save(&self, to: impl Write) -> Result<Saved, SaveError> {
        self.table().save(to)
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
}

impl LocalStoreBuilder {
    /// Makes the store with the counts that [`LocalStore::save`] wrote. Limiters of the same names continue
    /// with them, whenever they are [built in the store](crate::limiter::LocalLimiterBuilder::build_in).
    ///
    /// Counts continue at their time: what flowed back while no process ran is back. If the clock is behind
    /// the file, the store treats it as a clock that stepped back. Limits, bursts, queues and the number of
    /// keys may have changed since. A quota with another algorithm, period, number of slices or refill step
    /// starts afresh, as after [`set_quota`](crate::LocalLimiter::set_quota), and the store logs it; all
    /// other counts stay.
    ///
    /// # Errors
    ///
    /// If the file is no state file, cut off, damaged, of another version or of a limiter with a table of
    /// its own, or the store cannot be [built](Self::build). Nothing of the file is used then.
    pub fn restore(self, from: impl Read) -> Result<LocalStore, RestoreError> {
        let mut reader = BlockReader::begin(from)?;
        let header = FileHeader::<StoreHeader>::read(&mut reader)?;
        let store = self.build_with(KeyHasher::of_key(header.hash_key))?;
        store.table().restore(header.of, &mut reader)?;
        Ok(store)
    }

    /// Makes the store with the counts of this file, if it can be [restored](Self::restore). Otherwise
    /// makes it without counts, and logs one line with the reason, unless the file does not exist.
    ///
    /// # Errors
    ///
    /// The same as [`build`](Self::build).
    pub fn restore_or_new(self, path: impl AsRef<Path>) -> Result<LocalStore, ConfigError> {
        let path = path.as_ref();
        let restored = open(path).and_then(|file| self.clone().restore(file));
        restored.or_else(|error| {
            log_refused(path, &error);
            self.build()
        })
    }
}

impl StoreTable {
    fn save(&self, to: impl Write) -> Result<Saved, SaveError> {
        let time = self.clock.read();
        let limits = unpoisoned(self.members.lock()).saved()?;
        let header = FileHeader {
            saved_at: time.wall,
            max_keys: self.max_keys as u64,
            hash_key: self.hasher.key(),
            of: limits,
        };
        let mut writer = BlockWriter::begin(to, &header.to_bytes())?;
        for shard in &self.shards {
            let mut next = 0;
            loop {
                let shard = lock(shard);
                next = shard.save(next, time, &mut writer);
                let is_last = next >= shard.len();
                drop(shard);
                if writer.is_full() {
                    writer.flush()?;
                }
                if is_last {
                    break;
                }
            }
        }
        let (entries, bytes) = writer.finish()?;
        Ok(Saved {
            entries,
            bytes,
            at: time.wall,
        })
    }

    /// Restores the entries of a file with this header. The store has no limits yet.
    fn restore(
        &self,
        header: StoreHeader,
        reader: &mut BlockReader<impl Read>,
    ) -> Result<(), RestoreError> {
        let time = self.clock.read();
        let now = time.as_nanos();
        let numbers = {
            let mut members = unpoisoned(self.members.lock());
            members.restore(&self.hasher, header)
        };
        self.share_out(numbers.len());
        reader.entries(|bytes| {
            let tag = take_u64(bytes)?;
            let number = take_u32(bytes)?;
            let fresh_at = time.of_wall(take_u64(bytes)?);
            let weight = EvictionWeight::from_numbers([fresh_at, take_u64(bytes)?])?;
            let state = State::take_from(bytes, time)?;
            if !weight.is_nothing(now) {
                self.restore_entry(tag, limit_of(&numbers, number), (state, weight), now);
            }
            Some(())
        })
    }

    fn restore_entry(
        &self,
        tag: u64,
        limit: u32,
        (state, weight): (State, EvictionWeight),
        now: u64,
    ) {
        let room = self.room();
        let until = weight.blocked_until();
        let held = state.times_held();
        let mut shard = lock(&self.shards[shard_of_tag(tag, self.shards.len()).0]);
        let (forgotten, freed) = match shard.make(room.entries) {
            Ok(()) => {
                let of = Newcomer {
                    limit,
                    share: room.share,
                };
                shard.restore(tag, of, (state, weight), now)
            }
            Err(_) => (weight.at(now), 0),
        };
        drop(shard);
        self.blocked_until.fetch_max(until, Ordering::Relaxed);
        self.logs.count(freed, held);
        let evicted = u64::from(forgotten != Default::default());
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
    }
}

/// The limit's number in this store; 0 for entries of limits that had left.
fn limit_of(numbers: &HashMap<u32, u32>, number: u32) -> u32 {
    numbers.get(&number).copied().unwrap_or(0)
}
