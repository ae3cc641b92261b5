//! Waiting for a turn: in line until all before have gone, and as its head for everything else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, SemaphorePermit},
    time::{Instant, sleep, timeout_at},
};

use super::{
    Destination, PacerError, PacerEvent, Turn,
    common::Common,
    learned::{Hold, Sent},
    site::Site,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Outcome},
    limiter::Limiter,
};

/// As good as no bound, and still a time that can be added to one.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A limiter that says "at once" and denies all the same must not keep a processor busy.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A request that wants its turn.
pub(super) struct TurnRequest<'p, L> {
    common: &'p Arc<Common>,
    limiter: Option<&'p L>,
    cost: u64,
    longest: Duration,
    began: Instant,
    deadline: Instant,
}

/// The limiter's answer to the head of the line.
enum Asked {
    /// Its units were taken.
    Charged,
    /// They may be there now.
    AskAgain,
}

impl<'p, L: Limiter> TurnRequest<'p, L> {
    pub(super) fn new(
        common: &'p Arc<Common>,
        limiter: Option<&'p L>,
        cost: u64,
        longest: Duration,
    ) -> Self {
        let began = Instant::now();
        Self {
            common,
            limiter,
            cost,
            longest,
            began,
            deadline: began + longest.min(FOREVER),
        }
    }

    pub(super) async fn turn(&self, destination: &Destination) -> Result<Turn, PacerError> {
        let site = self.common.sites.of(destination, self.common.clock.now())?;
        let queued = PlaceInLine::join(&site.queued, self.common.max_queue)
            .ok_or_else(|| PacerError::queue_full(self.common.max_queue, destination))?;
        // Nobody joins a line that does not move in time.
        let paused_until = site.memory().learned.paused_until(self.common.clock.now());
        if let Some(until) = paused_until {
            self.check(&site, Hold::Paused(until))?;
        }
        let head = self.head_of(&site).await?;
        let room = self.room_of(&site).await?;
        let sent = self.go(&site).await?;
        // The next one is the head from here on.
        drop(head);
        drop(queued);
        self.common.tell(PacerEvent::Sent {
            waited: self.began.elapsed(),
        });
        site.in_flight.fetch_add(1, Ordering::AcqRel);
        Ok(Turn::new(Arc::clone(self.common), site, sent, room))
    }

