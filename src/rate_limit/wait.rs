//! Waiting: the room in which denied requests stand in line, and the sleep until a turn has come.

mod limit_lines;

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    demand::DemandRef,
    line::{LineId, LineWait, Lines, LockedLines},
    places::{HeldPlace, PlaceHolder, WaitingPlaces},
};
use crate::{decision::Decision, key::Key, limiter::Tier};

#[cfg(not(feature = "tokio"))]
use std::time::Instant;
#[cfg(feature = "tokio")]
use tokio::time::Instant;

/// Says how long a request may wait that was denied so, if at all.
pub(super) type LongestOf = Arc<dyn Fn(&Decision) -> Option<Duration> + Send + Sync>;

/// The epoch of the limit at a place.
type EpochOf = Arc<dyn Fn(usize) -> u32 + Send + Sync>;

/// The requests that wait for a denial to end.
///
/// Where several limits with a key each are charged together, a request stands in the line of one of
/// them: the one that binds in the last denial.
#[derive(Clone)]
pub(super) struct WaitingRoom {
    /// Nobody waits unless this is set.
    pub(super) longest: Option<Duration>,
    /// The longest wait for what a denial denies, no longer than `longest`, where that differs.
    pub(super) longest_of: Option<LongestOf>,
    /// The lines of the limits, where those have names: others of the room may share them.
    pub(super) named: Arc<[NamedLines]>,
    epoch_of: Option<EpochOf>,
    pub(super) most: usize,
    lines: Arc<Lines>,
    places: Arc<WaitingPlaces>,
}

/// The lines of a limit that has a name.
#[derive(Debug)]
pub(super) struct NamedLines {
    pub(super) name: Tier,
    /// The longest wait in them.
    pub(super) longest: Option<Duration>,
}

/// A line that a request may stand in.
#[derive(Debug)]
struct LineOfLimit {
    id: LineId,
    /// The place of its limit among those that decide about the request.
    limit: usize,
    longest: Duration,
}

/// The fate of a request that comes to the room.
pub(super) enum Entered {
    /// It is the first of its line, and the limiter has denied it just now.
    HeadDenial(LinePlace),
    /// Others are before it.
    Behind(LinePlace),
    /// It does not wait: it would take too long, or there is no place. With the line, if there is one,
    /// which is not to be overtaken.
    Refused(Option<LineAhead>),
}

/// A line that a request finds, by the place of its limit among those that decide about the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineAhead {
    pub(super) limit: usize,
    pub(super) wait: LineWait,
}

/// The fate of a request in line that was denied again.
pub(super) enum DeniedAgain {
    /// It is the head of its line.
    Head,
    /// Others, which came before it, stand before it in the line of the limit that denied it.
    Behind,
    /// It would take too long.
    Refused(LineAhead),
}

