//! A cache of the desks of rules that met in a request.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwapOption;

/// A rule that others met in a request: the places of it and of its quotas. Nothing else of a request
/// is part of it, in particular not its cost.
pub(super) type Met = (u16, usize);

/// The slots in which one list of rules may be.
const WAYS: usize = 4;

/// How many lists of rules are kept at most.
const SLOTS: usize = 1_024;

/// The desks of lists of rules, a bounded number of them.
///
/// Clients choose which rules and tiers meet. A list that is looked up again and again stays: of the
/// slots for a new list the first one is given up that nobody has looked up since the last time.
pub(super) struct DeskCache<D> {
    slots: Box<[ArcSwapOption<CachedDesk<D>>]>,
    hasher: RandomState,
    /// The slot to give up where all are in use.
    turn: AtomicUsize,
}

struct CachedDesk<D> {
    met: Box<[Met]>,
    desk: Arc<D>,
    /// Whether it was looked up since a slot beside it was last given up.
    used: AtomicBool,
}

impl<D> DeskCache<D> {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| ArcSwapOption::empty()).collect(),
            hasher: RandomState::new(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The slots in which this list may be.
    fn slots_of(&self, met: &[Met]) -> &[ArcSwapOption<CachedDesk<D>>] {
        let sets = (SLOTS / WAYS) as u64;
        // The remainder is less than the number of sets.
        let set = (self.hasher.hash_one(met) % sets) as usize;
        &self.slots[set * WAYS..(set + 1) * WAYS]
    }

    pub(super) fn get(&self, met: &[Met]) -> Option<Arc<D>> {
        self.slots_of(met).iter().find_map(|slot| {
            let entry = slot.load();
            let entry = entry.as_ref().filter(|entry| *entry.met == *met)?;
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            Some(Arc::clone(&entry.desk))
        })
    }

    /// Keeps the desk of this list, in the place of another one if need be.
    pub(super) fn insert(&self, met: Box<[Met]>, desk: &Arc<D>) {
        let slot = self.free_slot(self.slots_of(&met));
        slot.store(Some(Arc::new(CachedDesk {
            met,
            desk: Arc::clone(desk),
            used: AtomicBool::new(false),
        })));
    }

    fn free_slot<'a>(
        &self,
        slots: &'a [ArcSwapOption<CachedDesk<D>>],
    ) -> &'a ArcSwapOption<CachedDesk<D>> {
        let is_used = |slot: &ArcSwapOption<CachedDesk<D>>| {
            let entry = slot.load();
            let entry = entry.as_ref();
            entry.is_some_and(|entry| entry.used.load(Ordering::Relaxed))
        };
        let is_empty = |slot: &&ArcSwapOption<CachedDesk<D>>| slot.load().is_none();
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

    /// How many lists are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let kept = self.slots.iter().filter(|slot| slot.load().is_some());
        kept.count()
    }
}