    /// Waits until all that came before have gone.
    async fn head_of<'s>(&self, site: &'s Site) -> Result<SemaphorePermit<'s>, PacerError> {
        // A permit is there only if nobody waits for it.
        if let Ok(head) = site.line.try_acquire() {
            return Ok(head);
        }
        self.common.tell(PacerEvent::Queued);
        match timeout_at(self.deadline, site.line.acquire()).await {
            Ok(Ok(head)) => Ok(head),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(self.too_late(site)),
        }
    }

    /// Waits until fewer than the most are in flight.
    async fn room_of(&self, site: &Site) -> Result<Option<OwnedSemaphorePermit>, PacerError> {
        let Some(room) = &site.room else {
            return Ok(None);
        };
        match timeout_at(self.deadline, Arc::clone(room).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            Ok(Err(_)) | Err(_) => Err(self.too_late(site)),
        }
    }

    /// Waits as the head, and takes the units last, so that nobody who waits holds any.
    async fn go(&self, site: &Site) -> Result<Sent, PacerError> {
        loop {
            self.until_nothing_holds(site).await?;
            if let Asked::AskAgain = self.ask(site).await? {
                continue;
            }
            // An answer may have come meanwhile that forbids to go. The units are lost then, which
            // errs on the safe side.
            let now = self.common.clock.now();
            let mut memory = site.memory();
            if memory.learned.hold(now, self.cost).is_none() {
                memory.budget.deposit(now);
                return Ok(memory.learned.send(now, self.cost));
            }
        }
    }

    async fn until_nothing_holds(&self, site: &Site) -> Result<(), PacerError> {
        loop {
            let now = self.common.clock.now();
            let hold = site.memory().learned.hold(now, self.cost);
            let Some(hold) = hold else {
                return Ok(());
            };
            let wait = self.check(site, hold)?;
            // News may shorten the wait, or make it longer than this request can bear.
            let end = self.instant_in(wait);
            let _ = timeout_at(end, site.news.notified()).await;
        }
    }

    /// The rest of a wait.
    ///
    /// # Errors
    ///
    /// When it is longer than this request can wait.
    fn check(&self, site: &Site, hold: Hold) -> Result<Duration, PacerError> {
        let wait = between(self.common.clock.now(), hold.until());
        if wait <= self.left() {
            return Ok(wait.max(SHORTEST_SLEEP));
        }
        Err(match hold {
            Hold::Paused(_) => PacerError::paused(wait, &site.destination),
            Hold::Spent(_) => {
                PacerError::wait_too_long(Some(wait), self.longest, &site.destination)
            }
        })
    }

    async fn ask(&self, site: &Site) -> Result<Asked, PacerError> {
        let Some(limiter) = self.limiter else {
            return Ok(Asked::Charged);
        };
        let answer = timeout_at(
            self.deadline,
            limiter.acquire(&site.key, self.cost).into_future(),
        );
        let decision = answer.await.map_err(|_| self.too_late(site))?;
        let decision = decision.map_err(|error| PacerError::limiter(error, &site.destination))?;
        match decision.outcome() {
            Outcome::Allowed => Ok(Asked::Charged),
            Outcome::Delayed(delay) => self.until_slot(limiter, site, &decision, delay).await,
            Outcome::Denied => self.until_denial_ends(site, &decision).await,
        }
    }

    /// Waits for the slot of a leaky bucket, which is booked.
    async fn until_slot(
        &self,
        limiter: &L,
        site: &Site,
        booked: &Decision,
        delay: Duration,
    ) -> Result<Asked, PacerError> {
        if delay > self.left() {
            // Unless it is given back, each call that cannot wait moves the others' slots away.
            let refund = limiter.refund(&site.key, self.cost, Some(booked.receipt()));
            let _ = refund.await;
            let destination = &site.destination;
            return Err(PacerError::wait_too_long(
                Some(delay),
                self.longest,
                destination,
            ));
        }
        sleep(delay).await;
        Ok(Asked::Charged)
    }

    async fn until_denial_ends(&self, site: &Site, denial: &Decision) -> Result<Asked, PacerError> {
        let destination = &site.destination;
        let Some(wait) = denial.retry_after() else {
            return Err(PacerError::cannot_fit(self.cost, denial, destination));
        };
        if wait > self.left() {
            return Err(PacerError::wait_too_long(
                Some(wait),
                self.longest,
                destination,
            ));
        }
        sleep(wait.max(SHORTEST_SLEEP)).await;
        Ok(Asked::AskAgain)
    }

    fn too_late(&self, site: &Site) -> PacerError {
        PacerError::wait_too_long(None, self.longest, &site.destination)
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn instant_in(&self, wait: Duration) -> Instant {
        (Instant::now() + wait.min(FOREVER)).min(self.deadline)
    }
}

/// The time from one instant to another; none if that is past.
pub(super) fn between(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_micros(then.as_micros().saturating_sub(now.as_micros()))
}

/// A place among those that wait, left when it is dropped.
struct PlaceInLine<'s>(&'s AtomicUsize);

impl<'s> PlaceInLine<'s> {
    fn join(queued: &'s AtomicUsize, most: usize) -> Option<Self> {
        let one_more = |waiting| (waiting < most).then_some(waiting + 1);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let joined = queued.fetch_update(done, seen, one_more);
        // Not `then_some`: what it would drop gives a place back that was never taken.
        joined.is_ok().then(|| Self(queued))
    }
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
