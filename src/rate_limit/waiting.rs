//! The waiting of denied requests until their turn comes: in queues by key and tier, and in slots, of which each key holds
//! a part.
//!
//! In: a request that was denied (`enqueue`), or that comes while others of its key wait (`join`). Out: a `QueuePosition`,
//! or that it does not wait. `deferred_decision.rs` waits, and charges again.
//!
//! 1. A request waits if its denial is over within its longest wait, and a slot is free. `WaitingSlots` bounds the requests
//!    that wait in a layer, and the part of one key.
//! 2. Only the head of a queue is charged. It sleeps until its denial is over, and is charged again; the others sleep until
//!    they are the head (`until_head`). How long that takes follows from the head's denial and the costs before them.
//! 3. A position that is dropped leaves its queue and wakes the next head, whether its request was charged (`pass`), was
//!    denied for good, or was cancelled by its client.
//! 4. Of several limits that are charged together, the one that binds in the last denial has the queue. Another denial may
//!    move a request to the queue of another limit, to the place of its arrival (`denied`).
//!
//! Example: 10 requests a second, a longest wait of 1 s, and 15 requests at once. Ten pass. The eleventh is the head and is
//! charged after 100 ms, the next one 100 ms later, the last after 500 ms.

use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    iter,
    ops::{Range, RangeBounds},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::charge_request::{ChargeRequest, ChargeRequestRef};
use crate::{
    decision::{Decision, Marks},
    error::LimiterError,
    key::Key,
    limiter::Tier,
    lock::unpoisoned,
    timer,
};

#[cfg(not(feature = "tokio"))]
use std::time::Instant;
#[cfg(feature = "tokio")]
use tokio::time::Instant;

/// The longest wait of a request with this denial; `None` if it does not wait.
pub(super) type LongestWaitOf = Arc<dyn Fn(&Decision) -> Option<Duration> + Send + Sync>;

/// The requests that wait for a denial to end, and how long they may wait.
///
/// Several limits with a key each may charge a request together. It then waits in the queue of one of
/// them: the limit that binds in the last denial.
#[derive(Clone)]
pub(super) struct Waiting {
    /// The longest wait; `None` if no request waits.
    pub(super) longest: Option<Duration>,
    /// The longest wait by the denial, if it depends on that; at most `longest`.
    pub(super) longest_of: Option<LongestWaitOf>,
    /// The queues of limits with names, which several layers may share.
    pub(super) named: Arc<[NamedQueues]>,
    /// The most requests that wait at the same time.
    pub(super) most: usize,
    queues: Arc<Queues>,
    slots: Arc<WaitingSlots>,
}

#[derive(Debug)]
pub(super) struct NamedQueues {
    pub(super) name: Tier,
    pub(super) longest: Option<Duration>,
}

/// A queue that a request may join.
#[derive(Debug)]
struct QueueOfLimit {
    id: QueueId,
    /// The place of its limit among those that decide about the request.
    limit: usize,
    longest: Duration,
}

pub(super) enum Enqueued {
    /// The request is the head of its queue, and the limiter has just denied it.
    Head(QueuePosition),
    /// Other requests are before it.
    Behind(QueuePosition),
    /// The request does not wait: the wait is too long, or no slot is free. The queue, if one exists,
    /// must not be overtaken.
    Refused(Option<QueueAhead>),
}

/// A queue before a request, by the place of its limit among those that decide about the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueAhead {
    pub(super) limit: usize,
    pub(super) wait: QueueWait,
}

