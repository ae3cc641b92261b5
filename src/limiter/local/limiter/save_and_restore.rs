//! Saves and restores of a limiter with a table of its own.

use std::{
    io::{self, Read, Write},
    path::Path,
    sync::Arc,
};

use super::LocalLimiter;
use crate::{
    algorithm::State,
    clock::ClockReading,
    limiter::{
        block::Block,
        local::{
            hash::KeyHash,
            lock_free_bucket_table::LoneLimit,
            state_file::{
                BlockReader, BlockWriter, FileHeader, Layout, LimiterHeader, RestoreError,
                SaveError, SaveErrorKind, Saved, replace_file,
            },
        },
        tier_set::TierSet,
    },
    lock::unpoisoned,
    number_bytes::{push_u64, take_u64},
};

impl LocalLimiter {
    /// Saves the counts of all keys, for
    /// [`restore`](crate::limiter::LocalLimiterBuilder::restore) in the next process: a deployment then
    /// gives no client a new daily quota.
    ///
    /// The save does not stop requests: each key is saved as it is at some moment of the save. When
    /// requests have stopped, everything is exact. The save takes memory for one buffer, and locks a few keys at a time.
    /// The file contains hashes of keys and the secret of these hashes: who can read it can test whether a
    /// key was counted.
    ///
    /// # Errors
    ///
    /// If `to` cannot be written, or the limiter is in a store, which saves all its limiters together by
    /// [`LocalStore::save`](crate::LocalStore::save).
    pub fn save(&self, to: impl Write) -> Result<Saved, SaveError> {
        let inner = &*self.0;
        if inner.stored.is_some() {
            return Err(SaveError::new(
                SaveErrorKind::InStore,
                "this limiter counts in a store, which saves all its limiters together: call \
                 LocalStore::save",
            ));
        }
        let time = inner.clock.read();
        let limits = self.limits_in_force();
        let layout = Layout::of(&limits);
        let header = FileHeader {
            saved_at: time.wall,
            max_keys: inner.capacity.keys as u64,
            hash_key: inner.hasher.key(),
            of: LimiterHeader {
                counter_mark: limits.counter_mark(),
                layout,
            },
        };
        let mut writer = BlockWriter::begin(to, &header.to_bytes())?;
        self.save_entries(&header.of.layout, time, &mut writer)?;
        let (entries, bytes) = writer.finish()?;
        Ok(Saved {
            entries,
            bytes,
            at: time.wall,
        })
    }

    fn save_entries(
        &self,
        layout: &Layout,
        time: ClockReading,
        writer: &mut BlockWriter<impl Write>,
    ) -> io::Result<()> {
        let inner = &*self.0;
        match (self.instants(), inner.subjects.get()) {
            (Some(lone), _) => {
                // Not a guard: a change of quota would wait for it, and all requests for the change.
                let (bucket, _) = lone.bucket.read().measured;
                let mut blocks = inner.blocks.all(time.as_nanos());
                lone.table
                    .save(&bucket, time.now, writer, |to, tag, instant| {
                        let block = blocks.remove(&tag).unwrap_or(Block::NONE);
                        push_instant(to, layout, (tag, block, instant), time);
                    })?;
                for (tag, block) in blocks {
                    writer.entry(|to| push_instant(to, layout, (tag, block, 0), time));
                }
            }
            (None, Some(subjects)) => subjects.save(layout, time, writer)?,
            (None, None) => {}
        }
        Ok(())
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

    /// Restores the entries of a file with this header. The limiter has no keys yet.
    pub(in super::super) fn restore_entries(
        &self,
        header: &FileHeader<LimiterHeader>,
        reader: &mut BlockReader<impl Read>,
    ) -> Result<(), RestoreError> {
        let limits = self.limits_in_force();
        let own = Layout::of(&limits);
        let saved = &header.of.layout;
        own.check_saved(saved)?;
        let positions = own.positions_in(saved);
        let time = self.0.clock.read();
        let starts_afresh = header.of.counter_mark != limits.counter_mark();
        reader.entries(|bytes| {
            let key = KeyHash::of_tag(take_u64(bytes)?);
            let block = Block::from_instant(time.of_wall(take_u64(bytes)?));
            let states = (0..saved.states()).map(|_| State::take_from(bytes, time));
            let mut states: Vec<State> = states.collect::<Option<_>>()?;
            if !starts_afresh {
                let own = positions.iter().map(|position| {
                    let state = position.and_then(|position| states.get_mut(position));
                    state.map(std::mem::take).unwrap_or_default()
                });
                let own = own.collect();
                self.restore_entry(key, own, block, time);
            }
            Some(())
        })?;
        // The keys of a larger bucket. All other tables clamp a key when a request comes.
        if let Some(LoneLimit { bucket, table }) = self.instants()
            && own != *saved
        {
            table.fit_to(&bucket.read().measured.0, time.now);
        }
        Ok(())
    }

    fn limits_in_force(&self) -> Arc<TierSet> {
        let limits = unpoisoned(self.0.limits.lock());
        Arc::clone(&limits)
    }

    fn restore_entry(&self, key: KeyHash, states: Vec<State>, block: Block, time: ClockReading) {
        let inner = &*self.0;
        let nanos = time.as_nanos();
        if let Some(subjects) = inner.subjects.get() {
            subjects.restore(key, states, block, time);
        } else if let Some(LoneLimit { bucket, table }) = &inner.instants {
            let (bucket, _) = &bucket.read().measured;
            for state in &states {
                table.restore(bucket, key, time.now, *state.as_instant());
            }
            if block.to_state().1 > nanos {
                inner.blocks.put(key, nanos, block, inner.capacity.keys);
            }
        }
    }
}

/// Writes an entry of a lone bucket: its tag, its block, and its instant.
fn push_instant(
    to: &mut Vec<u8>,
    layout: &Layout,
    (tag, block, instant): (u64, Block, u64),
    time: ClockReading,
) {
    push_u64(to, tag);
    push_u64(to, time.wall_of(block.to_state().1));
    let states = layout.labels.iter().map(|label| match label {
        Some(_) => State::Instant(instant),
        None => State::FRESH,
    });
    states.for_each(|state| state.push_to(to, time));
}
