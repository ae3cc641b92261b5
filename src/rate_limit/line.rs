//! The lines of requests that wait: one for each key and tier of a limit.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    ops::{Range, RangeBounds},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use super::demand::{Demand, DemandRef};
use crate::{
    decision::{Decision, Status},
    key::Key,
    limiter::Tier,
    lock::unpoisoned,
};

#[cfg(not(feature = "tokio"))]
use std::time::Instant;
#[cfg(feature = "tokio")]
use tokio::time::Instant;

/// As many parts share the keys, so that those without a line hardly notice the others.
const PARTS: usize = 32;

/// Empty lines leave room for as many in each part, so that it is not allocated again for each
/// request that waits.
const KEPT: usize = 8;

/// A line for each key and tier of which somebody waits.
#[derive(Debug, Default)]
pub(super) struct Lines {
    parts: [Part; PARTS],
    hasher: RandomState,
    /// The number of the next arrival in any line.
    arrivals: AtomicU64,
}

/// The lines of some keys.
#[derive(Debug, Default)]
struct Part {
    /// How many wait in them.
    waiting: AtomicUsize,
    by_key: Mutex<HashMap<Key, Vec<Line>>>,
}

/// The lines of some keys, locked.
pub(super) struct LockedLines<'a> {
    waiting: &'a AtomicUsize,
    by_key: MutexGuard<'a, HashMap<Key, Vec<Line>>>,
}

/// The identity of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineId {
    pub(super) key: Key,
    /// The limit that counts by this key, where several do with a key each.
    pub(super) limit: usize,
    pub(super) tier: Tier,
    /// That of the limit: nobody stands behind those who wait for counts that keys no longer have.
    pub(super) epoch: u32,
}

/// The requests of one key and tier that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Line {
    limit: usize,
    tier: Tier,
    epoch: u32,
    waiters: BTreeMap<u64, InLine>,
    pub(super) front: Option<HeadDenial>,
}

#[derive(Debug)]
struct InLine {
    cost: u64,
    /// The task to wake when the request has become the head.
    waker: Option<Waker>,
}

/// The limiter's answer to the newest head that was denied.
#[derive(Debug)]
pub(super) struct HeadDenial {
    pub(super) demand: Demand,
    pub(super) denial: Decision,
    pub(super) at: Instant,
    /// The quotas of the line's limit in the denial.
    quotas: Range<usize>,
    head: u64,
    /// The cost of those that stood behind that head, also of those that have passed since.
    behind: u64,
}

/// How long those take at least that are in line before a request, and itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineWait {
    /// The place of the quota that says so, among those of its limit.
    pub(super) quota: usize,
    pub(super) wait: Duration,
}

impl LineWait {
    /// That of a line whose head has not been denied yet.
    pub(super) const UNKNOWN: Self = Self {
        quota: 0,
        wait: Duration::ZERO,
    };
}

impl Lines {
    fn part(&self, key: &Key) -> &Part {
        let hash = self.hasher.hash_one(key);
        // The remainder is less than the number of parts.
        &self.parts[(hash % PARTS as u64) as usize]
    }

    /// Whether this key may have a line.
    #[inline]
    pub(super) fn may_have(&self, key: &Key) -> bool {
        self.part(key).waiting.load(Ordering::Acquire) > 0
    }

    /// The lines among which this key's are. Nobody locks two of them at a time.
    pub(super) fn lock(&self, key: &Key) -> LockedLines<'_> {
        let part = self.part(key);
        LockedLines {
            waiting: &part.waiting,
            by_key: unpoisoned(part.by_key.lock()),
        }
    }

    /// The number of a request that arrives in a line, which is locked: so those of a line grow to
    /// its end.
    pub(super) fn arrival(&self, _: &LockedLines<'_>) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }
}

impl LockedLines<'_> {
    pub(super) fn find(&mut self, id: &LineId) -> Option<&mut Line> {
        let mut lines = self.by_key.get_mut(&id.key)?.iter_mut();
        lines.find(|line| line.is(id))
    }

    /// The line, and puts a request into it by its arrival.
    pub(super) fn push(&mut self, id: &LineId, arrival: u64, cost: u64) -> &mut Line {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let lines = self.by_key.entry(id.key.clone()).or_default();
        let place = lines.iter().position(|line| line.is(id));
        let place = place.unwrap_or_else(|| {
            lines.push(Line::new(id));
            lines.len() - 1
        });
        lines[place].push(arrival, cost);
        &mut lines[place]
    }

    /// One leaves, because it has passed or will not stand here any longer. Returns the task to wake
    /// for that.
    pub(super) fn leave(&mut self, id: &LineId, arrival: u64, passed: bool) -> Option<Waker> {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let lines = self.by_key.get_mut(&id.key)?;
        let line = lines.iter_mut().find(|line| line.is(id))?;
        let next = line.leave(arrival, passed);
        // A line in which nobody stands is forgotten.
        lines.retain(|line| !line.waiters.is_empty());
        if lines.is_empty() {
            self.by_key.remove(&id.key);
        }
        if self.by_key.is_empty() {
            self.by_key.shrink_to(KEPT);
        }
        next
    }
}

