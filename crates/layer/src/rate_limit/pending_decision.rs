//! Deferred decisions: requests that the limiter's first answer does not settle.
//!
//! In: the charge of a request, with the limiter's first answer if there is one. Out: the decision about it, with what it
//! has waited (`DecisionTrace`). `decide.rs` makes an outcome of it.
//!
//! 1. `begin` keeps a request behind those that wait for its key already (`waiting.rs`). If that key was blocked, a peek
//!    shows whether it still is.
//! 2. `on_answer` goes from each answer to a `NextStep`. An allowed request passes; a leaky bucket may delay it. A denied
//!    one may exceed the limit, if the elastic layer allows that, or it joins a queue.
//! 3. The head of a queue sleeps until its denial is over and is charged again (`Retry`); the others wait until they are
//!    the head (`Queue`). A request that is denied for longer than it may wait leaves (`requeue`).
//! 4. A request that does not pass may need one more operation (`deny`): `Op::Deny` where a denial may start a block, or a
//!    peek for the denial that its response shows.
//!
//! `try_now` runs all steps that take no time, and `finish` the others in a future.
//!
//! Example: an elastic layer whose closure returns true, and a denied request whose response charges nothing. The next step
//! is `Op::Hit`, which charges beyond the limit, and the request passes with a decision that has the excess.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    admission::Admission,
    request_charges::{ChargeRequest, DecisionTrace, KeptCharges},
    waiting::{self, Enqueued, QueueAhead, QueuePosition, Waiting},
};
use crate::observe::event::Corrected;
use tower_ratelimit_core::{
    decision::Decision,
    error::{LimiterError, LimiterErrorKind},
    limiter::{
        call::{Call, OpRef},
        limiter::{Limiter, Pending},
    },
};

/// The state of a decision that takes several steps.
pub(super) struct PendingDecision {
    /// When the limiter got the last operation; `None` without an observer.
    sent: Option<Instant>,
    trace: DecisionTrace,
    /// Whether the limiter rejected [`Op::Reserve`] and got [`Op::Acquire`] then.
    acquires: bool,
    /// Whether the elastic layer's closure was called, which is once for each request.
    probed: bool,
    /// The limiter's denial, if it has denied.
    denial: Option<Decision>,
    /// The queue that the request could not join, and must not overtake.
    ahead: Option<QueueAhead>,
    position: Option<QueuePosition>,
    /// How long ago the wait of the queue's head has ended.
    late: Duration,
}

pub(super) enum NextStep<F> {
    /// Take the limiter's answer, now or when it arrives.
    Answer(Purpose, Pending<F>),
    /// Wait in the queue until the request is the head, then request the charge.
    Queue,
    /// Sleep as the head of the queue, then request the charge.
    Retry(Duration),
    Delay(Decision),
    Done(Result<Decision, LimiterError>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Pass,
    /// Reads whether a key is still blocked, before the request joins its queue.
    Join,
    /// Charges a request that passes despite a denial.
    Exceed,
    /// Reads or reports the denial of a request that does not pass.
    Deny,
}

impl PendingDecision {
    pub(super) const fn new(charge: ChargeRequest<'_>) -> Self {
        Self {
            sent: charge.started,
            trace: DecisionTrace::DIRECT,
            acquires: false,
            probed: false,
            denial: None,
            ahead: None,
            position: None,
            late: Duration::ZERO,
        }
    }

    pub(super) const fn trace(&self) -> &DecisionTrace {
        &self.trace
    }

    /// Runs all steps that take no time, from the limiter's first answer or, without one, from the
    /// start.
    pub(super) fn try_now<L: Limiter, R>(
        &mut self,
        answer: Option<Pending<L::Future>>,
        admission: &Admission<L, R>,
        charge: ChargeRequest<'_>,
    ) -> NextStep<L::Future> {
        let mut steps = self.steps(admission, charge);
        let mut next = match answer {
            Some(answer) => NextStep::Answer(Purpose::Pass, answer),
            None => steps.begin(),
        };
        while let NextStep::Answer(purpose, Pending::Ready(answer)) = next {
            next = steps.on_answer(purpose, answer);
        }
        next
    }

    pub(super) async fn finish<L: Limiter, R>(
        &mut self,
        mut next: NextStep<L::Future>,
        admission: &Admission<L, R>,
        kept: &KeptCharges,
    ) -> Result<Decision, LimiterError> {
        let charges = kept.as_refs();
        let mut steps = self.steps(admission, kept.request(&charges));
        loop {
            next = match next {
                NextStep::Answer(purpose, answer) => {
                    let answer = answer.await;
                    steps.on_answer(purpose, answer)
                }
                NextStep::Queue => {
                    if let Some(position) = &steps.state.position {
                        position.until_head().await;
                    }
                    steps.request_charge()
                }
                NextStep::Retry(wait) => {
                    steps.state.late = waiting::sleep(wait).await?;
                    steps.request_charge()
                }
                NextStep::Delay(decision) => {
                    let delay = decision.delay();
                    waiting::sleep(delay).await?;
                    let decision = decision.delayed_by(steps.state.trace.waited);
                    steps.state.trace.waited += delay;
                    return Ok(decision);
                }
                NextStep::Done(answer) => return answer,
            }
        }
    }

