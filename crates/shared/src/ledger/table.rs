//! The table of a ledger: buckets of entries, each under a lock.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    account::{Account, At},
    node_time::{NodeTime, RecentDemand},
};
use crate::hashed_key_names::MeasuredSubject;
use tower_ratelimit_core::{decision::Op, lock::unpoisoned};

/// Entries in a bucket.
pub(super) const WAYS: usize = 4;

/// All that a node keeps about one subject.
#[derive(Debug)]
pub(super) struct LedgerEntry {
    pub(super) subject: MeasuredSubject,
    pub(super) demand: RecentDemand,
    /// None if the node has no units and requests none.
    pub(super) account: Option<Box<Account>>,
}

#[derive(Default)]
pub(super) struct LedgerBucket {
    /// Whether any entry may have units: the maintenance task skips other buckets.
    pub(super) has_units: AtomicBool,
    entries: Mutex<LedgerEntries>,
}

#[derive(Default)]
pub(super) struct LedgerEntries {
    pub(super) list: Vec<LedgerEntry>,
    /// How many operations this node decided without the store.
    pub(super) local: u64,
    /// Eventual mode: until then a key without an entry may be one that this node has used or
    /// blocked.
    doubt_until: Option<NodeTime>,
}

impl LedgerBucket {
    pub(super) fn lock(&self) -> MutexGuard<'_, LedgerEntries> {
        unpoisoned(self.entries.lock())
    }
}

impl LedgerEntries {
    #[inline]
    pub(super) fn find(&mut self, subject: MeasuredSubject) -> Option<&mut LedgerEntry> {
        self.list.iter_mut().find(|entry| entry.subject == subject)
    }

    /// For this time a key without an entry may be one that this node has used or blocked.
    pub(super) fn doubt(&mut self, length: Duration, now: NodeTime) {
        self.doubt_until = self.doubt_until.max(Some(now + length));
    }

    /// Whether the subject is new, as far as this node knows. Notes operations that take or block
    /// without an entry. A subject that was used is as if it had never been after `memory`.
    pub(super) fn is_new(
        &mut self,
        (subject, op): (MeasuredSubject, &Op),
        memory: Duration,
        now: NodeTime,
    ) -> bool {
        let mut own = self.list.iter().filter(|own| own.subject == subject);
        let is_counted = own.any(|own| own.account.is_some());
        match op {
            Op::Block(length) => self.doubt(memory.max(*length), now),
            Op::Hit(_) | Op::Spend(_) | Op::Settle(..) if !is_counted => self.doubt(memory, now),
            _ => {}
        }
        // In another tier, or by older quotas, units of it were spent already.
        let mut others = self.list.iter().filter(|own| own.subject != subject);
        let is_known = is_counted || others.any(|own| own.subject.tag == subject.tag);
        !is_known && self.doubt_until.is_none_or(|until| until <= now)
    }

    /// The accounts of all tiers of a key.
    pub(super) fn accounts_of(&mut self, tag: u64) -> impl Iterator<Item = &mut Account> {
        let own = self
            .list
            .iter_mut()
            .filter(move |own| own.subject.tag == tag);
        own.filter_map(|entry| entry.account.as_deref_mut())
    }

    /// The entry of this subject. With `begins` a subject without one gets a new one, if there is
    /// room. Evicts the least requested entry; entries that hold units are never evicted. Without room, or when an
    /// entry whose units the store alone knows is evicted, the bucket is in doubt.
    pub(super) fn entry(
        &mut self,
        subject: MeasuredSubject,
        begins: bool,
        memory: Duration,
        at: At<'_>,
    ) -> Option<&mut LedgerEntry> {
        let known = self.list.iter().position(|entry| entry.subject == subject);
        let place = match known {
            Some(place) => place,
            None if begins => {
                let place = self.room(at);
                let evicted = place.and_then(|place| self.list.get(place));
                let evicted = evicted.and_then(|evicted| evicted.account.as_ref());
                if place.is_none() || evicted.is_some_and(|account| account.is_unknown()) {
                    self.doubt(memory, at.now);
                }
                self.put(place?, subject, at.now);
                place?
            }
            None => return None,
        };
        self.list.get_mut(place)
    }

    /// The place for a new entry: an empty one, or that of the entry to evict.
    #[cold]
    fn room(&self, at: At<'_>) -> Option<usize> {
        if self.list.len() < WAYS {
            return Some(self.list.len());
        }
        let demand = |entry: &LedgerEntry| entry.demand.at(at.now, at.terms.span());
        let entries = self.list.iter().enumerate();
        let matters = |account: &Account| account.matters(at);
        let others = entries.filter(|(_, known)| !known.account.as_deref().is_some_and(matters));
        let least = others.min_by(|(_, a), (_, b)| demand(a).total_cmp(&demand(b)));
        least.map(|(place, _)| place)
    }

    #[cold]
    fn put(&mut self, place: usize, subject: MeasuredSubject, now: NodeTime) {
        let entry = LedgerEntry {
            subject,
            demand: RecentDemand::new(now),
            account: None,
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

/// Calls `visit` with all buckets in which there may be units.
pub(super) fn each_bucket(buckets: &[LedgerBucket], mut visit: impl FnMut(&mut LedgerEntries)) {
    for bucket in buckets {
        if !bucket.has_units.load(Ordering::Relaxed) {
            continue;
        }
        let mut entries = bucket.lock();
        visit(&mut entries);
        let has_units = entries.list.iter().any(|entry| entry.account.is_some());
        bucket.has_units.store(has_units, Ordering::Relaxed);
    }
}