/// The state of a queued request after another denial.
pub(super) enum Requeued {
    Head,
    /// Earlier requests are before it in the queue of the limit that denied it.
    Behind,
    Refused(QueueAhead),
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            longest: None,
            longest_of: None,
            named: Arc::default(),
            most: 1_024,
            queues: Arc::default(),
            slots: Arc::default(),
        }
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.longest.is_some()
    }

    pub(super) fn longest(&self, denial: &Decision) -> Option<Duration> {
        match &self.longest_of {
            Some(longest) => longest(denial),
            None => self.longest,
        }
    }

    #[inline]
    pub(super) fn may_have_queue(&self, key: &Key) -> bool {
        self.is_enabled() && self.slots.are_used() && self.may_have_queue_of(key)
    }

    fn may_have_queue_of(&self, key: &Key) -> bool {
        let mut parts = key.joint_parts().into_iter().flatten().flatten();
        self.queues.may_have(key) || parts.any(|part| self.queues.may_have(&Key::from_bytes(part)))
    }

    /// Queues a request that the limiter has just denied.
    pub(super) fn enqueue(&self, charge: ChargeRequestRef<'_>, denial: &Decision) -> Enqueued {
        let longest = self.longest(denial).unwrap_or_default();
        if denial.retry_after().is_none_or(|wait| wait > longest) || !self.is_enabled() {
            return Enqueued::Refused(None);
        }
        let queue = QueueOfLimit {
            longest,
            ..self.queue_for(charge, denial)
        };
        let mut queues = self.queues.lock(&queue.id.key);
        if queues.find(&queue.id).is_some() {
            return self.join_queue(&mut queues, queue, charge);
        }
        let Some(slot) = self.take_slot(charge) else {
            return Enqueued::Refused(None);
        };
        let quotas = denial.places_of(queue.limit);
        let position = self.insert(&mut queues, queue.id, charge, slot);
        if let Some(queue) = queues.find(&position.queue) {
            queue.denied(position.arrival, charge, (denial, quotas), position.joined);
        }
        Enqueued::Head(position)
    }

    /// Queues a request before its first charge, if a queue exists: of several the one with the longest
    /// wait.
    pub(super) fn join(&self, charge: ChargeRequestRef<'_>) -> Option<Enqueued> {
        let mut longest: Option<(Duration, QueueOfLimit)> = None;
        for queue in self.queues_of(charge) {
            let mut queues = self.queues.lock(&queue.id.key);
            let Some(found) = queues.find(&queue.id) else {
                continue;
            };
            let wait = found.wait(charge.cost, Instant::now());
            let wait = wait.unwrap_or(QueueWait::UNKNOWN);
            if wait.wait > queue.longest {
                return Some(Enqueued::Refused(Some(queue.ahead(wait))));
            }
            if longest.as_ref().is_none_or(|(than, _)| wait.wait > *than) {
                longest = Some((wait.wait, queue));
            }
        }
        let (_, queue) = longest?;
        let mut queues = self.queues.lock(&queue.id.key);
        queues.find(&queue.id)?;
        Some(self.join_queue(&mut queues, queue, charge))
    }

    fn join_queue(
        &self,
        queues: &mut LockedQueues<'_>,
        queue: QueueOfLimit,
        charge: ChargeRequestRef<'_>,
    ) -> Enqueued {
        let found = queues.find(&queue.id);
        let wait = found.and_then(|found| found.wait(charge.cost, Instant::now()));
        let is_short = wait.is_none_or(|ahead| ahead.wait <= queue.longest);
        if is_short && let Some(slot) = self.take_slot(charge) {
            return Enqueued::Behind(self.insert(queues, queue.id, charge, slot));
        }
        Enqueued::Refused(Some(queue.ahead(wait.unwrap_or(QueueWait::UNKNOWN))))
    }

    /// Takes a slot, which counts for each key of the request that is not everybody's.
    fn take_slot(&self, charge: ChargeRequestRef<'_>) -> Option<HeldSlot> {
        let mut owners: Vec<SlotOwner> = Vec::new();
        for queue in self.queues_of_limits(charge) {
            // One owner for each limit of a layer; limits with names share the owner of a key.
            let owner = (queue.id.limit, queue.id.key);
            if owner.1 != Key::global() && !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        if owners.is_empty() {
            owners.push((0, charge.key.clone()));
        }
        self.slots.take(owners.into_iter(), self.most)
    }

    fn insert(
        &self,
        queues: &mut LockedQueues<'_>,
        queue: QueueId,
        charge: ChargeRequestRef<'_>,
        slot: HeldSlot,
    ) -> QueuePosition {
        let arrival = self.queues.arrival(queues);
        queues.push(&queue, arrival, charge.cost);
        QueuePosition {
            queues: Arc::clone(&self.queues),
            queue,
            arrival,
            cost: charge.cost,
            joined: Instant::now(),
            passed: false,
            _slot: slot,
        }
    }

    /// Notes another denial of a queued request, which may wait for `left` more. It moves to the queue
    /// of the limit that denied it, to the position of its arrival.
    pub(super) fn denied(
        &self,
        position: &mut QueuePosition,
        charge: ChargeRequestRef<'_>,
        denial: &Decision,
        left: Duration,
    ) -> Requeued {
        let queue = self.queue_for(charge, denial);
        if queue.id != position.queue {
            position.move_to(queue.id.clone());
        }
        let mut queues = self.queues.lock(&position.queue.key);
        let Some(found) = queues.find(&position.queue) else {
            return Requeued::Head;
        };
        let now = Instant::now();
        if found.head() == Some(position.arrival) {
            let quotas = denial.places_of(queue.limit);
            found.denied(position.arrival, charge, (denial, quotas), now);
            return Requeued::Head;
        }
        match found.wait_of(position.arrival, now) {
            Some(wait) if wait.wait > left => Requeued::Refused(queue.ahead(wait)),
            _ => Requeued::Behind,
        }
    }

    /// Whether the last denial of a queue's head was a block; `None` without a queue.
    pub(super) fn blocked_queue(&self, charge: ChargeRequestRef<'_>) -> Option<bool> {
        let blocked = self.queues_of(charge).filter_map(|queue| {
            let mut queues = self.queues.lock(&queue.id.key);
            let denial = queues.find(&queue.id)?.denial.as_ref();
            Some(denial.is_some_and(HeadDenial::is_blocked))
        });
        blocked.reduce(|one, other| one || other)
    }

    /// The denial of a queue's head as it is now, if it was about the same key.
    pub(super) fn denial_of_head(&self, charge: ChargeRequestRef<'_>) -> Option<Decision> {
        self.queues_of(charge).find_map(|queue| {
            let mut queues = self.queues.lock(&queue.id.key);
            let denial = queues.find(&queue.id)?.denial.as_ref()?;
            let decision = denial.is_about(charge).then(|| denial.decision.clone())?;
            Some(decision.aged(denial.at.elapsed()))
        })
    }
}

