//! The table of a ledger: buckets of entries, each under a lock.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{node_time::NodeTime, recent_demand::RecentDemand};
use crate::{
    lock::unpoisoned,
    shared::{eventual::Unreported, hashed_key_names::MeasuredSubject, lease::LeaseState},
};

/// Entries in a bucket.
pub(super) const WAYS: usize = 4;

/// All that a node keeps about one subject.
#[derive(Debug)]
pub(in crate::shared) struct LedgerEntry<P> {
    pub(in crate::shared) subject: MeasuredSubject,
    pub(in crate::shared) demand: RecentDemand,
    pub(in crate::shared) state: EntryState<P>,
}

/// The units of a subject on this node.
#[derive(Debug)]
pub(in crate::shared) enum EntryState<P> {
    /// None, and none requested.
    Idle,
    /// Leased mode: units that the store has reserved for this node.
    Lease(Box<LeaseState<P>>),
    /// Eventual mode: units that this node has spent, reported afterwards.
    Eventual(Box<Unreported<P>>),
}

pub(in crate::shared) struct LeaseBucket<P> {
    /// Whether any entry may have units: the maintenance task skips other buckets.
    pub(in crate::shared) has_units: AtomicBool,
    entries: Mutex<LeaseEntries<P>>,
}

pub(in crate::shared) struct LeaseEntries<P> {
    pub(in crate::shared) list: Vec<LedgerEntry<P>>,
    /// How many operations this node decided without the store.
    pub(in crate::shared) local: u64,
    /// Eventual mode: until then a key without an entry may be one that this node has used or
    /// blocked.
    doubt_until: Option<NodeTime>,
}

impl<P> LeaseBucket<P> {
    pub(in crate::shared) fn lock(&self) -> MutexGuard<'_, LeaseEntries<P>> {
        unpoisoned(self.entries.lock())
    }
}

impl<P> Default for LeaseBucket<P> {
    fn default() -> Self {
        Self {
            has_units: AtomicBool::new(false),
            entries: Mutex::new(LeaseEntries {
                list: Vec::new(),
                local: 0,
                doubt_until: None,
            }),
        }
    }
}

impl<P> LeaseEntries<P> {
    #[inline]
    pub(in crate::shared) fn find(
        &mut self,
        subject: MeasuredSubject,
    ) -> Option<&mut LedgerEntry<P>> {
        self.list.iter_mut().find(|entry| entry.subject == subject)
    }

    /// For this time a key without an entry may be one that this node has used or blocked.
    pub(in crate::shared) fn doubt(&mut self, length: Duration, now: NodeTime) {
        self.doubt_until = self.doubt_until.max(Some(now + length));
    }

    pub(in crate::shared) fn is_in_doubt(&self, now: NodeTime) -> bool {
        self.doubt_until.is_some_and(|until| now < until)
    }

    fn of_key(&mut self, tag: u64) -> impl Iterator<Item = &mut LedgerEntry<P>> {
        let list = self.list.iter_mut();
        list.filter(move |entry| entry.subject.tag == tag)
    }

    /// Ends the pauses of all tiers of a key: units were returned.
    pub(super) fn end_pauses(&mut self, tag: u64) {
        for entry in self.of_key(tag) {
            if let EntryState::Lease(lease) = &mut entry.state {
                lease.end_pause();
            }
        }
    }

    /// Closes the entries of all tiers of a key.
    pub(in crate::shared) fn close(&mut self, tag: u64) {
        self.of_key(tag).for_each(|entry| entry.state.close());
    }

    /// The entry of this subject. With `begins` a subject without one gets a new one, if there is
    /// room. Evicts the least requested entry; entries that hold units are never evicted.
    pub(in crate::shared) fn entry(
        &mut self,
        subject: MeasuredSubject,
        begins: bool,
        now: NodeTime,
        length: Duration,
    ) -> Option<&mut LedgerEntry<P>> {
        let known = self.list.iter().position(|entry| entry.subject == subject);
        let place = match known {
            Some(place) => place,
            None if begins => {
                let place = self.room(now, length)?;
                self.put(place, subject, now);
                place
            }
            None => return None,
        };
        self.list.get_mut(place)
    }

    /// The place for a new entry: an empty one, or that of the entry to evict.
    #[cold]
    pub(in crate::shared) fn room(&self, now: NodeTime, length: Duration) -> Option<usize> {
        if self.list.len() < WAYS {
            return Some(self.list.len());
        }
        let demand = |entry: &LedgerEntry<P>| entry.demand.at(now, length);
        let entries = self.list.iter().enumerate();
        let others = entries.filter(|(_, known)| !known.state.holds(now));
        let least = others.min_by(|(_, a), (_, b)| demand(a).total_cmp(&demand(b)));
        least.map(|(place, _)| place)
    }

    #[cold]
    pub(in crate::shared) fn put(&mut self, place: usize, subject: MeasuredSubject, now: NodeTime) {
        let entry = LedgerEntry {
            subject,
            demand: RecentDemand::new(now),
            state: EntryState::Idle,
        };
        if place < self.list.len() {
            self.list[place] = entry;
            return;
        }
        // Most buckets of a table that is not full have one entry.
        self.list.reserve_exact(1);
        self.list.push(entry);
    }
}

impl<P> EntryState<P> {
    /// Whether units would be lost with the entry.
    pub(super) fn holds(&self, now: NodeTime) -> bool {
        match self {
            Self::Idle => false,
            Self::Lease(lease) => lease.holds(),
            Self::Eventual(unreported) => unreported.matters(now),
        }
    }

    /// Whether this node has spent units and only the store knows how the quotas stand.
    pub(in crate::shared) fn is_unknown(&self) -> bool {
        matches!(self, Self::Eventual(unreported) if unreported.has_no_view())
    }

    /// Spends no more and returns what is left.
    pub(super) fn close(&mut self) {
        match self {
            Self::Idle => {}
            Self::Lease(lease) => lease.is_closing = true,
            Self::Eventual(unreported) => unreported.forget(),
        }
    }
}

/// Calls `visit` with all buckets in which there may be units.
pub(in crate::shared) fn each_bucket<P>(
    buckets: &[LeaseBucket<P>],
    mut visit: impl FnMut(&mut LeaseEntries<P>),
) {
    for bucket in buckets {
        if !bucket.has_units.load(Ordering::Relaxed) {
            continue;
        }
        let mut entries = bucket.lock();
        visit(&mut entries);
        let is_idle = |entry: &LedgerEntry<P>| matches!(entry.state, EntryState::Idle);
        let has_units = !entries.list.iter().all(is_idle);
        bucket.has_units.store(has_units, Ordering::Relaxed);
    }
}
