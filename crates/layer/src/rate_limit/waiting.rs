//! The waiting of denied requests until their turn comes: in the queue of the limit that denies them, and in slots. Each key
//! holds a part of the slots.
//!
//! In: a request that was denied (`enqueue`), or that comes while others of its key wait (`join`). Out: a `QueuePosition`,
//! or that it does not wait. `pending_decision.rs` waits, and charges again.
//!
//! 1. A request waits if its denial is over within its longest wait, and a slot is free. `Room` bounds the requests
//!    that wait in a layer, and the part of one key.
//! 2. Only the head of a queue is charged. It sleeps until its denial is over, and is charged again; the others sleep until
//!    they are the head (`until_head`). How long that takes follows from the head's denial and the costs before them.
//! 3. A position that is dropped leaves its queue and wakes the next head, whether its request was charged (`pass`), was
//!    denied for good, or was cancelled by its client.
//! 4. Of several limits that are charged together, the one that binds in the last denial has the queue. A head that another
//!    limit denies leaves, and joins the queue of that one behind those who wait there.
//!
//! One lock has all queues of a layer, and nobody is woken under it.
//!
//! Example: 10 requests a second, a longest wait of 1 s, and 15 requests at once. Ten pass. The eleventh is the head and is
//! charged after 100 ms, the next one 100 ms later, the last after 500 ms.

use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::request_charges::ChargeRequest;
use tower_ratelimit_core::{
    clock,
    decision::{Decision, Marks},
    error::LimiterError,
    key::Key,
    limiter::tier::Tier,
    lock::unpoisoned,
    quota::Priority,
};

#[cfg(not(feature = "tokio"))]
use std::time::Instant;
#[cfg(feature = "tokio")]
use tokio::time::Instant;

/// The requests that wait for a denial to end, and how long they may wait. Clones share the queues.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
pub struct Waiting {
    /// The longest wait; `None` if no request waits.
    pub(super) longest: Option<Duration>,
    /// For each limit its identity, and the longest wait in its queues. Without it a limit's identity is its index.
    pub(super) limits: Arc<[(u64, Option<Duration>)]>,
    /// The most requests that wait at the same time.
    pub(super) most: usize,
    room: Arc<Room>,
}

/// The name of a queue: the limit that holds its requests up, their key, their tier and their class.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct QueueId {
    limit: u64,
    key: Key,
    tier: Tier,
    class: Priority,
}

/// The queue of one of the limits that decide about a request.
struct QueueOfLimit {
    id: QueueId,
    /// The place of the limit among those that decide about the request.
    limit: usize,
    /// The cost of the request at the limit.
    cost: u64,
    longest: Duration,
}

pub(super) enum Enqueued {
    /// The request is the head of its queue, whose limit has just denied it for so long.
    Head(QueuePosition, Duration),
    /// Other requests are before it.
    Behind(QueuePosition),
    /// The request does not wait: the wait is too long, or no slot is free. The queue, if one exists,
    /// must not be overtaken.
    Refused(Option<QueueAhead>),
}

/// The shortest time until a request passes: the requests before it in a queue, and itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueAhead {
    /// The place of the queue's limit among those that decide about the request.
    pub(super) limit: usize,
    /// The place of the quota with this wait, among those of the limit.
    pub(super) quota: usize,
    pub(super) wait: Duration,
}

impl Waiting {
    #[doc(hidden)]
    pub fn new() -> Self {
        Self {
            longest: None,
            limits: Arc::default(),
            most: 1_024,
            room: Arc::default(),
        }
    }

    /// These queues for limits with an identity each, which names its queues, and the longest wait in them.
    #[must_use]
    pub fn of_limits(&self, limits: Arc<[(u64, Option<Duration>)]>) -> Self {
        Self {
            longest: limits.iter().filter_map(|(_, longest)| *longest).max(),
            limits,
            ..self.clone()
        }
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.longest.is_some()
    }

    /// Whether requests of these limits may wait.
    #[inline]
    pub(super) fn is_enabled_for(&self, mut limits: impl Iterator<Item = usize>) -> bool {
        let waits = |limit| matches!(self.limits.get(limit), Some((_, Some(_))));
        self.is_enabled() && (self.limits.is_empty() || limits.any(waits))
    }