    const fn steps<'a, L: Limiter, R>(
        &'a mut self,
        admission: &'a Admission<L, R>,
        charge: ChargeRequest<'a>,
    ) -> Steps<'a, L, R> {
        Steps {
            state: self,
            admission,
            waiting: &admission.settings.waiting,
            charge,
        }
    }
}

struct Steps<'a, L, R> {
    state: &'a mut PendingDecision,
    admission: &'a Admission<L, R>,
    waiting: &'a Waiting,
    charge: ChargeRequest<'a>,
}

impl<L: Limiter, R> Steps<'_, L, R> {
    /// Begins with a request that must not overtake the queues of its key.
    fn begin(&mut self) -> NextStep<L::Future> {
        match self.waiting.blocked_queue(self.charge) {
            None => self.request_charge(),
            Some(true) => self.apply(Purpose::Join, OpRef::Peek),
            Some(false) => self.join(),
        }
    }

    fn join(&mut self) -> NextStep<L::Future> {
        if self.may_exceed() {
            return self.exceed();
        }
        match self.waiting.join(self.charge) {
            None => self.request_charge(),
            Some(enqueued) => self.queue(enqueued),
        }
    }

    /// Applies an operation at the cost of each limit.
    fn apply(&mut self, purpose: Purpose, op: fn(u64) -> OpRef<'static>) -> NextStep<L::Future> {
        let charges = self.charge.with(|own| op(own.units()));
        self.call(purpose, &Call::of(charges.as_slice()))
    }

    fn call(&mut self, purpose: Purpose, call: &Call<'_>) -> NextStep<L::Future> {
        self.state.sent = self.charge.started.map(|_| Instant::now());
        NextStep::Answer(purpose, self.admission.limiter.call(call))
    }

    fn request_charge(&mut self) -> NextStep<L::Future> {
        let late = mem::take(&mut self.state.late);
        let charges = self.charge.with(|own| match own {
            OpRef::Reserve(cost) => self.admission.charge_op(cost),
            at_once => at_once,
        });
        self.call(Purpose::Pass, &Call::of(charges.as_slice()).late(late))
    }

    fn on_answer(
        &mut self,
        purpose: Purpose,
        answer: Result<Decision, LimiterError>,
    ) -> NextStep<L::Future> {
        if let Some(sent) = self.state.sent {
            *self.state.trace.latency.get_or_insert_default() += sent.elapsed();
        }
        if self.state.acquires && answer.is_ok() {
            self.admission.reserves.store(false, Ordering::Relaxed);
        }
        match (purpose, answer) {
            (Purpose::Pass, Err(error)) if self.may_acquire(&error) => {
                self.state.acquires = true;
                self.apply(Purpose::Pass, OpRef::Acquire)
            }
            (Purpose::Pass | Purpose::Join, Err(error)) => NextStep::Done(Err(error)),
            (Purpose::Pass, Ok(decision)) if decision.is_allowed() => self.pass(decision),
            (Purpose::Pass | Purpose::Join, Ok(decision)) if decision.is_denied() => {
                self.on_denial(decision)
            }
            (Purpose::Pass | Purpose::Join, Ok(_)) => self.join(),
            (Purpose::Exceed, answer) => self.on_exceeded(answer),
            (Purpose::Deny, answer) => self.on_denied(answer),
        }
    }

    fn revises_denials(&self) -> bool {
        self.admission.revises_denials(self.charge.limits())
    }

    /// Whether the response may correct the charge.
    fn corrects(&self) -> bool {
        self.admission.settings.corrects(self.charge.limits())
    }

    fn unmeasured(&self) -> Decision {
        self.admission.unmeasured(self.charge.charges)
    }

    /// Whether a limiter with this error may support [`Op::Acquire`], if not [`Op::Reserve`].
    fn may_acquire(&self, error: &LimiterError) -> bool {
        let reserves = self.revises_denials() || self.admission.overflows() || self.corrects();
        error.kind() == LimiterErrorKind::Unsupported && reserves && !self.state.acquires
    }

    fn pass(&mut self, decision: Decision) -> NextStep<L::Future> {
        if let Some(position) = self.state.position.take() {
            self.state.trace.waited = position.waited();
            position.pass();
        }
        if self.admission.responder.is_shadow() {
            return NextStep::Done(Ok(decision));
        }
        if decision.delay().is_zero() {
            return NextStep::Done(Ok(decision.delayed_by(self.state.trace.waited)));
        }
        NextStep::Delay(decision)
    }

    /// The step of a request that the limiter denies: it may exceed the limit, or wait.
    fn on_denial(&mut self, denial: Decision) -> NextStep<L::Future> {
        if !self.revises_denials() {
            return NextStep::Done(Ok(denial));
        }
        let position = self.state.position.take();
        if position.is_none() && !denial.is_blocked() && self.may_exceed() {
            self.state.denial = Some(denial);
            return self.exceed();
        }
        let waited = position.as_ref().map(QueuePosition::waited);
        self.state.trace.waited = waited.unwrap_or_default();
        let longest = self.waiting.longest(&denial, self.charge);
        let longest = longest.unwrap_or_default();
        let left = longest.saturating_sub(self.state.trace.waited);
        let enqueued = (self.waiting).enqueue(position, self.charge, &denial, left);
        self.state.denial = Some(denial);
        self.queue(enqueued)
    }

    fn queue(&mut self, enqueued: Enqueued) -> NextStep<L::Future> {
        match enqueued {
            Enqueued::Head(position, wait) => {
                self.state.position = Some(position);
                NextStep::Retry(wait)
            }
            Enqueued::Behind(position) => {
                self.state.position = Some(position);
                NextStep::Queue
            }
            Enqueued::Refused(ahead) => {
                self.state.ahead = ahead;
                self.deny()
            }
        }
    }

    /// Whether the elastic layer allows the request.
    fn may_exceed(&mut self) -> bool {
        let elastic = self.admission.settings.elastic.as_ref();
        !mem::replace(&mut self.state.probed, true) && elastic.is_some_and(|allows| allows())
    }

    /// Passes the request despite a denial. A charge that depends on the response is left to that.
    fn exceed(&mut self) -> NextStep<L::Future> {
        self.state.trace.exceeds = true;
        if !self.corrects() {
            return self.apply(Purpose::Exceed, OpRef::Hit);
        }
        match self.known_denial() {
            Some(denial) => NextStep::Done(Ok(denial.into_excess())),
            None => self.apply(Purpose::Exceed, OpRef::Peek),
        }
    }

    fn on_exceeded(&mut self, answer: Result<Decision, LimiterError>) -> NextStep<L::Future> {
        let (decision, error) = match answer {
            Ok(decision) => {
                let error = decision.error().cloned();
                (decision.into_excess(), error)
            }
            Err(error) => {
                let denial = self.known_denial();
                let decision = denial.map_or_else(|| self.unmeasured(), Decision::into_excess);
                (decision, Some(Arc::new(error)))
            }
        };
        if error.is_some() {
            self.admission.report_corrected(Corrected {
                decision: &decision,
                charges: self.charge.charges,
                before: 0,
                after: 0,
                kept_by_each: &[],
                source: None,
                forgotten_by_each: &[],
                error: error.as_deref(),
            });
        }
        NextStep::Done(Ok(decision))
    }

    /// The request's denial, or that of the head of its queue.
    fn known_denial(&mut self) -> Option<Decision> {
        let own = self.state.denial.take();
        own.or_else(|| self.waiting.denial_of_head(self.charge))
    }

    /// Denies the request. The limiter gets the denial if it may start a block, and reports one if the
    /// request has none yet.
    fn deny(&mut self) -> NextStep<L::Future> {
        let may_block = self.admission.blocks(self.charge.limits())
            && !self.admission.overflows()
            && !self.corrects();
        let reports = may_block && self.admission.reserves.load(Ordering::Relaxed);
        match self.state.denial.take() {
            Some(denial) if !reports || denial.is_blocked() => self.done(denial),
            denial => {
                self.state.denial = denial;
                self.apply(
                    Purpose::Deny,
                    if reports { OpRef::Deny } else { OpRef::Peek },
                )
            }
        }
    }

    fn on_denied(&mut self, answer: Result<Decision, LimiterError>) -> NextStep<L::Future> {
        match answer {
            Ok(decision) if decision.is_denied() => self.done(decision),
            Ok(decision) => match self.state.denial.take() {
                // Units came meanwhile: they are for a request that may be queued.
                Some(denial) => self.done(denial),
                None if self.state.ahead.is_some() => self.done(decision),
                None => self.request_charge(),
            },
            Err(error) => match self.known_denial() {
                Some(denial) => self.done(denial),
                None if error.kind() != LimiterErrorKind::Unsupported => NextStep::Done(Err(error)),
                None if self.state.ahead.is_some() => self.done(self.unmeasured()),
                None => self.request_charge(),
            },
        }
    }

    /// Completes a denial, which lasts for the wait of the queue ahead.
    fn done(&mut self, denial: Decision) -> NextStep<L::Future> {
        let ahead = self.state.ahead.take();
        let ahead = ahead.filter(|ahead| denial.is_allowed() || !ahead.wait.is_zero());
        let Some(QueueAhead { limit, quota, wait }) = ahead else {
            return NextStep::Done(Ok(denial));
        };
        let place = denial.quotas.places_of(limit).start + quota;
        NextStep::Done(Ok(denial.denied_for(place, wait)))
    }
}
