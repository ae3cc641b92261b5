//! Queues of waiting requests: one for each key and tier of a limit.

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

use super::charge_request::{ChargeRequest, ChargeRequestRef};
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

/// The number of locks. Requests of keys without a queue seldom meet one that is held.
const SHARDS: usize = 32;

/// The room that an empty shard keeps, so that it does not allocate for each request that waits.
const ROOM_OF_EMPTY: usize = 8;

/// The queues of all keys and tiers that requests wait for.
#[derive(Debug, Default)]
pub(super) struct Queues {
    shards: [QueueShard; SHARDS],
    hasher: RandomState,
    /// The number of the next arrival in any queue.
    arrivals: AtomicU64,
}

/// The queues of some keys.
#[derive(Debug, Default)]
struct QueueShard {
    /// The number of requests in them.
    waiting: AtomicUsize,
    by_key: Mutex<HashMap<Key, Vec<Queue>>>,
}

/// The queues of some keys, locked.
pub(super) struct LockedQueues<'a> {
    waiting: &'a AtomicUsize,
    by_key: MutexGuard<'a, HashMap<Key, Vec<Queue>>>,
}

/// The identity of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueId {
    pub(super) key: Key,
    /// The limit that counts by this key, if several limits have a key each.
    pub(super) limit: usize,
    pub(super) tier: Tier,
}

/// The waiting requests of one key and tier, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Queue {
    limit: usize,
    tier: Tier,
    waiting: BTreeMap<u64, QueuedRequest>,
    pub(super) denial: Option<HeadDenial>,
}

#[derive(Debug)]
struct QueuedRequest {
    cost: u64,
    /// The task to wake when the request becomes the head.
    waker: Option<Waker>,
}

/// The newest denial of a queue's head.
#[derive(Debug)]
pub(super) struct HeadDenial {
    pub(super) charge: ChargeRequest,
    pub(super) decision: Decision,
    pub(super) at: Instant,
    /// The places of the limit's quotas in the decision.
    quotas: Range<usize>,
    head: u64,
    /// The cost of the requests behind the head at the denial, and of later arrivals. Requests that
    /// passed since are part of it.
    behind: u64,
}

/// The shortest time until a request passes: the requests before it in the queue, and itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueWait {
    /// The place of the quota with this wait, among those of its limit.
    pub(super) quota: usize,
    pub(super) wait: Duration,
}

impl QueueWait {
    /// The wait in a queue whose head was not denied yet.
    pub(super) const UNKNOWN: Self = Self {
        quota: 0,
        wait: Duration::ZERO,
    };
}

impl Queues {
    fn shard(&self, key: &Key) -> &QueueShard {
        let hash = self.hasher.hash_one(key);
        // The remainder is less than the number of shards.
        &self.shards[(hash % SHARDS as u64) as usize]
    }

    /// Whether this key may have a queue.
    #[inline]
    pub(super) fn may_have(&self, key: &Key) -> bool {
        self.shard(key).waiting.load(Ordering::Acquire) > 0
    }

    /// Locks the queues of this key, and of others. A caller must not hold two of these locks.
    pub(super) fn lock(&self, key: &Key) -> LockedQueues<'_> {
        let shard = self.shard(key);
        LockedQueues {
            waiting: &shard.waiting,
            by_key: unpoisoned(shard.by_key.lock()),
        }
    }

    /// The number of an arrival. Its queue is locked, so numbers increase towards the queue's end.
    pub(super) fn arrival(&self, _: &LockedQueues<'_>) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }
}

impl LockedQueues<'_> {
    pub(super) fn find(&mut self, id: &QueueId) -> Option<&mut Queue> {
        let mut queues = self.by_key.get_mut(&id.key)?.iter_mut();
        queues.find(|queue| queue.is(id))
    }

    /// Inserts a request by its arrival into a queue, which starts if it does not exist.
    pub(super) fn push(&mut self, id: &QueueId, arrival: u64, cost: u64) -> &mut Queue {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let queues = self.by_key.entry(id.key.clone()).or_default();
        let index = queues.iter().position(|queue| queue.is(id));
        let index = index.unwrap_or_else(|| {
            queues.push(Queue::new(id));
            queues.len() - 1
        });
        queues[index].push(arrival, cost);
        &mut queues[index]
    }

    /// Removes a request that passed or stops waiting. Returns the task to wake.
    pub(super) fn leave(&mut self, id: &QueueId, arrival: u64, passed: bool) -> Option<Waker> {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let queues = self.by_key.get_mut(&id.key)?;
        let queue = queues.iter_mut().find(|queue| queue.is(id))?;
        let next = queue.leave(arrival, passed);
        queues.retain(|queue| !queue.waiting.is_empty());
        if queues.is_empty() {
            self.by_key.remove(&id.key);
        }
        if self.by_key.is_empty() {
            self.by_key.shrink_to(ROOM_OF_EMPTY);
        }
        next
    }
}