    /// The longest wait of a denied request: it waits only if all limits that deny it have a wait, and for the shortest of
    /// them.
    pub(super) fn longest(&self, denial: &Decision, charge: ChargeRequest<'_>) -> Option<Duration> {
        if !self.limits.is_empty() {
            let charges = charge.charges;
            let wait_at = |at: usize| self.limits.get(charges.get(at)?.index())?.1;
            if charges.len() == 1 {
                return wait_at(0);
            }
            let waits: Option<Vec<_>> = denial.denying(charges.len()).map(wait_at).collect();
            return waits?.into_iter().min();
        }
        self.longest
    }

    /// Whether any request waits, so that there may be a queue that must not be overtaken.
    #[inline]
    pub(super) fn may_have_queue(&self, charge: ChargeRequest<'_>) -> bool {
        self.is_enabled()
            && self.room.taken.load(Ordering::Acquire) > 0
            && self.is_enabled_for(charge.limits())
    }

    /// The queues of the limits that decide about a request.
    fn queues_of<'a>(
        &'a self,
        charge: ChargeRequest<'a>,
    ) -> impl Iterator<Item = QueueOfLimit> + 'a {
        charge.charges.iter().enumerate().map(|(limit, charge)| {
            let (identity, longest) = match self.limits.get(charge.index()) {
                Some(own) => *own,
                None => (charge.index() as u64, self.longest),
            };
            QueueOfLimit {
                id: QueueId {
                    limit: identity,
                    key: charge.key.clone(),
                    tier: charge.tier.clone(),
                    class: charge.class,
                },
                limit,
                cost: charge.op.units(),
                longest: longest.unwrap_or_default(),
            }
        })
    }

    /// Queues a request that the limiter has just denied, and that may wait for `longest`. One with a position is the head
    /// of its queue: it stays, or leaves and joins the queue of another limit.
    pub(super) fn enqueue(
        &self,
        position: Option<QueuePosition>,
        charge: ChargeRequest<'_>,
        denial: &Decision,
        longest: Duration,
    ) -> Enqueued {
        let wait = denial.retry_after().filter(|wait| *wait <= longest);
        let queue = self
            .queues_of(charge)
            .nth(denial.quotas.limit_of(denial.quotas.binding_place()));
        let (Some(wait), Some(queue), true) = (wait, queue, self.is_enabled()) else {
            return Enqueued::Refused(None);
        };
        let queue = QueueOfLimit { longest, ..queue };
        self.enter(queue, charge, Some((denial, wait)), position)
    }

    /// Queues a request before its first charge, if a queue exists: of several the one with the longest
    /// wait.
    pub(super) fn join(&self, charge: ChargeRequest<'_>) -> Option<Enqueued> {
        let mut longest: Option<(Duration, QueueOfLimit)> = None;
        let waiters = self.room.lock();
        for queue in self.queues_of(charge) {
            let Some(found) = waiters.queues.get(&queue.id) else {
                continue;
            };
            let ahead = found.ahead(queue.limit, queue.cost);
            if ahead.wait > queue.longest {
                return Some(Enqueued::Refused(Some(ahead)));
            }
            if longest.as_ref().is_none_or(|(than, _)| ahead.wait > *than) {
                longest = Some((ahead.wait, queue));
            }
        }
        drop(waiters);
        let (_, queue) = longest?;
        Some(self.enter(queue, charge, None, None))
    }

    /// Joins a queue at its end, or stays in it. `denied` is the denial of the queue's limit, and how long it lasts.
    fn enter(
        &self,
        queue: QueueOfLimit,
        charge: ChargeRequest<'_>,
        denied: Option<(&Decision, Duration)>,
        mut position: Option<QueuePosition>,
    ) -> Enqueued {
        if let Some(position) = position.as_mut().filter(|own| own.queue != queue.id) {
            position.leave();
        }
        // No position is dropped under the lock, which its drop takes.
        let waiters = &mut *self.room.lock();
        let found = waiters.queues.get(&queue.id);
        let is_head = found.is_none_or(|found| {
            let own = position.as_ref().and_then(|position| position.ticket);
            own.is_some() && found.head() == own
        });
        let ahead = found
            .filter(|_| !is_head)
            .map(|found| found.ahead(queue.limit, queue.cost));
        if ahead.is_some_and(|ahead| ahead.wait > queue.longest) {
            return Enqueued::Refused(ahead);
        }
        let taken = position.or_else(|| self.take_slot(&mut waiters.slots, charge, &queue.id));
        let Some(mut position) = taken else {
            return Enqueued::Refused(ahead);
        };
        let joined = waiters.queues.entry(queue.id.clone()).or_default();
        if position.ticket.is_none() {
            position.ticket = Some(joined.push(queue.cost));
            position.queue = queue.id;
        }
        let Some((denial, wait)) = denied.filter(|_| is_head) else {
            return Enqueued::Behind(position);
        };
        joined.denial = Some(HeadDenial {
            queues: self.queues_of(charge).map(|queue| queue.id).collect(),
            cost: queue.cost,
            decision: denial.clone(),
            at: Instant::now(),
            quotas: denial.quotas.places_of(queue.limit),
            head: position.ticket,
            behind: joined.cost_behind_head(),
        });
        Enqueued::Head(position, wait)
    }

    /// Takes a slot, which counts for each key of the request that is not everybody's.
    fn take_slot(
        &self,
        slots: &mut HashMap<SlotOwner, usize>,
        charge: ChargeRequest<'_>,
        queue: &QueueId,
    ) -> Option<QueuePosition> {
        let mut owners: Vec<SlotOwner> = Vec::new();
        for QueueOfLimit { id, .. } in self.queues_of(charge) {
            // One owner for each limit of a layer; limits with an identity share the owner of a key.
            let limit = if self.limits.is_empty() { id.limit } else { 0 };
            let owner = (limit, id.key);
            if owner.1 != Key::global() && !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        if owners.is_empty() {
            owners.push((0, Key::global()));
        }
        let share = (self.most / SHARE).max(1);
        let has_slot = |owner| slots.get(owner).is_none_or(|taken| *taken < share);
        let taken = &self.room.taken;
        if taken.load(Ordering::Acquire) >= self.most || !owners.iter().all(has_slot) {
            return None;
        }
        taken.fetch_add(1, Ordering::AcqRel);
        for owner in &owners {
            *slots.entry(owner.clone()).or_default() += 1;
        }
        let room = Arc::clone(&self.room);
        Some(QueuePosition {
            queue: queue.clone(),
            ticket: None,
            joined: Instant::now(),
            passed: false,
            slot: HeldSlot { room, owners },
        })
    }

    /// Whether the last denial of a queue's head was a block; `None` without a queue.
    pub(super) fn blocked_queue(&self, charge: ChargeRequest<'_>) -> Option<bool> {
        let waiters = self.room.lock();
        let blocked = self.queues_of(charge).filter_map(|queue| {
            let denial = waiters.queues.get(&queue.id)?.denial.as_ref();
            Some(denial.is_some_and(HeadDenial::is_blocked))
        });
        blocked.reduce(|one, other| one || other)
    }

    /// The denial of a queue's head as it is now, if it was about the same limits and keys.
    pub(super) fn denial_of_head(&self, charge: ChargeRequest<'_>) -> Option<Decision> {
        let own: Box<[_]> = self.queues_of(charge).map(|queue| queue.id).collect();
        let waiters = self.room.lock();
        own.iter().find_map(|id| {
            let denial = waiters.queues.get(id)?.denial.as_ref()?;
            (denial.queues == own).then(|| denial.decision.clone().aged(denial.at.elapsed()))
        })
    }
}

