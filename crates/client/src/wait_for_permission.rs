//! Requests for a turn: each waits in the queue of its destination, and as its head for everything
//! else.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, SemaphorePermit},
    time::{Instant, timeout_at},
};
use tower_ratelimit::{
    AnyLimiter, Decision, Limiter, clock::Timestamp, decision::Outcome, limiter::Pending,
};

use crate::{
    deadlines_and_jitter::{between, has_timer},
    destination::Destination,
    destination_state::DestinationState,
    error::PacerError,
    learned_limits::Hold,
    learned_limits::SentUnits,
    pacer_state::{PacerEvent, PacerState},
    permission_to_send::SentRequest,
    request_cost::{Cost, OtherUnits},
    unsettled_units::OpenUnits,
};

type LimiterFuture = <AnyLimiter as Limiter>::Future;

/// Longer than any wait, and short enough to be added to an instant.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The shortest wait after a denial: a limiter that denies with a wait of zero must not occupy a
/// processor.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A request for a turn.
pub(crate) struct TurnRequest<'p> {
    pacer: &'p PacerState,
    limiter: Option<&'p AnyLimiter>,
    /// The cost in requests.
    cost: u64,
    /// The other units; boxed, since most requests have none.
    units: Option<Box<OpenUnits>>,
    max_wait: Duration,
    /// When the wait started. A request that need not wait reads no clock for it.
    wait_start: Option<Instant>,
    /// Whether the observer received `Queued`.
    is_queued: bool,
}

/// The result of an attempt to send without waiting.
enum Immediate<F> {
    Sent(SentUnits),
    /// The request has to wait. Contains the limiter's response, if it was called.
    Later(Option<Pending<F>>),
}

/// The limiter's response to the head of the queue.
enum HeadResult {
    /// The limiter charged the units.
    Charged,
    /// The limiter may allow the units now. The wait of its denial has ended this long ago.
    Retry(Duration),
}

impl<'p> TurnRequest<'p> {
    pub(crate) fn new(
        pacer: &'p PacerState,
        limiter: Option<&'p AnyLimiter>,
        cost: u64,
        others: OtherUnits,
        max_wait: Duration,
    ) -> Self {
        Self {
            pacer,
            limiter,
            cost,
            units: OpenUnits::new(others),
            max_wait,
            wait_start: None,
            is_queued: false,
        }
    }

