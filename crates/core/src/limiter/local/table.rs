//! The lock-free table: one number for each key.

#[cfg(all(test, check_model))]
mod model;

use std::{num::NonZero, sync::OnceLock};

// Under the model checker those whose schedules it explores.
#[cfg(not(all(test, check_model)))]
use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(all(test, check_model))]
use {
    self::model::AtomicU64,
    loom::{
        sync::{Mutex, MutexGuard, atomic::Ordering},
        thread,
    },
};

use super::eviction::entries_for;
use crate::hash::KeyHash;
use crate::lock::unpoisoned;

/// The number of locks: inserts that may run at the same time.
const STRIPES: usize = 256;

/// The buckets that are filled first: 64 KiB.
const NEAR: usize = 1_024;

/// The far part is allocated when the table is made from 32 MiB on: no allocator keeps such memory of an
/// earlier table, and a lack of it is an error.
const LARGE: usize = 1 << 19;

/// The low bits of an entry's state: the generation, which counts changes of the key.
const GENERATION_BITS: u32 = 3;

/// The state of an entry that is changing its key. No state of 61 bits packs into it, see `pack`.
const CLAIMED: u64 = u64::MAX;

/// The largest state that an entry can hold.
pub(super) const MAX_STATE: u64 = (u64::MAX >> GENERATION_BITS) - 1;

/// A hash table of fixed size from keys to one number each, updated without locks.
///
/// The number is an instant: an entry whose instant has passed is fresh and therefore free, whatever
/// its key. Nothing has to be swept.
///
/// The table has a near and a far part, and a key two buckets in each. A new one is inserted into the
/// emptier of the near ones, if both are full into the emptier of the far ones, and if all are full it
/// evicts the entry with the earliest instant, the one with the least usage. So few keys touch few pages
/// of memory. No key moves from one part to the other.
///
/// # Memory ordering
///
/// An entry is a tag and a state. Only the holder of a claim (the state `CLAIMED`) writes the tag,
/// and an update is one compare-and-swap on the state. The rules that make this exact:
///
/// 1. A claim swaps the state to `CLAIMED`, stores the tag, then stores the new state. Both stores
///    release, so a thread that acquires the new tag sees `CLAIMED` or later, and one that acquires the
///    new state sees the new tag. An entry that is claimed is nobody's.
/// 2. A reader loads the state, then the tag, and then finds the state unchanged: by the swap, or,
///    when it writes nothing, by loading it once more. So the state belongs to that tag.
/// 3. Each claim increments a generation in the state's low bits, so a swap by a reader that slept
///    through a change of the key fails even if the new key has the same instant.
/// 4. A key is inserted under a lock, after another search. The lock is chosen by the key, not by the
///    bucket, so no key is ever inserted twice.
/// 5. No live entry is evicted next to a claimed one, which may have less usage.
///
/// The model in `table/model.rs` fails without any one of them.
#[derive(Debug)]
pub(super) struct Table {
    near: Buckets,
    far: Buckets,
    inserting: Box<[Mutex<()>]>,
    evictions: AtomicU64,
}

impl Table {
    /// A table that tracks `max_keys` live keys and loses fewer than 1 in 10,000 of them.
    ///
    /// `None` if there is no memory: the number comes from settings, and a failed allocation would abort
    /// the process.
    pub(super) fn try_new(max_keys: usize) -> Option<Self> {
        let buckets = entries_for(max_keys).div_ceil(WAYS).max(2);
        let near = buckets.min(NEAR);
        let table = Self::with_buckets(near, buckets - near)?;
        if table.far.count() >= LARGE {
            table.far.made()?;
        }
        Some(table)
    }

    fn with_buckets(near: usize, far: usize) -> Option<Self> {
        let near = Buckets::new(near);
        near.made()?;
        Some(Self {
            near,
            far: Buckets::new(far),
            inserting: (0..STRIPES).map(|_| Mutex::default()).collect(),
            evictions: AtomicU64::new(0),
        })
    }

    /// Replaces the state of a key in one step. `step` gets the old state, 0 for an unknown key,
    /// and returns the new one, if it is to change, with a result; it may run several times.
    #[inline(always)]
    pub(super) fn update<R>(
        &self,
        key: KeyHash,
        now: u64,
        step: impl Fn(u64) -> (Option<u64>, R) + Copy,
    ) -> R {
        let found = self.find(key);
        if let Some(entry) = found
            && let Some(result) = entry.update(key.tag, step)
        {
            return result;
        }
        self.update_slowly(key, now, found.is_some(), step)
    }

