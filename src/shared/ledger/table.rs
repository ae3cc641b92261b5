//! The table of leases: buckets of entries, each under a lock.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    super::mode::LeaseTerms,
    entry::{LeaseEntry, LeaseHolder},
};
use crate::{decision::Op, lock::unpoisoned};

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
    /// Of eventual mode.
    pub(super) doubt: Doubt,
}

/// Until when a key that has no entry may all the same be one that this node has used or blocked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Doubt(Option<Instant>);

impl Doubt {
    pub(super) fn last(&mut self, length: Duration, now: Instant) {
        let until = now.checked_add(length.min(LONGEST_DOUBT)).unwrap_or(now);
        self.0 = self.0.max(Some(until));
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.0.is_none_or(|until| until <= now)
    }
}

/// As good as forever.
const LONGEST_DOUBT: Duration = Duration::from_secs(20 * 366 * 86_400);

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
                doubt: Doubt::default(),
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

    /// Has nothing of a key spent any more.
    pub(super) fn close(&mut self, tag: u64) {
        let own = self.list.iter_mut().filter(|entry| entry.holder.tag == tag);
        own.for_each(LeaseEntry::close);
    }

    /// Whether the subject was never seen, as far as this node can tell; in eventual mode. Operations
    /// that take or block without an entry are noted.
    pub(super) fn is_new(
        &mut self,
        holder: LeaseHolder,
        op: &Op,
        (memory, now): (Duration, Instant),
    ) -> bool {
        let mut own = self.list.iter();
        let is_counted = own.any(|own| own.holder == holder && own.ahead.is_some());
        match op {
            Op::Block(length) => self.doubt.last(memory.max(*length), now),
            Op::Hit(_) | Op::Settle(..) if !is_counted => self.doubt.last(memory, now),
            _ => {}
        }
        // In another tier, or by older quotas, units of it were spent already.
        let is_known = is_counted || {
            let mut others = self.list.iter().filter(|own| own.holder != holder);
            others.any(|own| own.holder.tag == holder.tag)
        };
        !is_known && self.doubt.is_over(now)
    }

    /// The entry of this holder; a new one if there is none, units are asked for, and there is room.
    /// An entry that holds units never gives way, of the others the one that was asked for least.
    #[inline]
    pub(super) fn entry(
        &mut self,
        holder: LeaseHolder,
        begins: bool,
        now: Instant,
        (terms, memory): (&LeaseTerms, Duration),
    ) -> Option<&mut LeaseEntry<P>> {
        let known = self.list.iter().position(|entry| entry.holder == holder);
        let place = match known {
            Some(place) => place,
            None if begins => self.begin(holder, now, (terms, memory))?,
            None => return None,
        };
        self.list.get_mut(place)
    }

    #[cold]
    fn begin(
        &mut self,
        holder: LeaseHolder,
        now: Instant,
        (terms, memory): (&LeaseTerms, Duration),
    ) -> Option<usize> {
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
        let place = least.map(|(place, _)| place);
        // The one that is turned away goes on without an entry, or another one does.
        let is_unknown = |place: usize| self.list[place].is_unknown();
        if terms.ahead.is_some() && place.is_none_or(is_unknown) {
            self.doubt.last(memory, now);
        }
        self.list[place?] = entry;
        place
    }
}

/// Shows all entries of buckets in which there are leases.
pub(super) fn each_lease<P>(
    buckets: &[LeaseBucket<P>],
    mut see: impl FnMut(&mut LeaseEntry<P>, &mut Doubt) -> Option<()>,
) {
    for bucket in buckets {
        if !bucket.has_leases.load(Ordering::Relaxed) {
            continue;
        }
        let LeaseEntries { list, doubt, .. } = &mut *bucket.lock();
        let mut has_leases = false;
        for entry in list {
            see(entry, doubt);
            has_leases |= entry.lease.is_some() || entry.ahead.is_some();
        }
        bucket.has_leases.store(has_leases, Ordering::Relaxed);
    }
}
