//! Slots of waiting requests: how many may wait in all, and how many of them each key holds.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{key::Key, lock::unpoisoned};

/// One key holds at most this part of the slots.
const SHARE: usize = 8;

const SHARDS: usize = 32;

/// The limit that counts by a key, and the key.
pub(super) type SlotOwner = (usize, Key);

/// The slots that are taken.
#[derive(Debug, Default)]
pub(super) struct WaitingSlots {
    taken: AtomicUsize,
    by_owner: [Mutex<HashMap<SlotOwner, usize>>; SHARDS],
    hasher: RandomState,
}

/// One slot, which counts for each of its owners until it is dropped.
#[derive(Debug)]
pub(super) struct HeldSlot {
    slots: Arc<WaitingSlots>,
    owners: Vec<SlotOwner>,
}

impl WaitingSlots {
    /// Whether any slot is taken.
    #[inline]
    pub(super) fn are_used(&self) -> bool {
        self.taken.load(Ordering::Acquire) > 0
    }

    /// Takes one of `most` slots, if one is free and each owner has fewer than its share.
    pub(super) fn take(
        self: &Arc<Self>,
        owners: impl Iterator<Item = SlotOwner>,
        most: usize,
    ) -> Option<HeldSlot> {
        let one_more = |taken| (taken < most).then_some(taken + 1);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.taken.fetch_update(set, fetch, one_more).ok()?;
        let mut held = HeldSlot {
            slots: Arc::clone(self),
            owners: Vec::new(),
        };
        let share = (most / SHARE).max(1);
        for owner in owners {
            // An early return drops the slot, which releases it.
            if !self.count(&owner, share) {
                return None;
            }
            held.owners.push(owner);
        }
        Some(held)
    }

    /// Counts one more for this owner, if it has fewer than `share`.
    fn count(&self, owner: &SlotOwner, share: usize) -> bool {
        let mut counts = self.lock(owner);
        match counts.get_mut(owner) {
            Some(count) if *count >= share => return false,
            Some(count) => *count += 1,
            None => {
                counts.insert(owner.clone(), 1);
            }
        }
        true
    }

    fn discount(&self, owner: &SlotOwner) {
        let mut counts = self.lock(owner);
        let Some(count) = counts.get_mut(owner) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(owner);
        }
        if counts.is_empty() {
            counts.shrink_to(SHARE);
        }
    }

    fn lock(&self, owner: &SlotOwner) -> MutexGuard<'_, HashMap<SlotOwner, usize>> {
        // The remainder is less than the number of shards.
        let shard = (self.hasher.hash_one(owner) % SHARDS as u64) as usize;
        unpoisoned(self.by_owner[shard].lock())
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        for owner in &self.owners {
            self.slots.discount(owner);
        }
        self.slots.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
