//! Waiting for a turn: in line until all before have gone, and as its head for everything else.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, SemaphorePermit},
    time::{Instant, timeout_at},
};

use super::{
    Destination, PacerError, PacerEvent,
    common::Common,
    learned::{HeldBack, Sent},
    sent_request::SentRequest,
    site::Site,
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Outcome},
    limiter::{AnyLimiter, Limiter, Pending},
};

type LimiterFuture = <AnyLimiter as Limiter>::Future;

/// As good as no bound, and still a time that can be added to one.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A limiter that says "at once" and denies all the same must not keep a processor busy.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A request that wants its turn.
pub(super) struct TurnRequest<'p> {
    common: &'p Common,
    limiter: Option<&'p AnyLimiter>,
    cost: u64,
    longest: Duration,
    /// When it began to wait: a request that need not reads no clock for it.
    began: OnceLock<Instant>,
    /// Set once the observer has heard that it waits.
    queued: OnceLock<()>,
}

/// The fate of a request that does not wait.
enum AtOnce<F> {
    Sent(Sent),
    /// It has to, with the limiter's answer if that was asked.
    Later(Option<Pending<F>>),
}

/// The limiter's answer to the head of the line.
enum HeadAnswer {
    /// Its units were taken.
    Charged,
    /// They may be there now.
    AskAgain,
}

impl<'p> TurnRequest<'p> {
    pub(super) fn new(
        common: &'p Common,
        limiter: Option<&'p AnyLimiter>,
        cost: u64,
        longest: Duration,
    ) -> Self {
        Self {
            common,
            limiter,
            cost,
            longest,
            began: OnceLock::new(),
            queued: OnceLock::new(),
        }
    }

    fn began(&self) -> Instant {
        *self.began.get_or_init(Instant::now)
    }

    /// Tells the observer that this request has to wait, at most once.
    fn tell_queued(&self) {
        self.queued
            .get_or_init(|| self.common.tell(PacerEvent::Queued));
    }

    fn deadline(&self) -> Instant {
        self.began() + self.longest.min(FOREVER)
    }

    /// The request when its turn has come, and how long that took.
    pub(super) async fn turn(
        &self,
        destination: &Destination,
    ) -> Result<(SentRequest, Duration), PacerError> {
        let now = self.common.clock.now();
        let site = self.common.sites.of(destination, now)?;
        let place = PlaceInLine::join(&site.queued, self.common.max_queue)
            .ok_or_else(|| PacerError::queue_full(self.common.max_queue, destination))?;
        // What waits is boxed, so that the future of a request that need not is small.
        // A permit is there only if nobody waits for it.
        let head = match site.line.try_acquire() {
            Ok(head) => head,
            Err(_) => Box::pin(self.head_of(&site)).await?,
        };
        let room = match self.room_at_once(&site) {
            Some(room) => room,
            None => Box::pin(self.room_of(&site)).await?,
        };
        let sent = match self.began.get().is_none().then(|| self.at_once(&site, now)) {
            Some(AtOnce::Sent(sent)) => sent,
            Some(AtOnce::Later(answer)) => Box::pin(self.go(&site, answer)).await?,
            None => Box::pin(self.go(&site, None)).await?,
        };
        // The next one is the head from here on.
        drop(head);
        drop(place);
        let waited = self.began.get().map_or(Duration::ZERO, Instant::elapsed);
        let request = SentRequest::new(site, sent, room);
        self.common.tell(PacerEvent::Sent { waited });
        Ok((request, waited))
    }

    /// Goes without waiting, if that is possible.
    fn at_once(&self, site: &Site, now: Timestamp) -> AtOnce<LimiterFuture> {
        let Some(limiter) = self.limiter else {
            return self
                .send(site, now)
                .map_or(AtOnce::Later(None), AtOnce::Sent);
        };
        if site.memory().learned.hold(now, self.cost).is_some() {
            return AtOnce::Later(None);
        }
        let answer = limiter.acquire(&site.key, self.cost);
        let is_charged = match &answer {
            Pending::Ready(Ok(decision)) => decision.outcome() == Outcome::Allowed,
            _ => false,
        };
        match is_charged.then(|| self.send(site, now)).flatten() {
            Some(sent) => AtOnce::Sent(sent),
            None if is_charged => AtOnce::Later(None),
            None => AtOnce::Later(Some(answer)),
        }
    }

    /// Sends, unless something holds requests back by now.
    fn send(&self, site: &Site, now: Timestamp) -> Option<Sent> {
        let mut memory = site.memory();
        if memory.learned.hold(now, self.cost).is_some() {
            return None;
        }
        memory.head_waits = false;
        let sent = memory.learned.send(now, self.cost);
        drop(memory);
        site.budget().deposit(now);
        Some(sent)
    }

