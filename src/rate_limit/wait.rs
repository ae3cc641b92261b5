//! Waiting: the lines in which denied requests stand, and the sleep until a turn has come.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    demand::DemandRef,
    line::{ByKey, Line, LineWait, Lines, line_of},
};
use crate::{decision::Decision, key::Key, limiter::Tier};

#[cfg(not(feature = "tokio"))]
use std::time::Instant;
#[cfg(feature = "tokio")]
use tokio::time::Instant;

/// The part of the room that one key can fill.
const SHARE: usize = 8;

/// Says how long a request may wait that was denied so, if at all.
pub(super) type LongestOf = Arc<dyn Fn(&Decision) -> Option<Duration> + Send + Sync>;

/// The requests that wait for a denial to end.
#[derive(Clone)]
pub(super) struct WaitingRoom {
    /// Nobody waits unless this is set.
    pub(super) longest: Option<Duration>,
    /// The longest wait for what a denial denies, no longer than `longest`, where that differs.
    pub(super) longest_of: Option<LongestOf>,
    pub(super) most: usize,
    lines: Arc<Lines>,
}

/// The fate of a request that comes to the room.
pub(super) enum Entered {
    /// It is the first of its line, and the limiter has denied it just now.
    HeadDenial(LinePlace),
    /// Others are before it.
    Behind(LinePlace),
    /// It does not wait: it would take too long, or there is no place. With the time that the line
    /// takes, if there is one, which is not to be overtaken.
    Refused(Option<LineWait>),
}

impl WaitingRoom {
    pub(super) fn new() -> Self {
        Self {
            longest: None,
            longest_of: None,
            most: 1_024,
            lines: Arc::default(),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.longest.is_some()
    }

    /// How long a request may wait that was denied so.
    pub(super) fn longest(&self, denial: &Decision) -> Option<Duration> {
        match &self.longest_of {
            Some(longest) => longest(denial),
            None => self.longest,
        }
    }

    /// Whether there may be a line of this key to join.
    #[inline]
    pub(super) fn may_have_line(&self, key: &Key) -> bool {
        self.is_open() && self.lines.may_have(key)
    }

    /// A place for a request that was denied just now.
    pub(super) fn enter(&self, demand: DemandRef<'_>, denial: &Decision) -> Entered {
        let fits = |wait: Option<Duration>| {
            let longest = self.longest(denial)?;
            wait.filter(|wait| *wait <= longest)
        };
        if fits(denial.retry_after()).is_none() {
            return Entered::Refused(None);
        }
        let mut by_key = self.lines.lock(demand.key);
        if let Some(entered) = self.join_line(&mut by_key, demand) {
            return entered;
        }
        if !self.take_place(&by_key, demand.key) {
            return Entered::Refused(None);
        }
        let place = self.place(demand, 0);
        let mut line = Line::new(demand.tier.clone());
        line.push(demand.cost);
        line.denied(0, denial, place.joined);
        by_key.entry(demand.key.clone()).or_default().push(line);
        Entered::HeadDenial(place)
    }

    /// A place at the end of the line that there is, for a request that the limiter was not asked
    /// about.
    pub(super) fn join(&self, demand: DemandRef<'_>) -> Option<Entered> {
        self.join_line(&mut self.lines.lock(demand.key), demand)
    }

    fn join_line(&self, by_key: &mut ByKey, demand: DemandRef<'_>) -> Option<Entered> {
        let longest = self.longest?;
        let line = line_of(by_key, demand)?;
        let wait = line.wait(demand.cost, Instant::now());
        let too_long = wait.is_some_and(|line| line.wait > longest);
        if too_long || !self.take_place(by_key, demand.key) {
            let wait = wait.unwrap_or(LineWait::UNKNOWN);
            return Some(Entered::Refused(Some(wait)));
        }
        let id = line_of(by_key, demand)?.push(demand.cost);
        Some(Entered::Behind(self.place(demand, id)))
    }

    /// Takes a place for one more of this key, if there is one.
    fn take_place(&self, by_key: &ByKey, key: &Key) -> bool {
        let lines = by_key.get(key).map_or(&[][..], Vec::as_slice);
        let of_key: usize = lines.iter().map(|line| line.waiters.len()).sum();
        let share = (self.most / SHARE).max(1);
        of_key < share && self.lines.add(key, self.most)
    }

    /// The place of the request that was just put into line.
    fn place(&self, demand: DemandRef<'_>, id: u64) -> LinePlace {
        LinePlace {
            lines: Arc::clone(&self.lines),
            key: demand.key.clone(),
            tier: demand.tier.clone(),
            id,
            joined: Instant::now(),
            passed: false,
        }
    }

    /// Whether there is a line, and its key was blocked when its head last asked.
    pub(super) fn blocked_line(&self, demand: DemandRef<'_>) -> Option<bool> {
        let mut by_key = self.lines.lock(demand.key);
        let line = line_of(&mut by_key, demand)?;
        let front = line.front.as_ref();
        Some(front.is_some_and(|front| front.denial.is_blocked()))
    }

    /// The limiter's answer to the head of the line, as it is now.
    pub(super) fn denial_of_head(&self, demand: DemandRef<'_>) -> Option<Decision> {
        let mut by_key = self.lines.lock(demand.key);
        let front = line_of(&mut by_key, demand)?.front.as_ref()?;
        Some(front.denial.clone().aged(front.at.elapsed()))
    }
}

/// A place in line, left when it is dropped.
#[derive(Debug)]
pub(super) struct LinePlace {
    lines: Arc<Lines>,
    key: Key,
    tier: Tier,
    id: u64,
    joined: Instant,
    passed: bool,
}

impl LinePlace {
    /// Waits until nobody stands before it.
    pub(super) async fn until_head(&self) {
        poll_fn(|cx| self.poll_head(cx)).await;
    }

    fn poll_head(&self, cx: &Context<'_>) -> Poll<()> {
        let is_head = self.lines.with(&self.key, &self.tier, |line| {
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
        self.lines.with(&self.key, &self.tier, |line| {
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

impl Drop for LinePlace {
    fn drop(&mut self) {
        let next = self
            .lines
            .leave(&self.key, &self.tier, self.id, self.passed);
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
