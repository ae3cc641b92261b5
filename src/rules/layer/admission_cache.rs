//! A bounded cache of the admissions of several rules that apply to one request.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwapOption;

/// One of the rules that apply to a request: its position, and the index of its set of quotas. The class and the cost of
/// the request are not part of the key of the cache.
pub(super) type AppliedSet = (u16, usize);

/// The number of slots in which one list of rules may be.
const WAYS: usize = 4;

const SLOTS: usize = 1_024;

/// The admissions of lists of rules, in a set-associative cache.
///
/// Clients choose which rules and tiers apply together. A new list evicts one that was not requested since the last
/// eviction in its set (second chance), so a list in use survives a flood of others.
pub(super) struct AdmissionCache<A> {
    slots: Box<[ArcSwapOption<CachedAdmission<A>>]>,
    hasher: RandomState,
    /// Chooses the slot to evict if all of a set are in use.
    turn: AtomicUsize,
}

struct CachedAdmission<A> {
    sets: Box<[AppliedSet]>,
    admission: Arc<A>,
    /// Whether the entry was requested since the last eviction in its set.
    used: AtomicBool,
}

impl<A> AdmissionCache<A> {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| ArcSwapOption::empty()).collect(),
            hasher: RandomState::new(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The slots in which this list may be.
    fn slots_of(&self, sets: &[AppliedSet]) -> &[ArcSwapOption<CachedAdmission<A>>] {
        let count = (SLOTS / WAYS) as u64;
        // The remainder is less than the number of sets.
        let set = (self.hasher.hash_one(sets) % count) as usize;
        &self.slots[set * WAYS..(set + 1) * WAYS]
    }

    pub(super) fn get(&self, sets: &[AppliedSet]) -> Option<Arc<A>> {
        self.slots_of(sets).iter().find_map(|slot| {
            let entry = slot.load();
            let entry = entry.as_ref().filter(|entry| *entry.sets == *sets)?;
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            Some(Arc::clone(&entry.admission))
        })
    }

    /// Inserts the admission of this list, and evicts another one if its set is full.
    pub(super) fn insert(&self, sets: Box<[AppliedSet]>, admission: &Arc<A>) {
        let slot = self.free_slot(self.slots_of(&sets));
        slot.store(Some(Arc::new(CachedAdmission {
            sets,
            admission: Arc::clone(admission),
            used: AtomicBool::new(false),
        })));
    }

    fn free_slot<'a>(
        &self,
        slots: &'a [ArcSwapOption<CachedAdmission<A>>],
    ) -> &'a ArcSwapOption<CachedAdmission<A>> {
        let is_used = |slot: &ArcSwapOption<CachedAdmission<A>>| {
            let entry = slot.load();
            let entry = entry.as_ref();
            entry.is_some_and(|entry| entry.used.load(Ordering::Relaxed))
        };
        let is_empty = |slot: &&ArcSwapOption<CachedAdmission<A>>| slot.load().is_none();
        let free = slots.iter().find(is_empty);
        if let Some(slot) = free.or_else(|| slots.iter().find(|slot| !is_used(slot))) {
            return slot;
        }
        for slot in slots {
            if let Some(entry) = &*slot.load() {
                entry.used.store(false, Ordering::Relaxed);
            }
        }
        &slots[self.turn.fetch_add(1, Ordering::Relaxed) % WAYS]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let full = self.slots.iter().filter(|slot| slot.load().is_some());
        full.count()
    }
}
