//! The lock-free table: one number for each key.

mod buckets;
#[cfg(all(test, check_model))]
mod model;
mod sync;

use self::{
    buckets::{Buckets, CacheLine, Entry, WAYS},
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, thread},
};
use super::{capacity::entries_for, hash::KeyHash};
use crate::lock::unpoisoned;

/// Inserts that may go on at the same time.
const STRIPES: usize = 256;

/// Low bits of an entry's state that count how often it changed hands.
const GENERATION_BITS: u32 = 3;

/// The state of an entry that is changing hands. No state of 61 bits packs into it, see `pack`.
const CLAIMED: u64 = u64::MAX;

/// The largest state that an entry can hold.
pub(super) const MAX_STATE: u64 = (u64::MAX >> GENERATION_BITS) - 1;

/// A hash table of fixed size from keys to one number each, updated without locks.
///
/// The number is an instant: an entry whose instant has passed has nothing left to remember, so it
/// is free, whatever key it belonged to. Nothing has to be swept. A key can live in two buckets;
/// a new one goes to the emptier, and where both are full it takes the place of the entry whose
/// instant comes first, the one with the least to forget.
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
/// 3. Each claim counts up a generation in the state's low bits, so a swap by a reader that slept
///    through a change of hands fails even if the new owner's instant is the same.
/// 4. A key is inserted under a lock, after looking once more. The lock is chosen by the key, not
///    by the bucket, so no key is ever inserted twice.
/// 5. Nothing live is given up next to an entry that is claimed, which may have less to forget.
///
/// The model in `table/model.rs` fails without any one of them.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Buckets,
    inserting: Box<[Mutex<()>]>,
    evictions: AtomicU64,
}

impl Table {
    /// A table that keeps `max_keys` live keys and loses fewer than 1 in 10,000 of them.
    ///
    /// `None` where there is no room for that many: the number comes from somebody's settings, and
    /// an allocation that fails otherwise takes the process with it.
    pub(super) fn try_new(max_keys: usize) -> Option<Self> {
        Self::with_buckets(entries_for(max_keys).div_ceil(WAYS).max(2))
    }

    fn with_buckets(count: usize) -> Option<Self> {
        Some(Self {
            buckets: Buckets::try_new(count)?,
            inserting: (0..STRIPES).map(|_| Mutex::default()).collect(),
            evictions: AtomicU64::new(0),
        })
    }

    /// Replaces the state of a key in one step. `step` gets the old state, 0 for an unknown key,
    /// and returns the new one, if it is to change, with a result; it may run several times.
    #[inline]
    pub(super) fn update<R>(
        &self,
        key: KeyHash,
        now: u64,
        mut step: impl FnMut(u64) -> (Option<u64>, R),
    ) -> R {
        if let Some(result) = self.update_known(key, &mut step) {
            return result;
        }
        self.update_unknown(key, now, step)
    }