impl QueueOfLimit {
    const fn ahead(&self, wait: QueueWait) -> QueueAhead {
        QueueAhead {
            limit: self.limit,
            wait,
        }
    }
}

/// A position in a queue; dropped, it leaves the queue.
#[derive(Debug)]
pub(super) struct QueuePosition {
    queues: Arc<Queues>,
    queue: QueueId,
    arrival: u64,
    cost: u64,
    joined: Instant,
    passed: bool,
    _slot: HeldSlot,
}

impl QueuePosition {
    pub(super) async fn until_head(&self) {
        poll_fn(|cx| self.poll_head(cx)).await;
    }

    fn poll_head(&self, cx: &Context<'_>) -> Poll<()> {
        let mut queues = self.queues.lock(&self.queue.key);
        let queue = queues.find(&self.queue);
        if queue.is_none_or(|queue| queue.is_head(self.arrival, cx.waker())) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Moves to another queue, to the position of its arrival.
    fn move_to(&mut self, queue: QueueId) {
        self.leave();
        let mut queues = self.queues.lock(&queue.key);
        queues.push(&queue, self.arrival, self.cost);
        drop(queues);
        self.queue = queue;
    }

    /// Leaves the queue and wakes its next head.
    fn leave(&self) {
        let mut queues = self.queues.lock(&self.queue.key);
        let next = queues.leave(&self.queue, self.arrival, self.passed);
        // Outside the lock: a waker may run any code.
        drop(queues);
        if let Some(next) = next {
            next.wake();
        }
    }

    /// The time since the request joined its first queue.
    pub(super) fn waited(&self) -> Duration {
        self.joined.elapsed()
    }

    /// Leaves the queue after the request was charged.
    pub(super) fn pass(mut self) {
        self.passed = true;
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits, if there is a timer. Returns how late it was.
///
/// # Errors
///
/// Without the feature `tokio`, and outside of a tokio runtime with a timer.
#[cfg(feature = "tokio")]
pub(super) async fn sleep(duration: Duration) -> Result<Duration, LimiterError> {
    let start = Instant::now();
    timer::sleep(duration)
        .map_err(LimiterError::unavailable)?
        .await;
    Ok(start.elapsed().saturating_sub(duration))
}

#[cfg(not(feature = "tokio"))]
#[allow(clippy::unused_async, reason = "its twin waits")]
pub(super) async fn sleep(_: Duration) -> Result<Duration, LimiterError> {
    Err(LimiterError::unavailable(timer::NoTimer))
}

impl Waiting {
    fn queue_of_key(&self, charge: ChargeRequestRef<'_>) -> QueueOfLimit {
        QueueOfLimit {
            id: QueueId {
                key: charge.key.clone(),
                limit: 0,
                tier: charge.tier.clone(),
            },
            limit: 0,
            longest: self.longest.unwrap_or_default(),
        }
    }

    fn queues_of_limits<'a>(
        &'a self,
        charge: ChargeRequestRef<'a>,
    ) -> impl Iterator<Item = QueueOfLimit> + 'a {
        let parts = charge.key.joint_parts().into_iter().flatten().enumerate();
        let present = parts.filter_map(|(place, part)| Some((place, Key::from_bytes(part?))));
        present.enumerate().map(move |(limit, (place, key))| {
            let named = self.named.get(place);
            let longest = named.map_or(self.longest, |named| named.longest);
            let id = match named {
                Some(named) => QueueId {
                    key,
                    limit: 0,
                    tier: named.name.clone(),
                },
                None => QueueId {
                    key,
                    limit: place + 1,
                    tier: charge.tier.clone(),
                },
            };
            QueueOfLimit {
                id,
                limit,
                longest: longest.unwrap_or_default(),
            }
        })
    }

    fn queues_of<'a>(
        &'a self,
        charge: ChargeRequestRef<'a>,
    ) -> impl Iterator<Item = QueueOfLimit> + 'a {
        iter::once_with(move || self.queue_of_key(charge)).chain(self.queues_of_limits(charge))
    }

    fn queue_for(&self, charge: ChargeRequestRef<'_>, denial: &Decision) -> QueueOfLimit {
        // A limiter that does not know joint keys has decided about the whole key.
        let limits = denial.limits().max(1);
        let mut queues = self.queues_of_limits(charge);
        let queue = if self.queues_of_limits(charge).count() == limits {
            queues.nth(denial.binding_limit())
        } else {
            None
        };
        queue.unwrap_or_else(|| self.queue_of_key(charge))
    }
}

