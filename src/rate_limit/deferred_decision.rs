//! Deferred decisions: requests that the limiter's first answer does not settle.

use std::{
    mem,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{
    admission::Admission,
    charge_request::{ChargeRequestRef, DecisionTrace},
    waiting::{self, Enqueued, QueueAhead, QueuePosition, QueueWait, Requeued},
};
use crate::{
    decision::{Decision, Op},
    error::{LimiterError, LimiterErrorKind},
    limiter::{Limiter, Pending},
    observe::Corrected,
};

/// The state of a decision that takes several steps.
pub(super) struct DeferredDecision {
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
    /// Sleep for the delay of this decision, and pass.
    Delay(Decision),
    /// The decision is complete.
    Done(Result<Decision, LimiterError>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Charges the request.
    Pass,
    /// Reads whether a key is still blocked, before the request joins its queue.
    Join,
    /// Charges a request that passes despite a denial.
    Exceed,
    /// Reads or reports the denial of a request that does not pass.
    Deny,
}

impl DeferredDecision {
    pub(super) const fn new(charge: ChargeRequestRef<'_>) -> Self {
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
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        let mut next = match answer {
            Some(answer) => NextStep::Answer(Purpose::Pass, answer),
            None => self.begin(admission, charge),
        };
        while let NextStep::Answer(purpose, Pending::Ready(answer)) = next {
            next = self.on_answer(purpose, answer, admission, charge);
        }
        next
    }

    /// Runs all other steps.
    pub(super) async fn finish<L: Limiter, R>(
        &mut self,
        mut next: NextStep<L::Future>,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> Result<Decision, LimiterError> {
        loop {
            next = match next {
                NextStep::Answer(purpose, answer) => {
                    let answer = answer.await;
                    self.on_answer(purpose, answer, admission, charge)
                }
                NextStep::Queue => {
                    if let Some(position) = &self.position {
                        position.until_head().await;
                    }
                    self.request_charge(admission, charge)
                }
                NextStep::Retry(wait) => {
                    self.late = waiting::sleep(wait).await?;
                    // An earlier request may have moved into the queue meanwhile.
                    NextStep::Queue
                }
                NextStep::Delay(decision) => {
                    let delay = decision.delay();
                    waiting::sleep(delay).await?;
                    let decision = decision.delayed_by(self.trace.waited);
                    self.trace.waited += delay;
                    return Ok(decision);
                }
                NextStep::Done(answer) => return answer,
            }
        }
    }

    /// Begins with a request that must not overtake the queues of its key.
    fn begin<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        match admission.settings.waiting.blocked_queue(charge) {
            None => self.request_charge(admission, charge),
            Some(true) => self.apply(Purpose::Join, Op::Peek(charge.cost), admission, charge),
            Some(false) => self.join(admission, charge),
        }
    }

    fn join<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        if self.may_exceed(admission) {
            return self.exceed(admission, charge);
        }
        match admission.settings.waiting.join(charge) {
            None => self.request_charge(admission, charge),
            Some(enqueued) => self.queue(enqueued, admission, charge),
        }
    }

    fn apply<L: Limiter, R>(
        &mut self,
        purpose: Purpose,
        op: Op,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        self.sent = charge.started.map(|_| Instant::now());
        NextStep::Answer(purpose, admission.apply(charge, op))
    }

    fn request_charge<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        let op = admission.charge_op(charge.cost);
        let late = mem::take(&mut self.late);
        if late.is_zero() {
            return self.apply(Purpose::Pass, op, admission, charge);
        }
        self.sent = charge.started.map(|_| Instant::now());
        NextStep::Answer(
            Purpose::Pass,
            (admission.limiter).apply_late(charge.tier, charge.key, &[op], late),
        )
    }

    fn on_answer<L: Limiter, R>(
        &mut self,
        purpose: Purpose,
        answer: Result<Decision, LimiterError>,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        if let Some(sent) = self.sent {
            *self.trace.latency.get_or_insert_default() += sent.elapsed();
        }
        if self.acquires && answer.is_ok() {
            admission.reserves.store(false, Ordering::Relaxed);
        }
        match (purpose, answer) {
            (Purpose::Pass, Err(error)) if self.may_acquire(&error, admission) => {
                self.acquires = true;
                self.apply(Purpose::Pass, Op::Acquire(charge.cost), admission, charge)
            }
            (Purpose::Pass | Purpose::Join, Err(error)) => NextStep::Done(Err(error)),
            (Purpose::Pass, Ok(decision)) if decision.is_allowed() => {
                self.pass(decision, admission)
            }
            (Purpose::Pass | Purpose::Join, Ok(decision)) if decision.is_denied() => {
                self.on_denial(decision, admission, charge)
            }
            (Purpose::Pass | Purpose::Join, Ok(_)) => self.join(admission, charge),
            (Purpose::Exceed, answer) => self.on_exceeded(answer, admission, charge),
            (Purpose::Deny, answer) => self.on_denied(answer, admission, charge),
        }
    }

    /// Whether a limiter with this error may support [`Op::Acquire`], if not [`Op::Reserve`].
    fn may_acquire<L: Limiter, R>(
        &self,
        error: &LimiterError,
        admission: &Admission<L, R>,
    ) -> bool {
        let reserves = admission.revises_denials() || admission.overflows || admission.corrects();
        error.kind() == LimiterErrorKind::Unsupported && reserves && !self.acquires
    }

    /// The step of a request that the limiter allows.
    fn pass<L: Limiter, R, F>(
        &mut self,
        decision: Decision,
        admission: &Admission<L, R>,
    ) -> NextStep<F> {
        if let Some(position) = self.position.take() {
            self.trace.waited = position.waited();
            position.pass();
        }
        if admission.responder().is_shadow() {
            return NextStep::Done(Ok(decision));
        }
        if decision.delay().is_zero() {
            return NextStep::Done(Ok(decision.delayed_by(self.trace.waited)));
        }
        NextStep::Delay(decision)
    }

    /// The step of a request that the limiter denies: it may exceed the limit, or wait.
    fn on_denial<L: Limiter, R>(
        &mut self,
        denial: Decision,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        if !admission.revises_denials() {
            return NextStep::Done(Ok(denial));
        }
        if let Some(position) = self.position.take() {
            return self.requeue(position, denial, admission, charge);
        }
        if !denial.is_blocked() && self.may_exceed(admission) {
            self.denial = Some(denial);
            return self.exceed(admission, charge);
        }
        let retry_after = denial.retry_after();
        let enqueued = admission.settings.waiting.enqueue(charge, &denial);
        self.denial = Some(denial);
        match (enqueued, retry_after) {
            (Enqueued::Head(position), Some(wait)) => {
                self.position = Some(position);
                NextStep::Retry(wait)
            }
            (enqueued, _) => self.queue(enqueued, admission, charge),
        }
    }

    /// The step of a queued request that is denied again.
    fn requeue<L: Limiter, R>(
        &mut self,
        mut position: QueuePosition,
        denial: Decision,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        let longest = admission
            .settings
            .waiting
            .longest(&denial)
            .unwrap_or_default();
        let left = longest.saturating_sub(position.waited());
        if let Some(wait) = denial.retry_after().filter(|wait| *wait <= left) {
            let requeued =
                (admission.settings.waiting).denied(&mut position, charge, &denial, left);
            let next = match requeued {
                Requeued::Head => Some(NextStep::Retry(wait)),
                Requeued::Behind => Some(NextStep::Queue),
                Requeued::Refused(ahead) => {
                    self.ahead = Some(ahead);
                    None
                }
            };
            if let Some(next) = next {
                self.position = Some(position);
                return next;
            }
        }
        self.trace.waited = position.waited();
        drop(position);
        self.denial = Some(denial);
        self.deny(admission, charge)
    }

    fn queue<L: Limiter, R>(
        &mut self,
        enqueued: Enqueued,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        match enqueued {
            Enqueued::Head(position) | Enqueued::Behind(position) => {
                self.position = Some(position);
                NextStep::Queue
            }
            Enqueued::Refused(ahead) => {
                self.ahead = ahead;
                self.deny(admission, charge)
            }
        }
    }

    /// Whether the elastic layer allows the request.
    fn may_exceed<L: Limiter, R>(&mut self, admission: &Admission<L, R>) -> bool {
        let elastic = admission.settings.elastic.as_ref();
        !mem::replace(&mut self.probed, true) && elastic.is_some_and(|allows| allows())
    }

    /// Passes the request despite a denial. A charge that depends on the response is left to that.
    fn exceed<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        self.trace.exceeds = true;
        if !admission.corrects() {
            return self.apply(Purpose::Exceed, Op::Hit(charge.cost), admission, charge);
        }
        match self.known_denial(admission, charge) {
            Some(denial) => NextStep::Done(Ok(denial.into_excess())),
            None => self.apply(Purpose::Exceed, Op::Peek(charge.cost), admission, charge),
        }
    }

    fn on_exceeded<L: Limiter, R>(
        &mut self,
        answer: Result<Decision, LimiterError>,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        NextStep::Done(Ok(match answer {
            Ok(decision) => decision.into_excess(),
            Err(error) => {
                let denial = self.known_denial(admission, charge);
                let decision = denial.map_or_else(|| admission.unmeasured(), Decision::into_excess);
                admission.report_corrected(Corrected {
                    decision: &decision,
                    key: charge.key,
                    before: 0,
                    after: 0,
                    kept_by_each: &[],
                    spent: None,
                    error: Some(&error),
                });
                decision
            }
        }))
    }

    /// The request's denial, or that of the head of its queue.
    fn known_denial<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> Option<Decision> {
        let own = self.denial.take();
        own.or_else(|| admission.settings.waiting.denial_of_head(charge))
    }

    /// Denies the request. The limiter gets the denial if it may start a block, and reports one if the
    /// request has none yet.
    fn deny<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        let may_block = admission.blocks && !admission.overflows && !admission.corrects();
        let reports = may_block && admission.reserves.load(Ordering::Relaxed);
        match self.denial.take() {
            Some(denial) if !reports || denial.is_blocked() => self.done(denial),
            denial => {
                self.denial = denial;
                let op = if reports {
                    Op::Deny(charge.cost)
                } else {
                    Op::Peek(charge.cost)
                };
                self.apply(Purpose::Deny, op, admission, charge)
            }
        }
    }

    fn on_denied<L: Limiter, R>(
        &mut self,
        answer: Result<Decision, LimiterError>,
        admission: &Admission<L, R>,
        charge: ChargeRequestRef<'_>,
    ) -> NextStep<L::Future> {
        match answer {
            Ok(decision) if decision.is_denied() => self.done(decision),
            Ok(decision) => match self.denial.take() {
                // Units came meanwhile: they are for a request that may be queued.
                Some(denial) => self.done(denial),
                None if self.ahead.is_some() => self.done(decision),
                None => self.request_charge(admission, charge),
            },
            Err(error) => match self.known_denial(admission, charge) {
                Some(denial) => self.done(denial),
                None if error.kind() != LimiterErrorKind::Unsupported => NextStep::Done(Err(error)),
                None if self.ahead.is_some() => self.done(admission.unmeasured()),
                None => self.request_charge(admission, charge),
            },
        }
    }

    /// Completes a denial, which lasts for the wait of the queue ahead.
    fn done<F>(&mut self, denial: Decision) -> NextStep<F> {
        let ahead = self.ahead.take();
        let ahead = ahead.filter(|ahead| denial.is_allowed() || !ahead.wait.wait.is_zero());
        let Some(QueueAhead { limit, wait }) = ahead else {
            return NextStep::Done(Ok(denial));
        };
        let QueueWait { quota, wait } = wait;
        let place = denial.places_of(limit).start + quota;
        NextStep::Done(Ok(denial.denied_for(place, wait)))
    }
}