    /// Moves the instant of a key, or `now` if that is later, by `step`, if it is then at most `most` after
    /// `now`. Returns the instant that is in force then, and whether it was moved.
    #[inline]
    pub(super) fn advance(&self, key: KeyHash, now: u64, step: u64, most: u64) -> (u64, bool) {
        self.update(key, now, move |state| {
            let before = state.max(now);
            let after = before + step;
            if after - now > most {
                (None, (before, false))
            } else {
                (Some(after), (after, true))
            }
        })
    }

    /// The first entry with the tag of this key. Near ones are found by less code.
    #[inline(always)]
    fn find(&self, key: KeyHash) -> Option<Entry<'_>> {
        let near = find_in(self.near.of_key(key)?, key);
        near.or_else(|| self.find_far(key))
    }

    #[inline(never)]
    fn find_far(&self, key: KeyHash) -> Option<Entry<'_>> {
        find_in(self.far.of_key(key)?, key)
    }

    /// Fails if the key has no entry. All are tried that have its tag: one that is changing its key may still
    /// have it, and the key another entry by now.
    fn update_known<R>(
        &self,
        key: KeyHash,
        step: impl Fn(u64) -> (Option<u64>, R) + Copy,
    ) -> Option<R> {
        let parts = [&self.near, &self.far].into_iter();
        let buckets = parts.filter_map(|part| part.of_key(key)).flatten();
        let entries = buckets.flat_map(CacheLine::entries);
        let mut owned = entries.filter(|entry| entry.has(key));
        owned.find_map(|entry| entry.update(key.tag, step))
    }

    #[cold]
    #[inline(never)]
    fn update_slowly<R>(
        &self,
        key: KeyHash,
        now: u64,
        was_found: bool,
        step: impl Fn(u64) -> (Option<u64>, R) + Copy,
    ) -> R {
        if was_found && let Some(result) = self.update_known(key, step) {
            return result;
        }
        let (next, result) = step(0);
        let Some(next) = next else { return result };
        let _inserting = self.lock_inserts_of(key);
        loop {
            if let Some(result) = self.update_known(key, step) {
                return result;
            }
            if self.insert(key, now, next) {
                return result;
            }
        }
    }

    /// Fails if another thread has replaced the entry, or is replacing it.
    fn insert(&self, key: KeyHash, now: u64, state: u64) -> bool {
        let Some((victim, old)) = self.least_weighty(key, now) else {
            // A claim lasts two stores: its holder is nearly done, or sleeps.
            thread::yield_now();
            return false;
        };
        if !victim.claim(old, key.tag, state) {
            return false;
        }
        if unpack(old) > now {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// The entry to replace, and its state: a free one of the emptier bucket, near if there is one, otherwise
    /// the one with the least usage. `None` while a claimed entry may be that one. Without memory for the far
    /// part, the near one is all there is.
    fn least_weighty(&self, key: KeyHash, now: u64) -> Option<(Entry<'_>, u64)> {
        let mut least: Option<(Entry<'_>, u64)> = None;
        let mut claimed = false;
        for part in [&self.near, &self.far] {
            let Some(buckets) = part.made().and_then(|part| part.of_key(key)) else {
                continue;
            };
            let [first, second] = buckets.map(|bucket| bucket.survey(now));
            let emptier = if second.free > first.free {
                &second
            } else {
                &first
            };
            if emptier.free > 0 {
                return emptier.least;
            }
            claimed |= first.claimed || second.claimed;
            let all = [least, first.least, second.least].into_iter().flatten();
            least = all.min_by_key(|(_, state)| unpack(*state));
        }
        // If claimed entries were skipped, a few inserts at the same time would evict all others,
        // finally also the exhausted ones.
        least.filter(|_| !claimed)
    }

    fn lock_inserts_of(&self, key: KeyHash) -> MutexGuard<'_, ()> {
        let stripe = key.tag as usize % STRIPES;
        // The lock guards no data, so a poisoned lock is valid.
        unpoisoned(self.inserting[stripe].lock())
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let lines = self.near.iter().chain(self.far.iter());
        lines.flat_map(CacheLine::entries)
    }

    pub(super) fn entry_count(&self) -> usize {
        (self.near.count() + self.far.count()) * WAYS
    }

    /// Calls `each` with the tag and the state of the key of an entry, unless it is fresh at `now`.
    pub(super) fn visit(&self, entry: usize, now: u64, mut each: impl FnMut(u64, u64)) {
        let bucket = entry / WAYS;
        let line = match bucket.checked_sub(self.near.count()) {
            None => self.near.get(bucket),
            Some(bucket) => self.far.get(bucket),
        };
        let Some(line) = line else { return };
        let entry = line.entry(entry % WAYS);
        while let Err(Claimed) = entry.read(now, &mut each) {
            thread::yield_now();
        }
    }

    /// Inserts a key with this state, or raises the state that it has. In a full table the key with the
    /// least usage is dropped.
    pub(super) fn restore(&self, key: KeyHash, now: u64, state: u64) {
        let raise = |old| ((old < state).then_some(state), ());
        let _inserting = self.lock_inserts_of(key);
        while self.update_known(key, raise).is_none() {
            let victim = self.least_weighty(key, now);
            if let Some((_, old)) = victim
                && unpack(old) > now.max(state)
            {
                self.evictions.fetch_add(1, Ordering::Relaxed);
                return;
            }
            if self.insert(key, now, state) {
                return;
            }
        }
    }

    /// Replaces every state; 0 resets a key.
    pub(super) fn change_states(&self, change: impl Fn(u64) -> u64) {
        for entry in self.entries() {
            // An entry that changes its key meanwhile belongs to a later key.
            let tag = entry.tag.load(Ordering::Acquire);
            entry.update(tag, |state| {
                let new = change(state);
                ((new != state).then_some(new), ())
            });
        }
    }

    /// The number of keys that are not fresh at `now`. Walks the whole table.
    pub(super) fn live_keys(&self, now: u64) -> usize {
        self.entries()
            .filter(|entry| {
                let state = entry.state.load(Ordering::Relaxed);
                state != CLAIMED && unpack(state) > now
            })
            .count()
    }

    /// The number of keys that were evicted before they were fresh.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

struct CacheLineSurvey<'a> {
    free: usize,
    claimed: bool,
    least: Option<(Entry<'a>, u64)>,
}

/// The first entry with the tag of this key. By turns, so that the CPU waits for the memory of both buckets at
/// once.
#[inline(always)]
fn find_in([first, second]: [CacheLine<'_>; 2], key: KeyHash) -> Option<Entry<'_>> {
    for at in 0..WAYS {
        for entry in [first.entry(at), second.entry(at)] {
            if entry.has(key) {
                return Some(entry);
            }
        }
    }
    None
}

impl<'a> CacheLine<'a> {
    fn survey(self, now: u64) -> CacheLineSurvey<'a> {
        let mut survey = CacheLineSurvey {
            free: 0,
            claimed: false,
            least: None,
        };
        for entry in self.entries() {
            let state = entry.state.load(Ordering::Acquire);
            if state == CLAIMED {
                survey.claimed = true;
                continue;
            }
            survey.free += usize::from(unpack(state) <= now);
            if survey
                .least
                .is_none_or(|(_, least)| unpack(state) < unpack(least))
            {
                survey.least = Some((entry, state));
            }
        }
        survey
    }
}

/// The entry is changing its key.
struct Claimed;

impl Entry<'_> {
    /// Whether this is its tag; [`update`](Self::update) verifies whether it is its key.
    #[inline]
    fn has(self, key: KeyHash) -> bool {
        self.tag.load(Ordering::Acquire) == key.tag
    }

    /// Calls `each` with the tag and the state, if the state is later than `now`.
    fn read(self, now: u64, each: &mut impl FnMut(u64, u64)) -> Result<(), Claimed> {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state == CLAIMED {
                return Err(Claimed);
            }
            let tag = self.tag.load(Ordering::Acquire);
            // The state belongs to the tag if it has not changed, as for `update`.
            if self.state.load(Ordering::Acquire) == state {
                if unpack(state) > now {
                    each(tag, unpack(state));
                }
                return Ok(());
            }
        }
    }

    /// `None` when the entry does not, or no longer, belong to `tag`.
    #[inline]
    fn update<R>(self, tag: u64, step: impl Fn(u64) -> (Option<u64>, R) + Copy) -> Option<R> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state == CLAIMED || self.tag.load(Ordering::Acquire) != tag {
                return None;
            }
            let (next, result) = step(unpack(state));
            let Some(next) = next else {
                // Without a swap, a second load detects that the state is another key's: the entry may
                // have changed its key before the state was loaded, and back before the tag was.
                let again = self.state.load(Ordering::Acquire);
                if again == state {
                    return Some(result);
                }
                state = again;
                continue;
            };
            match self.state.compare_exchange_weak(
                state,
                pack(next, state),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(result),
                Err(changed) => state = changed,
            }
        }
    }

    /// Claims the entry and replaces its key, if it is still in state `old`.
    fn claim(self, old: u64, tag: u64, state: u64) -> bool {
        let claimed =
            self.state
                .compare_exchange(old, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_err() {
            return false;
        }
        self.tag.store(tag, Ordering::Release);
        self.state
            .store(pack(state, old.wrapping_add(1)), Ordering::Release);
        true
    }
}

