//! Waiting: the lines in which denied requests stand, and the sleep until a turn has come.

use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::ticket::Ticket;
use crate::{decision::Decision, key::Key, limiter::Tier};

#[cfg(not(feature = "tokio"))]
use std::time::Instant;
#[cfg(feature = "tokio")]
use tokio::time::Instant;

/// The part of the room that one key can fill.
const SHARE: usize = 8;

/// What empty lines leave room for, so that it is not allocated again for each request that waits.
const KEPT: usize = 64;

/// The requests that wait for a denial to end.
#[derive(Debug, Clone)]
pub(super) struct WaitingRoom {
    /// Nobody waits unless this is set.
    pub(super) longest: Option<Duration>,
    pub(super) most: usize,
    lines: Arc<Lines>,
}

/// A line for each key and tier of which somebody waits.
#[derive(Debug, Default)]
struct Lines {
    /// How many wait in all.
    waiting: AtomicUsize,
    by_key: Mutex<HashMap<Key, Vec<Line>>>,
}

/// The requests of one key and tier that wait, in the order in which they came.
#[derive(Debug)]
struct Line {
    tier: Tier,
    next: u64,
    waiters: BTreeMap<u64, Waiter>,
    front: Option<Front>,
}

#[derive(Debug)]
struct Waiter {
    cost: u64,
    /// What to wake when it has become the head.
    waker: Option<Waker>,
}

/// What the limiter answered to the newest head that was denied.
#[derive(Debug)]
struct Front {
    denial: Decision,
    at: Instant,
    head: u64,
    head_cost: u64,
    /// The cost of those that stood behind that head, also of those that have passed since.
    behind: u64,
}

/// What becomes of a request that comes to the room.
pub(super) enum Entered {
    /// It is the first of its line, and the limiter has denied it just now.
    Head(Place),
    /// Others are before it.
    Behind(Place),
    /// It does not wait: it would take too long, or there is no place. With the time that the line
    /// takes, if there is one, which is not to be overtaken.
    Refused(Option<LineWait>),
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
    const UNKNOWN: Self = Self {
        quota: 0,
        wait: Duration::ZERO,
    };
}

impl WaitingRoom {
    pub(super) fn new() -> Self {
        Self {
            longest: None,
            most: 1_024,
            lines: Arc::default(),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.longest.is_some()
    }

    /// Whether anybody waits, so that there may be a line to join.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.is_open() && self.lines.waiting.load(Ordering::Acquire) > 0
    }

    /// A place for a request that was denied just now.
    pub(super) fn enter(&self, ticket: Ticket<&Key>, denial: &Decision) -> Entered {
        let fits = |wait: Option<Duration>| {
            let longest = self.longest?;
            wait.filter(|wait| *wait <= longest)
        };
        if fits(denial.retry_after()).is_none() {
            return Entered::Refused(None);
        }
        let mut by_key = self.lines.lock();
        if let Some(entered) = self.join_line(&mut by_key, ticket) {
            return entered;
        }
        if !self.has_place(&by_key, ticket.key) {
            return Entered::Refused(None);
        }
        let place = self.place(ticket, 0);
        let mut line = Line::new(ticket.tier);
        line.push(ticket.cost);
        line.denied(0, denial, place.joined);
        by_key.entry(ticket.key.clone()).or_default().push(line);
        Entered::Head(place)
    }

    /// A place at the end of the line that there is, for a request that the limiter was not asked
    /// about.
    pub(super) fn join(&self, ticket: Ticket<&Key>) -> Option<Entered> {
        self.join_line(&mut self.lines.lock(), ticket)
    }

    fn join_line(
        &self,
        by_key: &mut HashMap<Key, Vec<Line>>,
        ticket: Ticket<&Key>,
    ) -> Option<Entered> {
        let longest = self.longest?;
        let line = line_of(by_key, ticket)?;
        let wait = line.wait(ticket.cost, Instant::now());
        let too_long = wait.is_some_and(|line| line.wait > longest);
        if too_long || !self.has_place(by_key, ticket.key) {
            let wait = wait.unwrap_or(LineWait::UNKNOWN);
            return Some(Entered::Refused(Some(wait)));
        }
        let id = line_of(by_key, ticket)?.push(ticket.cost);
        Some(Entered::Behind(self.place(ticket, id)))
    }

    fn has_place(&self, by_key: &HashMap<Key, Vec<Line>>, key: &Key) -> bool {
        let lines = by_key.get(key).map_or(&[][..], Vec::as_slice);
        let of_key: usize = lines.iter().map(|line| line.waiters.len()).sum();
        let share = (self.most / SHARE).max(1);
        of_key < share && self.lines.waiting.load(Ordering::Acquire) < self.most
    }

    /// The place of the request that was just put into line.
    fn place(&self, ticket: Ticket<&Key>, id: u64) -> Place {
        self.lines.waiting.fetch_add(1, Ordering::AcqRel);
        Place {
            lines: Arc::clone(&self.lines),
            key: ticket.key.clone(),
            tier: ticket.tier,
            id,
            joined: Instant::now(),
            passed: false,
        }
    }

    /// Whether there is a line, and its key was blocked when its head last asked.
    pub(super) fn blocked_line(&self, ticket: Ticket<&Key>) -> Option<bool> {
        let mut by_key = self.lines.lock();
        let line = line_of(&mut by_key, ticket)?;
        let front = line.front.as_ref();
        Some(front.is_some_and(|front| front.denial.is_blocked()))
    }