impl WaitingRoom {
    pub(super) fn new() -> Self {
        Self {
            longest: None,
            longest_of: None,
            named: Arc::default(),
            epoch_of: None,
            most: 1_024,
            lines: Arc::default(),
            places: Arc::default(),
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
        self.is_open() && self.places.are_used() && self.may_have_line_of(key)
    }

    fn may_have_line_of(&self, key: &Key) -> bool {
        let mut parts = key.joint_parts().into_iter().flatten().flatten();
        self.lines.may_have(key) || parts.any(|part| self.lines.may_have(&Key::from_bytes(part)))
    }

    /// A place for a request that was denied just now.
    pub(super) fn enter(&self, demand: DemandRef<'_>, denial: &Decision) -> Entered {
        let longest = self.longest(denial).unwrap_or_default();
        if denial.retry_after().is_none_or(|wait| wait > longest) || !self.is_open() {
            return Entered::Refused(None);
        }
        let line = LineOfLimit {
            longest,
            ..self.line_for(demand, denial)
        };
        let mut lines = self.lines.lock(&line.id.key);
        if lines.find(&line.id).is_some() {
            return self.join_line(&mut lines, line, demand);
        }
        let Some(held) = self.take_place(demand) else {
            return Entered::Refused(None);
        };
        let quotas = denial.places_of(line.limit);
        let place = self.place(&mut lines, line.id, demand, held);
        if let Some(line) = lines.find(&place.line) {
            line.denied(place.arrival, demand, (denial, quotas), place.joined);
        }
        Entered::HeadDenial(place)
    }

    /// A place at the end of the line that there is, for a request that the limiter was not asked
    /// about; of several, the one that takes longest.
    pub(super) fn join(&self, demand: DemandRef<'_>) -> Option<Entered> {
        let mut longest: Option<(Duration, LineOfLimit)> = None;
        for line in self.lines_of(demand) {
            let mut lines = self.lines.lock(&line.id.key);
            let Some(found) = lines.find(&line.id) else {
                continue;
            };
            let wait = found.wait(demand.cost, Instant::now());
            let wait = wait.unwrap_or(LineWait::UNKNOWN);
            if wait.wait > line.longest {
                return Some(Entered::Refused(Some(line.ahead(wait))));
            }
            if longest.as_ref().is_none_or(|(than, _)| wait.wait > *than) {
                longest = Some((wait.wait, line));
            }
        }
        let (_, line) = longest?;
        let mut lines = self.lines.lock(&line.id.key);
        lines.find(&line.id)?;
        Some(self.join_line(&mut lines, line, demand))
    }

    /// Joins the end of a line that there is.
    fn join_line(
        &self,
        lines: &mut LockedLines<'_>,
        line: LineOfLimit,
        demand: DemandRef<'_>,
    ) -> Entered {
        let found = lines.find(&line.id);
        let wait = found.and_then(|found| found.wait(demand.cost, Instant::now()));
        let too_long = wait.is_some_and(|ahead| ahead.wait > line.longest);
        let held = match too_long {
            true => None,
            false => self.take_place(demand),
        };
        match held {
            Some(held) => Entered::Behind(self.place(lines, line.id, demand, held)),
            None => Entered::Refused(Some(line.ahead(wait.unwrap_or(LineWait::UNKNOWN)))),
        }
    }

    /// Takes a place, which counts at each key that is not the same for everybody.
    fn take_place(&self, demand: DemandRef<'_>) -> Option<HeldPlace> {
        // The limits of one layer are told apart; of limits with names one key is one holder.
        let limit = |line: &LineOfLimit| line.id.limit;
        let own = |line: &LineOfLimit| line.id.key != Key::global();
        let mut holders: Vec<PlaceHolder> = Vec::new();
        for line in self.lines_of_limits(demand).filter(own) {
            let holder = (limit(&line), line.id.key);
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
        if holders.is_empty() {
            holders.push((0, demand.key.clone()));
        }
        self.places.take(holders.into_iter(), self.most)
    }

    /// Puts a request into a line, which is locked.
    fn place(
        &self,
        lines: &mut LockedLines<'_>,
        line: LineId,
        demand: DemandRef<'_>,
        held: HeldPlace,
    ) -> LinePlace {
        let arrival = self.lines.arrival(lines);
        lines.push(&line, arrival, demand.cost);
        LinePlace {
            lines: Arc::clone(&self.lines),
            line,
            arrival,
            cost: demand.cost,
            joined: Instant::now(),
            passed: false,
            _held: held,
        }
    }

    /// Notes that a request in line was denied again, and may wait for `left` more: in the line of the
    /// limit that denied it, by its arrival.
    pub(super) fn denied(
        &self,
        place: &mut LinePlace,
        demand: DemandRef<'_>,
        denial: &Decision,
        left: Duration,
    ) -> DeniedAgain {
        let line = self.line_for(demand, denial);
        if line.id != place.line {
            place.move_to(line.id.clone());
        }
        let mut lines = self.lines.lock(&place.line.key);
        let Some(found) = lines.find(&place.line) else {
            return DeniedAgain::Head;
        };
        let now = Instant::now();
        if found.head() == Some(place.arrival) {
            let quotas = denial.places_of(line.limit);
            found.denied(place.arrival, demand, (denial, quotas), now);
            return DeniedAgain::Head;
        }
        match found.wait_of(place.arrival, now) {
            Some(wait) if wait.wait > left => DeniedAgain::Refused(line.ahead(wait)),
            _ => DeniedAgain::Behind,
        }
    }

    /// Whether there is a line, and its key was blocked when its head last asked.
    pub(super) fn blocked_line(&self, demand: DemandRef<'_>) -> Option<bool> {
        let blocked = self.lines_of(demand).filter_map(|line| {
            let mut lines = self.lines.lock(&line.id.key);
            let front = lines.find(&line.id)?.front.as_ref();
            Some(front.is_some_and(super::line::HeadDenial::is_blocked))
        });
        blocked.reduce(|one, other| one || other)
    }

    /// The limiter's answer to the head of a line, as it is now, if it was about the same key.
    pub(super) fn denial_of_head(&self, demand: DemandRef<'_>) -> Option<Decision> {
        self.lines_of(demand).find_map(|line| {
            let mut lines = self.lines.lock(&line.id.key);
            let front = lines.find(&line.id)?.front.as_ref()?;
            let denial = front.is_about(demand).then(|| front.denial.clone())?;
            Some(denial.aged(front.at.elapsed()))
        })
    }
}

impl LineOfLimit {
    const fn ahead(&self, wait: LineWait) -> LineAhead {
        LineAhead {
            limit: self.limit,
            wait,
        }
    }
}

/// A place in line, left when it is dropped.
#[derive(Debug)]
pub(super) struct LinePlace {
    lines: Arc<Lines>,
    line: LineId,
    arrival: u64,
    cost: u64,
    joined: Instant,
    passed: bool,
    _held: HeldPlace,
}

impl LinePlace {
    /// Waits until nobody stands before it.
    pub(super) async fn until_head(&self) {
        poll_fn(|cx| self.poll_head(cx)).await;
    }

    fn poll_head(&self, cx: &Context<'_>) -> Poll<()> {
        let mut lines = self.lines.lock(&self.line.key);
        let line = lines.find(&self.line);
        match line.is_none_or(|line| line.is_head(self.arrival, cx.waker())) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Leaves its line for another, where it stands by its arrival.
    fn move_to(&mut self, line: LineId) {
        self.leave();
        let mut lines = self.lines.lock(&line.key);
        lines.push(&line, self.arrival, self.cost);
        drop(lines);
        self.line = line;
    }

    /// Leaves its line, whose next one asks.
    fn leave(&self) {
        let mut lines = self.lines.lock(&self.line.key);
        let next = lines.leave(&self.line, self.arrival, self.passed);
        // Outside the lock: it may run anything.
        drop(lines);
        if let Some(next) = next {
            next.wake();
        }
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
        self.leave();
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