/// `state` with the generation of `generation_of`'s low bits.
fn pack(state: u64, generation_of: u64) -> u64 {
    let generation = generation_of & ((1 << GENERATION_BITS) - 1);
    (state.min(MAX_STATE) << GENERATION_BITS) | generation
}

fn unpack(packed: u64) -> u64 {
    packed >> GENERATION_BITS
}

/// The entries of a bucket: four of 16 bytes are one cache line. Two in the model, because its
/// schedules grow with the square of the reads of a call.
const WAYS: usize = if cfg!(all(test, check_model)) { 2 } else { 4 };

/// The numbers of a bucket: a tag and a state for each entry.
const NUMBERS: usize = 2 * WAYS;

/// Buckets that are allocated when they are needed. Zeros are unused entries. The operating system
/// provides zeroed memory page by page when it is touched, so a table takes memory only where it has keys;
/// an allocator that has memory of an earlier table zeroes it at once.
#[derive(Debug)]
struct Buckets {
    memory: OnceLock<Memory>,
    count: usize,
}

/// All buckets in one slice of numbers.
#[derive(Debug)]
struct Memory {
    numbers: Box<[AtomicU64]>,
    /// The index of the first number that begins a cache line.
    first: usize,
}

/// One bucket.
#[derive(Debug, Clone, Copy)]
struct CacheLine<'a>(&'a [AtomicU64; NUMBERS]);