impl Queue {
    fn new(id: &QueueId) -> Self {
        Self {
            limit: id.limit,
            tier: id.tier.clone(),
            waiting: BTreeMap::new(),
            denial: None,
        }
    }

    fn is(&self, id: &QueueId) -> bool {
        self.limit == id.limit && self.tier == id.tier
    }

    fn push(&mut self, arrival: u64, cost: u64) {
        let request = QueuedRequest { cost, waker: None };
        self.waiting.insert(arrival, request);
        if let Some(denial) = &mut self.denial {
            denial.behind = denial.behind.saturating_add(cost);
        }
    }

    /// The shortest wait of a request of this cost that arrives now, if it is known.
    pub(super) fn wait(&self, cost: u64, now: Instant) -> Option<QueueWait> {
        let denial = self.denial.as_ref()?;
        denial.wait(denial.behind.saturating_add(cost), now)
    }

    /// The shortest wait of the request of this arrival, which is not the head, if it is known.
    pub(super) fn wait_of(&self, arrival: u64, now: Instant) -> Option<QueueWait> {
        let denial = self.denial.as_ref()?;
        let later = self.cost_of(arrival + 1..);
        denial.wait(denial.behind.saturating_sub(later), now)
    }

    /// Stores a denial of the head by the limit with these quotas.
    pub(super) fn denied(
        &mut self,
        head: u64,
        charge: ChargeRequestRef<'_>,
        (decision, quotas): (&Decision, Range<usize>),
        at: Instant,
    ) {
        self.denial = Some(HeadDenial {
            charge: charge.keep(),
            decision: decision.clone(),
            at,
            quotas,
            head,
            behind: self.cost_of(head + 1..),
        });
    }

    fn cost_of(&self, arrivals: impl RangeBounds<u64>) -> u64 {
        let waiting = self.waiting.range(arrivals);
        let costs = waiting.map(|(_, request)| request.cost);
        costs.fold(0, u64::saturating_add)
    }

    /// Removes a request that passed or stops waiting. Returns the task to wake.
    fn leave(&mut self, arrival: u64, passed: bool) -> Option<Waker> {
        let was_head = self.head() == Some(arrival);
        let request = self.waiting.remove(&arrival)?;
        match &mut self.denial {
            Some(denial) if !passed && denial.head == arrival => self.denial = None,
            Some(denial) if !passed => {
                denial.behind = denial.behind.saturating_sub(request.cost);
            }
            _ => {}
        }
        let mut head = self.waiting.first_entry().filter(|_| was_head)?;
        head.get_mut().waker.take()
    }

    /// The arrival of the head.
    pub(super) fn head(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(arrival, _)| *arrival)
    }

    /// Whether the request of this arrival is the head. Otherwise `waker` is woken when it becomes the
    /// head.
    pub(super) fn is_head(&mut self, arrival: u64, waker: &Waker) -> bool {
        let is_head = self.head() == Some(arrival);
        if !is_head && let Some(request) = self.waiting.get_mut(&arrival) {
            request.waker = Some(waker.clone());
        }
        is_head
    }
}

impl HeadDenial {
    /// The shortest time until `behind` more units have passed after the head.
    fn wait(&self, behind: u64, now: Instant) -> Option<QueueWait> {
        let elapsed = now.saturating_duration_since(self.at);
        let quotas = self.decision.statuses().get(self.quotas.clone())?;
        let waits = quotas.iter().enumerate().map(|(quota, status)| {
            let wait = status.wait_behind(self.charge.cost, behind);
            let wait = wait.saturating_sub(elapsed);
            QueueWait { quota, wait }
        });
        waits.max_by_key(|queue| queue.wait)
    }

    /// Whether the limit blocked the key of the queue.
    pub(super) fn is_blocked(&self) -> bool {
        let statuses = self.decision.statuses();
        let own = statuses.get(self.quotas.clone()).unwrap_or_default();
        let is_own = own.len() == statuses.len() || own.iter().any(Status::is_blocked);
        self.decision.is_blocked() && is_own
    }

    /// Whether the denial is about the key and the limits of this charge.
    pub(super) fn is_about(&self, charge: ChargeRequestRef<'_>) -> bool {
        self.charge.key == *charge.key && self.charge.tier == *charge.tier
    }
}