impl Line {
    fn new(id: &LineId) -> Self {
        Self {
            limit: id.limit,
            tier: id.tier.clone(),
            epoch: id.epoch,
            waiters: BTreeMap::new(),
            front: None,
        }
    }

    fn is(&self, id: &LineId) -> bool {
        self.limit == id.limit && self.tier == id.tier && self.epoch == id.epoch
    }

    fn push(&mut self, arrival: u64, cost: u64) {
        self.waiters.insert(arrival, InLine { cost, waker: None });
        if let Some(front) = &mut self.front {
            front.behind = front.behind.saturating_add(cost);
        }
    }

    /// How long a request of this cost waits at least that joins now, if that is known.
    pub(super) fn wait(&self, cost: u64, now: Instant) -> Option<LineWait> {
        let front = self.front.as_ref()?;
        front.wait(front.behind.saturating_add(cost), now)
    }

    /// How long the request of this arrival waits at least, which is not the head, if that is known.
    pub(super) fn wait_of(&self, arrival: u64, now: Instant) -> Option<LineWait> {
        let front = self.front.as_ref()?;
        let later = self.cost_of(arrival + 1..);
        front.wait(front.behind.saturating_sub(later), now)
    }

    /// The head was denied, by the limit whose quotas are these: what is behind it is counted anew.
    pub(super) fn denied(
        &mut self,
        head: u64,
        demand: DemandRef<'_>,
        (denial, quotas): (&Decision, Range<usize>),
        at: Instant,
    ) {
        self.front = Some(HeadDenial {
            demand: demand.keep(),
            denial: denial.clone(),
            at,
            quotas,
            head,
            behind: self.cost_of(head + 1..),
        });
    }

    fn cost_of(&self, arrivals: impl RangeBounds<u64>) -> u64 {
        let costs = self.waiters.range(arrivals).map(|(_, waiter)| waiter.cost);
        costs.fold(0, u64::saturating_add)
    }

    /// One leaves, because it has passed or will not stand here any longer. Returns the task to wake
    /// for that.
    fn leave(&mut self, arrival: u64, passed: bool) -> Option<Waker> {
        let was_head = self.head() == Some(arrival);
        let waiter = self.waiters.remove(&arrival)?;
        match &mut self.front {
            Some(front) if !passed && front.head == arrival => self.front = None,
            Some(front) if !passed => front.behind = front.behind.saturating_sub(waiter.cost),
            _ => {}
        }
        let mut head = self.waiters.first_entry().filter(|_| was_head)?;
        head.get_mut().waker.take()
    }

    pub(super) fn head(&self) -> Option<u64> {
        self.waiters.first_key_value().map(|(arrival, _)| *arrival)
    }

    /// Whether the request of this arrival is the head. If not, `waker` is woken when it is.
    pub(super) fn is_head(&mut self, arrival: u64, waker: &Waker) -> bool {
        let is_head = self.head() == Some(arrival);
        if !is_head && let Some(waiter) = self.waiters.get_mut(&arrival) {
            waiter.waker = Some(waker.clone());
        }
        is_head
    }
}

impl HeadDenial {
    /// How long it takes at least until `behind` more units have passed after the head.
    fn wait(&self, behind: u64, now: Instant) -> Option<LineWait> {
        let passed = now.saturating_duration_since(self.at);
        let quotas = self.denial.statuses().get(self.quotas.clone())?;
        let waits = quotas.iter().enumerate().map(|(quota, status)| {
            let wait = status.wait_behind(self.demand.cost, behind);
            let wait = wait.saturating_sub(passed);
            LineWait { quota, wait }
        });
        waits.max_by_key(|line| line.wait)
    }

    /// Whether the key of the line was blocked.
    pub(super) fn is_blocked(&self) -> bool {
        let statuses = self.denial.statuses();
        let own = statuses.get(self.quotas.clone()).unwrap_or_default();
        let is_own = own.len() == statuses.len() || own.iter().any(Status::is_blocked);
        self.denial.is_blocked() && is_own
    }

    /// Whether it was about the same key, by the same limits.
    pub(super) fn is_about(&self, demand: DemandRef<'_>) -> bool {
        self.demand.key == *demand.key && self.demand.tier == *demand.tier
    }
}