/// One entry: the tag of its key, and the key's state.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    pub tag: &'a AtomicU64,
    state: &'a AtomicU64,
}

impl Buckets {
    const fn new(count: usize) -> Self {
        Self {
            memory: OnceLock::new(),
            count,
        }
    }

    fn count(&self) -> usize {
        self.count
    }

    /// Allocates the buckets, unless they are. `None` if there is no memory, or no bucket.
    fn made(&self) -> Option<&Self> {
        if self.memory.get().is_none() {
            let _other_was_first = self.memory.set(Memory::try_new(self.count)?);
        }
        Some(self)
    }

    /// The two buckets of a key; `None` if none are allocated.
    #[inline]
    fn of_key(&self, key: KeyHash) -> Option<[CacheLine<'_>; 2]> {
        let memory = self.memory.get()?;
        // Not by `map`, which is not inlined.
        let [first, second] = key.buckets(self.count);
        Some([memory.line(first), memory.line(second)])
    }

    /// The bucket with this index, if they are allocated.
    fn get(&self, bucket: usize) -> Option<CacheLine<'_>> {
        Some(self.memory.get()?.line(bucket))
    }

    /// All buckets; none if they are not allocated.
    fn iter(&self) -> impl Iterator<Item = CacheLine<'_>> {
        (0..self.count).map_while(|bucket| self.get(bucket))
    }
}

impl Memory {
    fn try_new(buckets: usize) -> Option<Self> {
        let numbers = NonZero::new(buckets)?.get().checked_mul(NUMBERS)?;
        let numbers = zeroed(numbers.checked_add(NUMBERS)?)?;
        let line = size_of::<[AtomicU64; NUMBERS]>();
        let before = numbers.as_ptr().addr().next_multiple_of(line) - numbers.as_ptr().addr();
        Some(Self {
            first: before / size_of::<AtomicU64>(),
            numbers,
        })
    }

    /// # Panics
    ///
    /// If there are fewer buckets.
    #[inline]
    fn line(&self, bucket: usize) -> CacheLine<'_> {
        let line = self.numbers[self.first + bucket * NUMBERS..].first_chunk();
        CacheLine(line.expect("as many buckets"))
    }
}

impl<'a> CacheLine<'a> {
    #[inline]
    fn entry(self, at: usize) -> Entry<'a> {
        Entry {
            tag: &self.0[2 * at],
            state: &self.0[2 * at + 1],
        }
    }

    #[inline]
    fn entries(self) -> impl Iterator<Item = Entry<'a>> {
        (0..WAYS).map(move |at| self.entry(at))
    }
}

/// Zeros in memory that is not touched before they are; `None` if there is no memory.
#[cfg(not(all(test, check_model)))]
fn zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::allocation::try_zeroed_slice_box(count).ok()
}

/// Zeros of the model checker's type.
#[cfg(all(test, check_model))]
fn zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..count).map(|_| AtomicU64::new(0)).collect())
}

#[cfg(all(test, not(check_model)))]
mod tests {
    use super::{Buckets, Table};

    #[test]
    fn table_without_memory_for_it_is_an_error() {
        assert!(Table::try_new(usize::MAX).is_none());
        assert!(Table::try_new(1 << 60).is_none());
    }

    #[test]
    fn every_bucket_is_a_cache_line() {
        for count in [2, 3, 1_000] {
            let buckets = Buckets::new(count);
            assert!(buckets.iter().next().is_none());
            assert!(buckets.made().is_some());
            for bucket in buckets.iter() {
                assert_eq!(bucket.0.as_ptr().addr() % 64, 0);
            }
            assert_eq!(buckets.iter().count(), count);
        }
    }
}
