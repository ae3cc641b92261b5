//! The lines of requests that wait: one for each key and tier.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use super::demand::DemandRef;
use crate::{decision::Decision, key::Key, limiter::Tier, lock::unpoisoned};

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
    /// How many wait in all.
    waiting: AtomicUsize,
    parts: [Part; PARTS],
    hasher: RandomState,
}

/// The lines of some keys.
#[derive(Debug, Default)]
struct Part {
    /// How many wait in them.
    waiting: AtomicUsize,
    by_key: Mutex<ByKey>,
}

pub(super) type ByKey = HashMap<Key, Vec<Line>>;

/// The requests of one key and tier that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) tier: Tier,
    next: u64,
    pub(super) waiters: BTreeMap<u64, InLine>,
    pub(super) front: Option<HeadDenial>,
}

#[derive(Debug)]
pub(super) struct InLine {
    cost: u64,
    /// The task to wake when the request has become the head.
    pub(super) waker: Option<Waker>,
}

/// The limiter's answer to the newest head that was denied.
#[derive(Debug)]
pub(super) struct HeadDenial {
    pub(super) denial: Decision,
    pub(super) at: Instant,
    head: u64,
    head_cost: u64,
    /// The cost of those that stood behind that head, also of those that have passed since.
    behind: u64,
}

/// How long those take at least that are in line before a request, and itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineWait {
    /// The place of the quota that says so.
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

pub(super) fn line_of<'a>(by_key: &'a mut ByKey, demand: DemandRef<'_>) -> Option<&'a mut Line> {
    let mut lines = by_key.get_mut(demand.key)?.iter_mut();
    lines.find(|line| line.tier == *demand.tier)
}

impl Lines {
    fn part(&self, key: &Key) -> &Part {
        let hash = self.hasher.hash_one(key);
        // The remainder is less than the number of parts.
        &self.parts[(hash % PARTS as u64) as usize]
    }

    /// Whether anybody waits, so that this key may have a line.
    #[inline]
    pub(super) fn may_have(&self, key: &Key) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
            && self.part(key).waiting.load(Ordering::Acquire) > 0
    }

    /// The lines among which this key's are.
    pub(super) fn lock(&self, key: &Key) -> MutexGuard<'_, ByKey> {
        self.part(key).lock()
    }

    /// Counts one more that waits, if there are fewer than `most`. The lines of its key are locked.
    pub(super) fn add(&self, key: &Key, most: usize) -> bool {
        let one_more = |waiting| (waiting < most).then_some(waiting + 1);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let added = self.waiting.fetch_update(done, seen, one_more).is_ok();
        if added {
            self.part(key).waiting.fetch_add(1, Ordering::AcqRel);
        }
        added
    }

    /// Does something to a line.
    pub(super) fn with<T>(
        &self,
        key: &Key,
        tier: &Tier,
        change: impl FnOnce(&mut Line) -> T,
    ) -> Option<T> {
        let mut by_key = self.lock(key);
        let mut lines = by_key.get_mut(key)?.iter_mut();
        lines.find(|line| line.tier == *tier).map(change)
    }

    /// One leaves, because it has passed or will not; what is to be woken for that.
    pub(super) fn leave(&self, key: &Key, tier: &Tier, id: u64, passed: bool) -> Option<Waker> {
        let part = self.part(key);
        let mut by_key = part.lock();
        part.waiting.fetch_sub(1, Ordering::AcqRel);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let lines = by_key.get_mut(key)?;
        let line = lines.iter_mut().find(|line| line.tier == *tier)?;
        let next = line.leave(id, passed);
        // A line in which nobody stands is forgotten.
        lines.retain(|line| !line.waiters.is_empty());
        if lines.is_empty() {
            by_key.remove(key);
        }
        if by_key.is_empty() {
            by_key.shrink_to(KEPT);
        }
        next
    }
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, ByKey> {
        unpoisoned(self.by_key.lock())
    }
}

impl Line {
    pub(super) const fn new(tier: Tier) -> Self {
        Self {
            tier,
            next: 0,
            waiters: BTreeMap::new(),
            front: None,
        }
    }

    pub(super) fn push(&mut self, cost: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.waiters.insert(id, InLine { cost, waker: None });
        if let Some(front) = &mut self.front {
            front.behind = front.behind.saturating_add(cost);
        }
        id
    }

    /// How long a request of this cost waits at least that joins now, if that is known.
    pub(super) fn wait(&self, cost: u64, now: Instant) -> Option<LineWait> {
        let front = self.front.as_ref()?;
        let behind = front.behind.saturating_add(cost);
        let passed = now.saturating_duration_since(front.at);
        let quotas = front.denial.statuses().iter().enumerate();
        let waits = quotas.map(|(quota, status)| {
            let wait = status.wait_behind(front.head_cost, behind);
            let wait = wait.saturating_sub(passed);
            LineWait { quota, wait }
        });
        waits.max_by_key(|line| line.wait)
    }

    /// The head was denied: what is behind it is counted anew.
    pub(super) fn denied(&mut self, head: u64, denial: &Decision, at: Instant) {
        let costs = self
            .waiters
            .range(head + 1..)
            .map(|(_, waiter)| waiter.cost);
        self.front = Some(HeadDenial {
            denial: denial.clone(),
            at,
            head,
            head_cost: self.waiters.get(&head).map_or(0, |waiter| waiter.cost),
            behind: costs.fold(0, u64::saturating_add),
        });
    }

    /// One leaves, because it has passed or will not; what is to be woken for that.
    fn leave(&mut self, id: u64, passed: bool) -> Option<Waker> {
        let was_head = self.head() == Some(id);
        let waiter = self.waiters.remove(&id)?;
        match &mut self.front {
            Some(front) if !passed && front.head == id => self.front = None,
            Some(front) if !passed => front.behind = front.behind.saturating_sub(waiter.cost),
            _ => {}
        }
        let mut head = self.waiters.first_entry().filter(|_| was_head)?;
        head.get_mut().waker.take()
    }

    pub(super) fn head(&self) -> Option<u64> {
        self.waiters.first_key_value().map(|(id, _)| *id)
    }
}
