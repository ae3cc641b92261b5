//! The table of leases: buckets of entries, each under a lock.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use tokio::time::Instant;

use super::{
    super::mode::LeaseTerms,
    entry::{LeaseEntry, LeaseHolder},
};
use crate::lock::unpoisoned;

/// Entries in a bucket.
pub(super) const WAYS: usize = 4;

pub(super) struct LeaseBucket<P> {
    /// Whether any entry has a lease, so that looking for some is quick.
    pub(super) has_leases: AtomicBool,
    entries: Mutex<LeaseEntries<P>>,
}

pub(super) struct LeaseEntries<P> {
    pub(super) list: Vec<LeaseEntry<P>>,
    /// Operations that were answered here.
    pub(super) local: u64,
    /// How often anything was forgotten: the time by which answers are too old.
    pub(super) forgets: u64,
}

impl<P> LeaseBucket<P> {
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, LeaseEntries<P>> {
        unpoisoned(self.entries.lock())
    }
}

impl<P> Default for LeaseBucket<P> {
    fn default() -> Self {
        Self {
            has_leases: AtomicBool::new(false),
            entries: Mutex::new(LeaseEntries {
                list: Vec::new(),
                local: 0,
                forgets: 0,
            }),
        }
    }
}

impl<P> LeaseEntries<P> {
    #[inline]
    pub(super) fn find(&mut self, holder: LeaseHolder) -> Option<&mut LeaseEntry<P>> {
        self.list.iter_mut().find(|entry| entry.holder == holder)
    }

    /// Forgets the denials of all tiers of a key, and those that are under way.
    pub(super) fn forget(&mut self, tag: u64) {
        self.forgets += 1;
        let own = self.list.iter_mut().filter(|entry| entry.holder.tag == tag);
        own.for_each(|entry| entry.forget(self.forgets));
    }

    /// The entry of this holder; a new one if there is none, units are asked for, and there is room.
    /// An entry that holds units never gives way, of the others the one that was asked for least.
    #[inline]
    pub(super) fn entry(
        &mut self,
        holder: LeaseHolder,
        begins: bool,
        now: Instant,
        terms: &LeaseTerms,
    ) -> Option<&mut LeaseEntry<P>> {
        let known = self.list.iter().position(|entry| entry.holder == holder);
        let place = match known {
            Some(place) => place,
            None if begins => self.begin(holder, now, terms)?,
            None => return None,
        };
        self.list.get_mut(place)
    }

    #[cold]
    fn begin(&mut self, holder: LeaseHolder, now: Instant, terms: &LeaseTerms) -> Option<usize> {
        let entry = LeaseEntry::new(holder, self.forgets, now);
        if self.list.len() < WAYS {
            if self.list.is_empty() {
                self.list.reserve_exact(WAYS);
            }
            self.list.push(entry);
            return Some(self.list.len() - 1);
        }
        let demand = |entry: &LeaseEntry<P>| entry.demand.at(now, terms.length);
        let others = self
            .list
            .iter()
            .enumerate()
            .filter(|(_, known)| !known.holds(now));
        let least = others.min_by(|(_, a), (_, b)| demand(a).total_cmp(&demand(b)));
        let (place, _) = least?;
        self.list[place] = entry;
        Some(place)
    }
}

/// Shows all entries of buckets in which there are leases.
pub(super) fn each_lease<P>(
    buckets: &[LeaseBucket<P>],
    mut see: impl FnMut(&mut LeaseEntry<P>) -> Option<()>,
) {
    for bucket in buckets {
        if !bucket.has_leases.load(Ordering::Relaxed) {
            continue;
        }
        let mut entries = bucket.lock();
        let mut has_leases = false;
        for entry in &mut entries.list {
            see(entry);
            has_leases |= entry.lease.is_some() || entry.ahead.is_some();
        }
        bucket.has_leases.store(has_leases, Ordering::Relaxed);
    }
}