    /// What the limiter answered to the head of the line, as it is now.
    pub(super) fn denial_of_head(&self, ticket: Ticket<&Key>) -> Option<Decision> {
        let mut by_key = self.lines.lock();
        let front = line_of(&mut by_key, ticket)?.front.as_ref()?;
        Some(front.denial.clone().aged(front.at.elapsed()))
    }
}

fn line_of<'a>(
    by_key: &'a mut HashMap<Key, Vec<Line>>,
    ticket: Ticket<&Key>,
) -> Option<&'a mut Line> {
    let mut lines = by_key.get_mut(ticket.key)?.iter_mut();
    lines.find(|line| line.tier == ticket.tier)
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Line>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a line.
    fn with<T>(&self, key: &Key, tier: Tier, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        let mut by_key = self.lock();
        let mut lines = by_key.get_mut(key)?.iter_mut();
        lines.find(|line| line.tier == tier).map(change)
    }

    /// Forgets a line in which nobody stands.
    fn clear(&self, key: &Key, tier: Tier) {
        let mut by_key = self.lock();
        if let Some(lines) = by_key.get_mut(key) {
            lines.retain(|line| line.tier != tier || !line.waiters.is_empty());
            if lines.is_empty() {
                by_key.remove(key);
            }
        }
        if by_key.is_empty() {
            by_key.shrink_to(KEPT);
        }
    }
}

impl Line {
    const fn new(tier: Tier) -> Self {
        Self {
            tier,
            next: 0,
            waiters: BTreeMap::new(),
            front: None,
        }
    }

    fn push(&mut self, cost: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.waiters.insert(id, Waiter { cost, waker: None });
        if let Some(front) = &mut self.front {
            front.behind = front.behind.saturating_add(cost);
        }
        id
    }

    /// How long a request of this cost waits at least that joins now, if that is known.
    fn wait(&self, cost: u64, now: Instant) -> Option<LineWait> {
        let front = self.front.as_ref()?;
        let behind = front.behind.saturating_add(cost);
        let passed = now.saturating_duration_since(front.at);
        let quotas = front.denial.quotas().iter().enumerate();
        let waits = quotas.map(|(quota, status)| {
            let wait = status.wait_behind(front.head_cost, behind);
            let wait = wait.saturating_sub(passed);
            LineWait { quota, wait }
        });
        waits.max_by_key(|line| line.wait)
    }

    /// The head was denied: what is behind it is counted anew.
    fn denied(&mut self, head: u64, denial: &Decision, at: Instant) {
        let costs = self
            .waiters
            .range(head + 1..)
            .map(|(_, waiter)| waiter.cost);
        self.front = Some(Front {
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

    fn head(&self) -> Option<u64> {
        self.waiters.first_key_value().map(|(id, _)| *id)
    }
}

/// A place in line, left when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lines: Arc<Lines>,
    key: Key,
    tier: Tier,
    id: u64,
    joined: Instant,
    passed: bool,
}

impl Place {
    /// Waits until nobody stands before it.
    pub(super) async fn until_head(&self) {
        poll_fn(|cx| self.poll_head(cx)).await;
    }

    fn poll_head(&self, cx: &Context<'_>) -> Poll<()> {
        let is_head = self.lines.with(&self.key, self.tier, |line| {
            let is_head = line.head() == Some(self.id);
            if !is_head && let Some(waiter) = line.waiters.get_mut(&self.id) {
                waiter.waker = Some(cx.waker().clone());
            }
            is_head
        });
        match is_head {
            Some(false) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }

    /// Notes that the limiter denied it, which is the head.
    pub(super) fn denied(&self, denial: &Decision) {
        let now = Instant::now();
        self.lines.with(&self.key, self.tier, |line| {
            line.denied(self.id, denial, now);
        });
    }

    /// How long it has been waiting.
    pub(super) fn waited(&self) -> Duration {
        self.joined.elapsed()
    }

    /// Leaves the line because its units were taken.
    pub(super) fn pass(mut self) {
        self.passed = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let passed = self.passed;
        let left = self.lines.with(&self.key, self.tier, |line| {
            let next = line.leave(self.id, passed);
            (next, line.waiters.is_empty())
        });
        self.lines.waiting.fetch_sub(1, Ordering::AcqRel);
        let (next, is_empty) = left.unwrap_or_default();
        if is_empty {
            self.lines.clear(&self.key, self.tier);
        }
        // Outside the lock: it may run anything.
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// Waits, if there is anything to wait with.
///
/// # Errors
///
/// Without the feature `tokio` nothing can wait.
#[cfg(feature = "tokio")]
pub(super) async fn sleep(duration: Duration) -> Result<(), NoTimer> {
    tokio::time::sleep(duration).await;
    Ok(())
}

#[cfg(not(feature = "tokio"))]
#[allow(clippy::unused_async, reason = "its twin waits")]
pub(super) async fn sleep(_: Duration) -> Result<(), NoTimer> {
    Err(NoTimer)
}

/// A request should wait, and there is no timer.
#[derive(Debug)]
#[cfg_attr(feature = "tokio", allow(dead_code))]
pub(super) struct NoTimer;

impl std::fmt::Display for NoTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("to delay requests, tower-ratelimit needs its feature `tokio`")
    }
}

impl std::error::Error for NoTimer {}