    fn cost(&self) -> Cost<'_> {
        let units = self.units.as_deref();
        Cost {
            requests: self.cost,
            others: units.map_or(&[], OpenUnits::units),
        }
    }

    /// Keeps the receipt of a charge, if it is to be settled.
    fn keep_receipt(&mut self, decision: &Decision) {
        if let Some(units) = &mut self.units
            && self.pacer.units_of_limits.is_some()
        {
            units.keep_receipt(self.limiter, decision);
        }
    }

    fn wait_start(&mut self) -> Instant {
        *self.wait_start.get_or_insert_with(Instant::now)
    }

    /// Reports to the observer that this request waits, at most once.
    fn report_queued(&mut self) {
        if !mem::replace(&mut self.is_queued, true) {
            self.pacer.report(PacerEvent::Queued);
        }
    }

    fn deadline(&mut self) -> Instant {
        self.wait_start() + self.max_wait.min(FOREVER)
    }

    /// Waits for the turn. Returns the request, now in flight, and the time waited.
    pub(crate) async fn turn(
        &mut self,
        destination: &Destination,
    ) -> Result<(SentRequest, Duration), PacerError> {
        let now = self.pacer.clock.now();
        let state = self.pacer.destinations.state_of(destination, now)?;
        let entry = QueueEntry::enter(&state.queued, self.pacer.max_queue)
            .ok_or_else(|| PacerError::queue_full(self.pacer.max_queue, destination))?;
        // The waits below are boxed: the future of a request that need not wait stays small. Trying
        // to acquire a permit fails while others wait for one, so nobody overtakes.
        let head = match state.head_permit.try_acquire() {
            Ok(head) => head,
            Err(_) => Box::pin(self.become_head(&state)).await?,
        };
        let permit = match self.try_in_flight_permit(&state) {
            Some(permit) => permit,
            None => Box::pin(self.in_flight_permit(&state)).await?,
        };
        let has_waited = self.wait_start.is_some();
        let immediate = if has_waited {
            Immediate::Later(None)
        } else {
            self.send_now(&state, now)
        };
        let sent = match immediate {
            Immediate::Sent(sent) => sent,
            Immediate::Later(answer) => Box::pin(self.send_as_head(&state, answer)).await?,
        };
        // The next request becomes the head of the queue.
        drop(head);
        drop(entry);
        let waited = self.wait_start.as_ref();
        let waited = waited.map_or(Duration::ZERO, Instant::elapsed);
        let units = self.units.take();
        let request = SentRequest::new(state, sent, self.cost, units, permit);
        self.pacer.report(PacerEvent::Sent { waited });
        Ok((request, waited))
    }

    /// Sends without waiting, if possible.
    fn send_now(&mut self, state: &DestinationState, now: Timestamp) -> Immediate<LimiterFuture> {
        let Some(limiter) = self.limiter else {
            return self
                .send(state, now)
                .map_or(Immediate::Later(None), Immediate::Sent);
        };
        if state.memory().learned.hold(now, self.cost()).is_some() {
            return Immediate::Later(None);
        }
        let answer = (self.pacer).charge(limiter, &state.key, self.cost(), Duration::ZERO);
        let is_charged = match &answer {
            Pending::Ready(Ok(decision)) if decision.outcome() == Outcome::Allowed => {
                self.keep_receipt(decision);
                true
            }
            _ => false,
        };
        match is_charged.then(|| self.send(state, now)).flatten() {
            Some(sent) => Immediate::Sent(sent),
            None if is_charged => Immediate::Later(None),
            None => Immediate::Later(Some(answer)),
        }
    }

    /// Sends, unless something holds requests back by now.
    fn send(&mut self, state: &DestinationState, now: Timestamp) -> Option<SentUnits> {
        let mut memory = state.memory();
        if memory.learned.hold(now, self.cost()).is_some() {
            return None;
        }
        memory.head_waits = false;
        let sent = memory.learned.send(now, self.cost);
        if let Some(units) = &mut self.units {
            units.send(&mut memory.learned, now, sent.number);
        }
        drop(memory);
        state.budget().deposit(now);
        Some(sent)
    }

    /// Waits for all earlier requests of the queue.
    async fn become_head<'s>(
        &mut self,
        state: &'s DestinationState,
    ) -> Result<SemaphorePermit<'s>, PacerError> {
        self.check_timer(state)?;
        // Fails at once if the pause outlasts this request's time.
        let begins = state.memory().learned.resumes_at(self.pacer.clock.now());
        if let Some(until) = begins {
            self.check(state, Hold::Paused(until))?;
        }
        self.report_queued();
        match timeout_at(self.deadline(), state.head_permit.acquire()).await {
            Ok(Ok(head)) => Ok(head),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(self.too_late(state)),
        }
    }

    /// A permit to be in flight, if one is free; `Some(None)` without a bound.
    fn try_in_flight_permit(
        &self,
        state: &DestinationState,
    ) -> Option<Option<OwnedSemaphorePermit>> {
        match &state.in_flight_permits {
            None => Some(None),
            Some(permits) => Arc::clone(permits).try_acquire_owned().ok().map(Some),
        }
    }

    /// Waits for a permit to be in flight.
    async fn in_flight_permit(
        &mut self,
        state: &DestinationState,
    ) -> Result<Option<OwnedSemaphorePermit>, PacerError> {
        let Some(permits) = &state.in_flight_permits else {
            return Ok(None);
        };
        self.check_timer(state)?;
        self.report_queued();
        match timeout_at(self.deadline(), Arc::clone(permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            Ok(Err(_)) | Err(_) => Err(self.too_late(state)),
        }
    }

    /// Waits as the head of the queue. Acquires the units last, so that no waiting request holds
    /// any. `answer` is the limiter's response, if it was already called.
    async fn send_as_head(
        &mut self,
        state: &DestinationState,
        mut answer: Option<Pending<LimiterFuture>>,
    ) -> Result<SentUnits, PacerError> {
        self.wait_start();
        let mut late = Duration::ZERO;
        loop {
            if answer.is_none() {
                self.until_nothing_holds(state).await?;
                answer = self
                    .limiter
                    .map(|limiter| (self.pacer).charge(limiter, &state.key, self.cost(), late));
            }
            let result = match answer.take() {
                Some(answer) => self.until_charged(state, answer).await?,
                None => HeadResult::Charged,
            };
            late = match result {
                HeadResult::Retry(late) => late,
                HeadResult::Charged => Duration::ZERO,
            };
            // Meanwhile a response may have arrived that holds requests back. The charged units are
            // lost then, which is the safe side.
            if let HeadResult::Charged = result
                && let Some(sent) = self.send(state, self.pacer.clock.now())
            {
                return Ok(sent);
            }
        }
    }

    async fn until_nothing_holds(&mut self, state: &DestinationState) -> Result<(), PacerError> {
        loop {
            let now = self.pacer.clock.now();
            let Some(hold) = self.hold_as_head(state, now, false) else {
                return Ok(());
            };
            let wait = self.check(state, hold)?;
            self.check_timer(state)?;
            self.report_queued();
            // A response may shorten the wait, or extend it beyond this request's time.
            let end = self.instant_in(wait);
            let _ = timeout_at(end, state.changed.notified()).await;
        }
    }

    /// The reason why the head of the queue waits. While it exists, or while `waits` is set,
    /// responses wake the head.
    fn hold_as_head(&self, state: &DestinationState, now: Timestamp, waits: bool) -> Option<Hold> {
        let mut memory = state.memory();
        let hold = memory.learned.hold(now, self.cost());
        memory.head_waits = waits || hold.is_some();
        hold
    }

    /// Waits as the head of the queue for the time that the limiter returned. Returns how late the timer was.
    ///
    /// # Errors
    ///
    /// When a response holds requests back for longer than this request's time.
    async fn sleep_as_head(
        &mut self,
        state: &DestinationState,
        wait: Duration,
    ) -> Result<Duration, PacerError> {
        self.check_timer(state)?;
        self.report_queued();
        let end = Instant::now() + wait.min(FOREVER);
        loop {
            let now = self.pacer.clock.now();
            if let Some(hold) = self.hold_as_head(state, now, true) {
                self.check(state, hold)?;
            }
            if timeout_at(end, state.changed.notified()).await.is_err() {
                return Ok(end.elapsed());
            }
        }
    }

    /// The remaining wait.
    ///
    /// # Errors
    ///
    /// When it exceeds this request's time.
    fn check(&mut self, state: &DestinationState, hold: Hold) -> Result<Duration, PacerError> {
        let wait = between(self.pacer.clock.now(), hold.until());
        if wait <= self.left() {
            return Ok(wait.max(SHORTEST_SLEEP));
        }
        Err(match hold {
            Hold::Paused(_) => PacerError::paused(wait, &state.destination),
            Hold::Spent(_) => {
                PacerError::wait_too_long(Some(wait), self.max_wait, &state.destination)
            }
        })
    }

    async fn until_charged(
        &mut self,
        state: &DestinationState,
        answer: Pending<LimiterFuture>,
    ) -> Result<HeadResult, PacerError> {
        // The limiter bounds its own time. Cancelled here, the units would be lost.
        let decision = answer.into_future().await;
        let decision = decision.map_err(|error| PacerError::limiter(error, &state.destination))?;
        self.keep_receipt(&decision);
        match decision.outcome() {
            Outcome::Allowed => Ok(HeadResult::Charged),
            Outcome::Delayed(delay) => self.until_slot(state, &decision, delay).await,
            // A denial.
            _ => self.until_denial_ends(state, &decision).await,
        }
    }

    /// Waits for the booked slot of a leaky bucket.
    async fn until_slot(
        &mut self,
        state: &DestinationState,
        booked: &Decision,
        delay: Duration,
    ) -> Result<HeadResult, PacerError> {
        let slot = if delay > self.left() {
            Err(PacerError::wait_too_long(
                Some(delay),
                self.max_wait,
                &state.destination,
            ))
        } else {
            self.sleep_as_head(state, delay).await
        };
        if slot.is_err() {
            // Without a refund, each call that cannot wait would move the slots of others.
            if let Some(limiter) = self.limiter {
                let most = self.cost().most();
                let refund = limiter.refund(&state.key, most, Some(booked.receipt()));
                let _ = refund.await;
            }
        }
        slot.map(|_| HeadResult::Charged)
    }

    async fn until_denial_ends(
        &mut self,
        state: &DestinationState,
        denial: &Decision,
    ) -> Result<HeadResult, PacerError> {
        let destination = &state.destination;
        let Some(wait) = denial.retry_after() else {
            let margin = self.pacer.margin;
            return Err(PacerError::cannot_fit(
                self.pacer.cost_of_denied(denial, self.cost()),
                denial,
                margin,
                destination,
            ));
        };
        if wait > self.left() {
            return Err(PacerError::wait_too_long(
                Some(wait),
                self.max_wait,
                destination,
            ));
        }
        let wait = wait.max(SHORTEST_SLEEP);
        let late = self.sleep_as_head(state, wait).await?;
        Ok(HeadResult::Retry(late))
    }

    /// Checks that the request can wait.
    fn check_timer(&self, state: &DestinationState) -> Result<(), PacerError> {
        if has_timer() {
            return Ok(());
        }
        Err(PacerError::no_timer(&state.destination))
    }

    fn too_late(&self, state: &DestinationState) -> PacerError {
        PacerError::wait_too_long(None, self.max_wait, &state.destination)
    }

    /// The rest of this request's time; unlimited if it may wait forever.
    fn left(&mut self) -> Duration {
        if self.max_wait >= FOREVER {
            return Duration::MAX;
        }
        self.deadline().saturating_duration_since(Instant::now())
    }

    fn instant_in(&mut self, wait: Duration) -> Instant {
        (Instant::now() + wait.min(FOREVER)).min(self.deadline())
    }
}

/// An entry of the queue, removed when dropped.
pub(crate) struct QueueEntry<'s>(&'s AtomicUsize);

impl<'s> QueueEntry<'s> {
    /// Enters a queue of this length, unless it has `most` entries.
    pub(crate) fn enter(queued: &'s AtomicUsize, most: usize) -> Option<Self> {
        let increment = |waiting| (waiting < most).then_some(waiting + 1);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let entered = queued.fetch_update(success, failure, increment);
        // `then_some` would drop an entry that was never made, and decrement the count.
        entered.is_ok().then(|| Self(queued))
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