    #[inline]
    fn update_known<R>(
        &self,
        key: KeyHash,
        step: &mut impl FnMut(u64) -> (Option<u64>, R),
    ) -> Option<R> {
        let [first, second] = self.candidates(key);
        // Both are read before either is judged, so that the memory is waited for once.
        let mut owned = first.owned_by(key.tag) | second.owned_by(key.tag) << WAYS;
        while owned > 0 {
            let at = owned.trailing_zeros() as usize;
            let bucket = if at < WAYS { first } else { second };
            let entry = bucket.entry(at % WAYS);
            if let Some(result) = entry.update(key.tag, step) {
                return Some(result);
            }
            owned &= owned - 1;
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn update_unknown<R>(
        &self,
        key: KeyHash,
        now: u64,
        mut step: impl FnMut(u64) -> (Option<u64>, R),
    ) -> R {
        let (next, result) = step(0);
        let Some(next) = next else { return result };
        let _inserting = self.lock_inserts_of(key);
        loop {
            if let Some(result) = self.update_known(key, &mut step) {
                return result;
            }
            if self.insert(key, now, next) {
                return result;
            }
        }
    }

    /// Fails when another thread was faster at the entry that was to be replaced, or is at it.
    fn insert(&self, key: KeyHash, now: u64, state: u64) -> bool {
        let Some((victim, old)) = self.victim(key, now) else {
            // A claim is two stores long: its holder is nearly done, or was put to sleep.
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

    /// The entry to replace, and the state in which it was seen: a free one of the emptier bucket,
    /// else the one with the least to forget. `None` while an entry that changes hands hides that.
    fn victim(&self, key: KeyHash, now: u64) -> Option<(Entry<'_>, u64)> {
        let [first, second] = self.candidates(key).map(|bucket| bucket.survey(now));
        if second.free > first.free {
            return second.least;
        }
        if first.free > 0 {
            return first.least;
        }
        // With the claimed entry passed over, a few inserts at the same time would give up all of
        // the rest, the exhausted ones last but also.
        if first.claimed || second.claimed {
            return None;
        }
        let least = [first.least, second.least].into_iter().flatten();
        least.min_by_key(|(_, state)| unpack(*state))
    }

    fn candidates(&self, key: KeyHash) -> [CacheLine<'_>; 2] {
        key.buckets(self.buckets.count())
            .map(|bucket| self.buckets.get(bucket))
    }

    fn lock_inserts_of(&self, key: KeyHash) -> MutexGuard<'_, ()> {
        let stripe = key.tag as usize % STRIPES;
        // The lock guards no data of its own, so a panic elsewhere leaves nothing half done.
        unpoisoned(self.inserting[stripe].lock())
    }

    /// Brings every state down to `most`; 0 forgets all keys.
    pub(super) fn limit_states(&self, most: u64) {
        for entry in self.buckets.iter().flat_map(CacheLine::entries) {
            // An entry that changes hands meanwhile belongs to a key that comes after this.
            let tag = entry.tag.load(Ordering::Acquire);
            entry.update(tag, &mut |state| ((state > most).then_some(most), ()));
        }
    }

    /// Keys with something to remember at `now`. Walks the whole table.
    pub(super) fn live_keys(&self, now: u64) -> usize {
        let entries = self.buckets.iter().flat_map(CacheLine::entries);
        entries
            .filter(|entry| {
                let state = entry.state.load(Ordering::Relaxed);
                state != CLAIMED && unpack(state) > now
            })
            .count()
    }

    /// How many keys were given up while they still had something to remember.
    pub(super) fn add_evictions(&self, evictions: u64) {
        self.evictions.fetch_add(evictions, Ordering::Relaxed);
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

struct CacheLineSurvey<'a> {
    free: usize,
    claimed: bool,
    least: Option<(Entry<'a>, u64)>,
}

impl<'a> CacheLine<'a> {
    /// A bit for each entry that has this tag. That says no more than where to look, see
    /// [`Entry::update`].
    #[inline]
    fn owned_by(self, tag: u64) -> u32 {
        let entries = self.entries().enumerate();
        entries.fold(0, |owned, (at, entry)| {
            owned | u32::from(entry.tag.load(Ordering::Acquire) == tag) << at
        })
    }

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

impl Entry<'_> {
    /// `None` when the entry does not, or no longer, belong to `tag`.
    #[inline]
    fn update<R>(self, tag: u64, step: &mut impl FnMut(u64) -> (Option<u64>, R)) -> Option<R> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state == CLAIMED || self.tag.load(Ordering::Acquire) != tag {
                return None;
            }
            let (next, result) = step(unpack(state));
            let Some(next) = next else {
                // No swap will find out that the state is another key's: the entry may have changed
                // hands before the state was loaded, and back before the tag was.
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

    /// Takes the entry over if it is still in state `old`.
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

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn table_without_memory_for_it_is_an_error() {
        assert!(Table::try_new(usize::MAX).is_none());
        assert!(Table::try_new(1 << 60).is_none());
    }
}
