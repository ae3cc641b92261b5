//! Places in a waiting room: how many there are in all, and how many of them each key holds.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{key::Key, lock::unpoisoned};

/// The part of the room that one key can fill.
const SHARE: usize = 8;

const SHARDS: usize = 32;

/// A key, after the limit that counts by it.
pub(super) type PlaceHolder = (usize, Key);

/// The places that are taken.
#[derive(Debug, Default)]
pub(super) struct WaitingPlaces {
    taken: AtomicUsize,
    by_holder: [Mutex<HashMap<PlaceHolder, usize>>; SHARDS],
    hasher: RandomState,
}

/// One place, which counts at each of its holders until it is dropped.
#[derive(Debug)]
pub(super) struct HeldPlace {
    places: Arc<WaitingPlaces>,
    holders: Vec<PlaceHolder>,
}

impl WaitingPlaces {
    /// Whether any place is taken.
    #[inline]
    pub(super) fn are_used(&self) -> bool {
        self.taken.load(Ordering::Acquire) > 0
    }

    /// Takes one of `most` places, if one is free and each holder has fewer than its share.
    pub(super) fn take(
        self: &Arc<Self>,
        holders: impl Iterator<Item = PlaceHolder>,
        most: usize,
    ) -> Option<HeldPlace> {
        let one_more = |taken| (taken < most).then_some(taken + 1);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.taken.fetch_update(done, seen, one_more).ok()?;
        let mut held = HeldPlace {
            places: Arc::clone(self),
            holders: Vec::new(),
        };
        let share = (most / SHARE).max(1);
        for holder in holders {
            // Dropping what is held so far gives it back.
            if !self.count(&holder, share) {
                return None;
            }
            held.holders.push(holder);
        }
        Some(held)
    }

    /// Counts one more for this holder, if it has fewer than `share`.
    fn count(&self, holder: &PlaceHolder, share: usize) -> bool {
        let mut counts = self.lock(holder);
        match counts.get_mut(holder) {
            Some(count) if *count >= share => return false,
            Some(count) => *count += 1,
            None => {
                counts.insert(holder.clone(), 1);
            }
        }
        true
    }

    fn discount(&self, holder: &PlaceHolder) {
        let mut counts = self.lock(holder);
        let Some(count) = counts.get_mut(holder) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(holder);
        }
        if counts.is_empty() {
            counts.shrink_to(SHARE);
        }
    }

    fn lock(&self, holder: &PlaceHolder) -> MutexGuard<'_, HashMap<PlaceHolder, usize>> {
        // The remainder is less than the number of shards.
        let shard = (self.hasher.hash_one(holder) % SHARDS as u64) as usize;
        unpoisoned(self.by_holder[shard].lock())
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        for holder in &self.holders {
            self.places.discount(holder);
        }
        self.places.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