/// One key holds at most this part of the slots.
const SHARE: usize = 8;

type SlotOwner = (usize, Key);

#[derive(Debug, Default)]
struct WaitingSlots {
    taken: AtomicUsize,
    by_owner: [Mutex<HashMap<SlotOwner, usize>>; SHARDS],
    hasher: RandomState,
}

/// One slot, which counts for each of its owners until it is dropped.
#[derive(Debug)]
struct HeldSlot {
    slots: Arc<WaitingSlots>,
    owners: Vec<SlotOwner>,
}

impl WaitingSlots {
    #[inline]
    fn are_used(&self) -> bool {
        self.taken.load(Ordering::Acquire) > 0
    }

    /// Takes one of `most` slots, if one is free and each owner has fewer than its share.
    fn take(
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

/// The number of locks. Requests of keys without a queue seldom meet one that is held.
const SHARDS: usize = 32;

/// The room that an empty shard keeps, so that it does not allocate for each request that waits.
const ROOM_OF_EMPTY: usize = 8;

/// The queues of all keys and tiers that requests wait for.
#[derive(Debug, Default)]
struct Queues {
    shards: [QueueShard; SHARDS],
    hasher: RandomState,
    /// The number of the next arrival in any queue.
    arrivals: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueShard {
    waiting: AtomicUsize,
    by_key: Mutex<HashMap<Key, Vec<Queue>>>,
}

struct LockedQueues<'a> {
    waiting: &'a AtomicUsize,
    by_key: MutexGuard<'a, HashMap<Key, Vec<Queue>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct QueueId {
    key: Key,
    /// The limit that counts by this key, if several limits have a key each.
    limit: usize,
    tier: Tier,
}

/// The waiting requests of one key and tier, in the order of their arrival.
#[derive(Debug)]
struct Queue {
    limit: usize,
    tier: Tier,
    waiting: BTreeMap<u64, QueuedRequest>,
    denial: Option<HeadDenial>,
}

#[derive(Debug)]
struct QueuedRequest {
    cost: u64,
    /// The task to wake when the request becomes the head.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct HeadDenial {
    charge: ChargeRequest,
    decision: Decision,
    at: Instant,
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
    const UNKNOWN: Self = Self {
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

    #[inline]
    fn may_have(&self, key: &Key) -> bool {
        self.shard(key).waiting.load(Ordering::Acquire) > 0
    }

    fn lock(&self, key: &Key) -> LockedQueues<'_> {
        let shard = self.shard(key);
        LockedQueues {
            waiting: &shard.waiting,
            by_key: unpoisoned(shard.by_key.lock()),
        }
    }

    /// The number of an arrival. Its queue is locked, so numbers increase towards the queue's end.
    fn arrival(&self, _: &LockedQueues<'_>) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }
}

impl LockedQueues<'_> {
    fn find(&mut self, id: &QueueId) -> Option<&mut Queue> {
        let mut queues = self.by_key.get_mut(&id.key)?.iter_mut();
        queues.find(|queue| queue.is(id))
    }

    /// Inserts a request by its arrival into a queue, which starts if it does not exist.
    fn push(&mut self, id: &QueueId, arrival: u64, cost: u64) -> &mut Queue {
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
    fn leave(&mut self, id: &QueueId, arrival: u64, passed: bool) -> Option<Waker> {
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
    fn wait(&self, cost: u64, now: Instant) -> Option<QueueWait> {
        let denial = self.denial.as_ref()?;
        denial.wait(denial.behind.saturating_add(cost), now)
    }

    /// The shortest wait of the request of this arrival, which is not the head, if it is known.
    fn wait_of(&self, arrival: u64, now: Instant) -> Option<QueueWait> {
        let denial = self.denial.as_ref()?;
        let later = self.cost_of(arrival + 1..);
        denial.wait(denial.behind.saturating_sub(later), now)
    }

    /// Stores a denial of the head by the limit with these quotas.
    fn denied(
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

    fn head(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(arrival, _)| *arrival)
    }

    /// Whether the request of this arrival is the head. Otherwise `waker` is woken when it becomes the
    /// head.
    fn is_head(&mut self, arrival: u64, waker: &Waker) -> bool {
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
        let quotas = self.quotas.clone().enumerate();
        let waits = quotas.map(|(quota, place)| {
            let status = self.decision.quota(place);
            let wait = status.wait_behind(self.charge.cost, behind);
            let wait = wait.saturating_sub(elapsed);
            QueueWait { quota, wait }
        });
        waits.max_by_key(|queue| queue.wait)
    }

    /// Whether the limit blocked the key of the queue.
    fn is_blocked(&self) -> bool {
        let statuses = self.decision.statuses();
        let own = statuses.get(self.quotas.clone()).unwrap_or_default();
        let is_own =
            own.len() == statuses.len() || own.iter().any(|status| status.is(Marks::BLOCKED));
        self.decision.is_blocked() && is_own
    }

    fn is_about(&self, charge: ChargeRequestRef<'_>) -> bool {
        self.charge.key == *charge.key && self.charge.tier == *charge.tier
    }
}