/// A position in a queue; dropped, it leaves the queue.
pub(super) struct QueuePosition {
    queue: QueueId,
    /// `None` outside of the queue.
    ticket: Option<u64>,
    joined: Instant,
    passed: bool,
    slot: HeldSlot,
}

impl QueuePosition {
    pub(super) async fn until_head(&self) {
        poll_fn(|cx| self.poll_head(cx)).await;
    }

    fn poll_head(&self, cx: &Context<'_>) -> Poll<()> {
        // Outside the lock: a waker may run any code, also when it is cloned or dropped.
        let waker = cx.waker().clone();
        let mut waiters = self.slot.room.lock();
        let queue = waiters.queues.get_mut(&self.queue);
        let Some(queue) = queue.filter(|queue| queue.head() != self.ticket) else {
            return Poll::Ready(());
        };
        let own = self
            .ticket
            .and_then(|ticket| queue.waiting.get_mut(&ticket));
        if let Some(own) = own {
            let replaced = own.waker.replace(waker);
            drop(waiters);
            drop(replaced);
        }
        Poll::Pending
    }

    /// Leaves the queue and wakes its next head.
    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut waiters = self.slot.room.lock();
        let Some(queue) = waiters.queues.get_mut(&self.queue) else {
            return;
        };
        let left = queue.leave(ticket, self.passed);
        if queue.waiting.is_empty() {
            waiters.queues.remove(&self.queue);
        }
        // Outside the lock: a waker may run any code, also when it is dropped.
        drop(waiters);
        if let Some((_, Some(next))) = left {
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
    clock::try_sleep(duration)
        .map_err(LimiterError::unavailable)?
        .await;
    Ok(start.elapsed().saturating_sub(duration))
}

#[cfg(not(feature = "tokio"))]
#[allow(clippy::unused_async, reason = "its twin waits")]
pub(super) async fn sleep(_: Duration) -> Result<Duration, LimiterError> {
    Err(LimiterError::unavailable(clock::NoTimer))
}

/// One key holds at most this part of the slots.
const SHARE: usize = 8;

/// A key, and the limit that counts by it.
type SlotOwner = (u64, Key);

/// The requests that wait in a layer.
#[derive(Default)]
struct Room {
    /// The slots that are taken; changed under the lock.
    taken: AtomicUsize,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    queues: HashMap<QueueId, Queue>,
    slots: HashMap<SlotOwner, usize>,
}

/// A slot of a request, which counts for its keys; dropped, it is free.
struct HeldSlot {
    room: Arc<Room>,
    owners: Vec<SlotOwner>,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Waiters> {
        unpoisoned(self.waiters.lock())
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let slots = &mut self.room.lock().slots;
        for owner in &self.owners {
            match slots.get_mut(owner) {
                Some(taken) if *taken > 1 => *taken -= 1,
                _ => drop(slots.remove(owner)),
            }
        }
        self.room.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The requests that wait for one limit, in the order of their arrival. Empty, it does not exist.
#[derive(Default)]
struct Queue {
    waiting: BTreeMap<u64, QueuedRequest>,
    next_ticket: u64,
    denial: Option<HeadDenial>,
}

struct QueuedRequest {
    cost: u64,
    /// The task to wake when the request becomes the head.
    waker: Option<Waker>,
}

struct HeadDenial {
    /// The queues of the limits that decided.
    queues: Box<[QueueId]>,
    cost: u64,
    decision: Decision,
    at: Instant,
    /// The places of the limit's quotas in the decision.
    quotas: Range<usize>,
    head: Option<u64>,
    /// The cost of the requests behind the head at the denial, and of later arrivals. Requests that
    /// passed since are part of it.
    behind: u64,
}

impl Queue {
    fn push(&mut self, cost: u64) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting
            .insert(ticket, QueuedRequest { cost, waker: None });
        if let Some(denial) = &mut self.denial {
            denial.behind = denial.behind.saturating_add(cost);
        }
        ticket
    }

    /// The shortest wait of a request of this cost that arrives now; zero in a queue whose head was not denied yet.
    fn ahead(&self, limit: usize, cost: u64) -> QueueAhead {
        let denial = self.denial.iter();
        let waits = denial.flat_map(|denial| {
            let (elapsed, behind) = (denial.at.elapsed(), denial.behind.saturating_add(cost));
            denial
                .quotas
                .clone()
                .enumerate()
                .map(move |(quota, place)| {
                    let wait = denial
                        .decision
                        .quota(place)
                        .wait_behind(denial.cost, behind);
                    let wait = wait.saturating_sub(elapsed);
                    QueueAhead { limit, quota, wait }
                })
        });
        waits.max_by_key(|ahead| ahead.wait).unwrap_or(QueueAhead {
            limit,
            quota: 0,
            wait: Duration::ZERO,
        })
    }

    fn cost_behind_head(&self) -> u64 {
        let costs = self.waiting.values().skip(1).map(|request| request.cost);
        costs.fold(0, u64::saturating_add)
    }

    /// Removes a request that passed or stops waiting. Returns it, and the task to wake.
    fn leave(&mut self, ticket: u64, passed: bool) -> Option<(QueuedRequest, Option<Waker>)> {
        let was_head = self.head() == Some(ticket);
        let request = self.waiting.remove(&ticket)?;
        match &mut self.denial {
            Some(denial) if !passed && denial.head == Some(ticket) => self.denial = None,
            Some(denial) if !passed => {
                denial.behind = denial.behind.saturating_sub(request.cost);
            }
            _ => {}
        }
        let head = self.waiting.first_entry().filter(|_| was_head);
        let next = head.and_then(|mut head| head.get_mut().waker.take());
        Some((request, next))
    }

    fn head(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(ticket, _)| *ticket)
    }
}

impl HeadDenial {
    /// Whether the limit blocked the key of the queue.
    fn is_blocked(&self) -> bool {
        let statuses = self.decision.statuses();
        let own = statuses.get(self.quotas.clone()).unwrap_or_default();
        let is_own =
            own.len() == statuses.len() || own.iter().any(|status| status.is(Marks::BLOCKED));
        self.decision.is_blocked() && is_own
    }
}