    /// Waits until all that came before have gone.
    async fn head_of<'s>(&self, site: &'s Site) -> Result<SemaphorePermit<'s>, PacerError> {
        // Nobody joins a line that does not move in time.
        let begins = site.memory().learned.begins_again(self.common.clock.now());
        if let Some(until) = begins {
            self.check(site, HeldBack::Paused(until))?;
        }
        self.tell_queued();
        match timeout_at(self.deadline(), site.line.acquire()).await {
            Ok(Ok(head)) => Ok(head),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(self.too_late(site)),
        }
    }

    /// Room among the requests in flight, if there is some now.
    fn room_at_once(&self, site: &Site) -> Option<Option<OwnedSemaphorePermit>> {
        match &site.room {
            None => Some(None),
            Some(room) => Arc::clone(room).try_acquire_owned().ok().map(Some),
        }
    }

    /// Waits until fewer than the most are in flight.
    async fn room_of(&self, site: &Site) -> Result<Option<OwnedSemaphorePermit>, PacerError> {
        let Some(room) = &site.room else {
            return Ok(None);
        };
        self.tell_queued();
        match timeout_at(self.deadline(), Arc::clone(room).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            Ok(Err(_)) | Err(_) => Err(self.too_late(site)),
        }
    }

    /// Waits as the head, and takes the units last, so that nobody who waits holds any. The limiter
    /// may have been asked already.
    async fn go(
        &self,
        site: &Site,
        mut answer: Option<Pending<LimiterFuture>>,
    ) -> Result<Sent, PacerError> {
        self.began();
        loop {
            if answer.is_none() {
                self.until_nothing_holds(site).await?;
                answer = self
                    .limiter
                    .map(|limiter| limiter.acquire(&site.key, self.cost));
            }
            let asked = match answer.take() {
                Some(answer) => self.until_charged(site, answer).await?,
                None => HeadAnswer::Charged,
            };
            // An answer may have come meanwhile that forbids to go. The units are lost then, which
            // errs on the safe side.
            if let HeadAnswer::Charged = asked
                && let Some(sent) = self.send(site, self.common.clock.now())
            {
                return Ok(sent);
            }
        }
    }

    async fn until_nothing_holds(&self, site: &Site) -> Result<(), PacerError> {
        loop {
            let now = self.common.clock.now();
            let Some(hold) = self.hold_as_head(site, now, false) else {
                return Ok(());
            };
            let wait = self.check(site, hold)?;
            self.tell_queued();
            // News may shorten the wait, or make it longer than this request can bear.
            let end = self.instant_in(wait);
            let _ = timeout_at(end, site.news.notified()).await;
        }
    }

    /// The obstacle of the head of the line, which hears of news as long as something does, or as it waits for
    /// another reason.
    fn hold_as_head(&self, site: &Site, now: Timestamp, waits: bool) -> Option<HeldBack> {
        let mut memory = site.memory();
        let hold = memory.learned.hold(now, self.cost);
        memory.head_waits = waits || hold.is_some();
        hold
    }

    /// Waits as the head for what the limiter said.
    ///
    /// # Errors
    ///
    /// When meanwhile something holds requests back for longer than this one can wait.
    async fn sleep_as_head(&self, site: &Site, wait: Duration) -> Result<(), PacerError> {
        self.tell_queued();
        let end = Instant::now() + wait.min(FOREVER);
        loop {
            let now = self.common.clock.now();
            if let Some(hold) = self.hold_as_head(site, now, true) {
                self.check(site, hold)?;
            }
            if timeout_at(end, site.news.notified()).await.is_err() {
                return Ok(());
            }
        }
    }

    /// The rest of a wait.
    ///
    /// # Errors
    ///
    /// When it is longer than this request can wait.
    fn check(&self, site: &Site, hold: HeldBack) -> Result<Duration, PacerError> {
        let wait = between(self.common.clock.now(), hold.until());
        if wait <= self.left() {
            return Ok(wait.max(SHORTEST_SLEEP));
        }
        Err(match hold {
            HeldBack::Paused(_) => PacerError::paused(wait, &site.destination),
            HeldBack::Spent(_) => {
                PacerError::wait_too_long(Some(wait), self.longest, &site.destination)
            }
        })
    }

    async fn until_charged(
        &self,
        site: &Site,
        answer: Pending<LimiterFuture>,
    ) -> Result<HeadAnswer, PacerError> {
        // Its time is its own to bound: given up here, the units would be lost.
        let decision = answer.into_future().await;
        let decision = decision.map_err(|error| PacerError::limiter(error, &site.destination))?;
        match decision.outcome() {
            Outcome::Allowed => Ok(HeadAnswer::Charged),
            Outcome::Delayed(delay) => self.until_slot(site, &decision, delay).await,
            Outcome::Denied => self.until_denial_ends(site, &decision).await,
        }
    }

    /// Waits for the slot of a leaky bucket, which is booked.
    async fn until_slot(
        &self,
        site: &Site,
        booked: &Decision,
        delay: Duration,
    ) -> Result<HeadAnswer, PacerError> {
        let slot = match delay > self.left() {
            true => Err(PacerError::wait_too_long(
                Some(delay),
                self.longest,
                &site.destination,
            )),
            false => self.sleep_as_head(site, delay).await,
        };
        if slot.is_err() {
            // Unless it is given back, each call that cannot wait moves the others' slots away.
            if let Some(limiter) = self.limiter {
                let refund = limiter.refund(&site.key, self.cost, Some(booked.receipt()));
                let _ = refund.await;
            }
        }
        slot.map(|()| HeadAnswer::Charged)
    }

    async fn until_denial_ends(
        &self,
        site: &Site,
        denial: &Decision,
    ) -> Result<HeadAnswer, PacerError> {
        let destination = &site.destination;
        let Some(wait) = denial.retry_after() else {
            let margin = self.common.margin;
            return Err(PacerError::cannot_fit(
                self.cost,
                denial,
                margin,
                destination,
            ));
        };
        if wait > self.left() {
            return Err(PacerError::wait_too_long(
                Some(wait),
                self.longest,
                destination,
            ));
        }
        let wait = wait.max(SHORTEST_SLEEP);
        self.sleep_as_head(site, wait).await?;
        Ok(HeadAnswer::AskAgain)
    }

    fn too_late(&self, site: &Site) -> PacerError {
        PacerError::wait_too_long(None, self.longest, &site.destination)
    }

    fn left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    fn instant_in(&self, wait: Duration) -> Instant {
        (Instant::now() + wait.min(FOREVER)).min(self.deadline())
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
