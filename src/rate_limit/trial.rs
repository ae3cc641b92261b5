//! Trials: how a request is decided about that the limiter's first answer does not settle.

use std::time::{Duration, Instant};

use super::{
    admission::Admission,
    demand::{Course, DemandRef},
    wait::{self, DeniedAgain, Entered, LineAhead, LinePlace},
};
use crate::{
    decision::Decision,
    decision::Op,
    error::{LimiterError, LimiterErrorKind},
    limiter::{Limiter, Pending},
};

/// The attempts to let a request pass.
#[derive(Default)]
pub(super) struct Trial {
    /// When the limiter was last asked; only kept for an observer.
    asked_at: Option<Instant>,
    course: Course,
    /// Whether the limiter did not know how to reserve, and was asked to take units at once.
    acquires: bool,
    /// Whether the elastic layer's probe was asked: it is once for each request.
    probed: bool,
    /// The limiter's denial, if it was asked.
    denial: Option<Decision>,
    /// The line that has no place for the request, and is not to be overtaken.
    line: Option<LineAhead>,
    place: Option<LinePlace>,
}

/// The next step of a trial.
pub(super) enum NextStep<F> {
    /// The limiter's answer, which is here or on its way.
    Answer(Purpose, Pending<F>),
    /// The request stands in line until it is the head, and asks then.
    Stand,
    /// The request is the head, and asks again after this time.
    Retry(Duration),
    /// It passes after the decision's own delay.
    Turn(Decision),
    /// The trial is over.
    Done(Result<Decision, LimiterError>),
}

/// Why the limiter was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For the units that the request costs.
    Pass,
    /// For a look, before the request joins the line of a key that was blocked.
    Join,
    /// To charge a request that passes in spite of a denial.
    Exceed,
    /// For the last word on one that does not pass.
    Deny,
}

impl Trial {
    pub(super) fn new(demand: DemandRef<'_>) -> Self {
        Self {
            asked_at: demand.asked_at,
            ..Self::default()
        }
    }

    /// The way that the request took.
    pub(super) const fn course(&self) -> &Course {
        &self.course
    }

    /// Tries what the layer has to offer to a request that the first answer does not settle, as far as
    /// that takes no time; without an answer the limiter is not asked yet.
    pub(super) fn try_now<L: Limiter, R>(
        &mut self,
        answer: Option<Pending<L::Future>>,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        let next = match answer {
            Some(answer) => NextStep::Answer(Purpose::Pass, answer),
            None => self.begin(admission, demand),
        };
        self.run(next, admission, demand)
    }

    /// Goes on as long as answers are there at once.
    fn run<L: Limiter, R>(
        &mut self,
        mut next: NextStep<L::Future>,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        while let NextStep::Answer(asked, Pending::Ready(answer)) = next {
            next = self.hear(asked, answer, admission, demand);
        }
        next
    }

    /// Goes on to the end.
    pub(super) async fn finish<L: Limiter, R>(
        &mut self,
        mut next: NextStep<L::Future>,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> Result<Decision, LimiterError> {
        loop {
            next = match next {
                NextStep::Answer(asked, answer) => {
                    let answer = answer.await;
                    self.hear(asked, answer, admission, demand)
                }
                NextStep::Stand => {
                    if let Some(place) = &self.place {
                        place.until_head().await;
                    }
                    self.ask_to_pass(admission, demand)
                }
                NextStep::Retry(wait) => {
                    let slept = wait::sleep(wait).await;
                    slept.map_err(LimiterError::unavailable)?;
                    // Meanwhile one that came earlier may have moved into the line.
                    NextStep::Stand
                }
                NextStep::Turn(decision) => {
                    let delay = decision.delay();
                    let slept = wait::sleep(delay).await;
                    slept.map_err(LimiterError::unavailable)?;
                    let decision = decision.delayed_by(self.course.waited);
                    self.course.waited += delay;
                    return Ok(decision);
                }
                NextStep::Done(answer) => return answer,
            }
        }
    }

    /// Begins with a request that may have to stand behind others of its key: those are not to be
    /// overtaken.
    fn begin<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        match admission.room().blocked_line(demand) {
            None => self.ask_to_pass(admission, demand),
            Some(true) => self.ask(Purpose::Join, Op::Peek(demand.cost), admission, demand),
            Some(false) => self.join(admission, demand),
        }
    }

    fn join<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        if self.probe(admission) {
            return self.exceed(admission, demand);
        }
        match admission.room().join(demand) {
            None => self.ask_to_pass(admission, demand),
            Some(entered) => self.enter(entered, admission, demand),
        }
    }

    fn ask<L: Limiter, R>(
        &mut self,
        asked: Purpose,
        op: Op,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        self.asked_at = demand.asked_at.map(|_| Instant::now());
        NextStep::Answer(asked, admission.apply(demand, op))
    }

    fn ask_to_pass<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        self.ask(
            Purpose::Pass,
            admission.opening(demand.cost),
            admission,
            demand,
        )
    }

    /// Goes on from an answer of the limiter.
    fn hear<L: Limiter, R>(
        &mut self,
        asked: Purpose,
        answer: Result<Decision, LimiterError>,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        if let Some(asked_at) = self.asked_at {
            *self.course.latency.get_or_insert_default() += asked_at.elapsed();
        }
        if self.acquires && answer.is_ok() {
            admission.give_reserving_up();
        }
        match (asked, answer) {
            (Purpose::Pass, Err(error)) if self.may_acquire(&error, admission) => {
                self.acquires = true;
                self.ask(Purpose::Pass, Op::Acquire(demand.cost), admission, demand)
            }
            (Purpose::Pass | Purpose::Join, Err(error)) => NextStep::Done(Err(error)),
            (Purpose::Pass, Ok(decision)) if decision.is_allowed() => {
                self.pass(decision, admission)
            }
            (Purpose::Pass | Purpose::Join, Ok(decision)) if decision.is_denied() => {
                self.bend(decision, admission, demand)
            }
            (Purpose::Pass | Purpose::Join, Ok(_)) => self.join(admission, demand),
            (Purpose::Exceed, answer) => self.exceeded(answer, admission, demand),
            (Purpose::Deny, answer) => self.denied(answer, admission, demand),
        }
    }

    /// Whether a limiter that gave this error may know how to take units, if not how to reserve them.
    fn may_acquire<L: Limiter, R>(
        &self,
        error: &LimiterError,
        admission: &Admission<L, R>,
    ) -> bool {
        let unsupported = error.kind() == LimiterErrorKind::Unsupported;
        unsupported && admission.asks_more() && !self.acquires
    }

    /// The limiter lets the request pass.
    fn pass<L: Limiter, R, F>(
        &mut self,
        decision: Decision,
        admission: &Admission<L, R>,
    ) -> NextStep<F> {
        if let Some(place) = self.place.take() {
            self.course.waited = place.waited();
            place.pass();
        }
        if admission.responder().is_shadow() {
            return NextStep::Done(Ok(decision));
        }
        if decision.delay().is_zero() {
            return NextStep::Done(Ok(decision.delayed_by(self.course.waited)));
        }
        NextStep::Turn(decision)
    }

    /// The limiter denies the request: it may exceed the limit, or wait.
    fn bend<L: Limiter, R>(
        &mut self,
        denial: Decision,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        if !admission.bends() {
            return NextStep::Done(Ok(denial));
        }
        if let Some(place) = &mut self.place {
            let longest = admission.room().longest(&denial).unwrap_or_default();
            let left = longest.saturating_sub(place.waited());
            if let Some(wait) = denial.retry_after().filter(|wait| *wait <= left) {
                match admission.room().denied(place, demand, &denial, left) {
                    DeniedAgain::Head => return NextStep::Retry(wait),
                    DeniedAgain::Behind => return NextStep::Stand,
                    DeniedAgain::Refused(line) => self.line = Some(line),
                }
            }
            self.course.waited = place.waited();
            self.place = None;
            self.denial = Some(denial);
            return self.deny(admission, demand);
        }
        if !denial.is_blocked() && self.probe(admission) {
            self.denial = Some(denial);
            return self.exceed(admission, demand);
        }
        let retry_after = denial.retry_after();
        let entered = admission.room().enter(demand, &denial);
        self.denial = Some(denial);
        match (entered, retry_after) {
            (Entered::HeadDenial(place), Some(wait)) => {
                self.place = Some(place);
                NextStep::Retry(wait)
            }
            (entered, _) => self.enter(entered, admission, demand),
        }
    }

    fn enter<L: Limiter, R>(
        &mut self,
        entered: Entered,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        match entered {
            Entered::HeadDenial(place) | Entered::Behind(place) => {
                self.place = Some(place);
                NextStep::Stand
            }
            Entered::Refused(line) => {
                self.line = line;
                self.deny(admission, demand)
            }
        }
    }

    /// Whether the elastic layer lets the request pass.
    fn probe<L: Limiter, R>(&mut self, admission: &Admission<L, R>) -> bool {
        !std::mem::replace(&mut self.probed, true) && admission.probe()
    }

    /// Lets the request pass in spite of a denial. One that its response may make cost nothing is
    /// charged by that alone.
    fn exceed<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        self.course.exceeds = true;
        if !admission.corrects() {
            return self.ask(Purpose::Exceed, Op::Hit(demand.cost), admission, demand);
        }
        match self.own_denial(admission, demand) {
            Some(denial) => NextStep::Done(Ok(denial.into_excess())),
            None => self.ask(Purpose::Exceed, Op::Peek(demand.cost), admission, demand),
        }
    }

    fn exceeded<L: Limiter, R>(
        &mut self,
        answer: Result<Decision, LimiterError>,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        match answer {
            Ok(decision) => NextStep::Done(Ok(decision.into_excess())),
            Err(error) => {
                let decision = self.own_denial(admission, demand);
                let decision =
                    decision.map_or_else(|| admission.unmeasured(), Decision::into_excess);
                admission.correction_failed(&decision, demand, 0, &error);
                NextStep::Done(Ok(decision))
            }
        }
    }

    /// The denial that there is: the request's own, or that of the head of its line.
    fn own_denial<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> Option<Decision> {
        let own = self.denial.take();
        own.or_else(|| admission.room().denial_of_head(demand))
    }

    /// Neither probe nor line has helped. The limiter is told where that may start a block, and asked
    /// where it was not yet.
    fn deny<L: Limiter, R>(
        &mut self,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        let blocks = admission.blocks_on_denial();
        match self.denial.take() {
            Some(denial) if !blocks || denial.is_blocked() => self.refuse(denial),
            denial => {
                self.denial = denial;
                let op = match blocks {
                    true => Op::Deny(demand.cost),
                    false => Op::Peek(demand.cost),
                };
                self.ask(Purpose::Deny, op, admission, demand)
            }
        }
    }

    fn denied<L: Limiter, R>(
        &mut self,
        answer: Result<Decision, LimiterError>,
        admission: &Admission<L, R>,
        demand: DemandRef<'_>,
    ) -> NextStep<L::Future> {
        match answer {
            Ok(decision) if decision.is_denied() => self.refuse(decision),
            Ok(decision) => match self.denial.take() {
                // Units came meanwhile, for which another one may stand in line.
                Some(denial) => self.refuse(denial),
                None if self.line.is_some() => self.refuse(decision),
                None => self.ask_to_pass(admission, demand),
            },
            Err(error) => match self.own_denial(admission, demand) {
                Some(denial) => self.refuse(denial),
                None if self.line.is_some() && error.kind() == LimiterErrorKind::Unsupported => {
                    self.refuse(admission.unmeasured())
                }
                None if error.kind() == LimiterErrorKind::Unsupported => {
                    self.ask_to_pass(admission, demand)
                }
                None => NextStep::Done(Err(error)),
            },
        }
    }

    /// The denial, which lasts as long as the line would have taken.
    fn refuse<F>(&mut self, denial: Decision) -> NextStep<F> {
        NextStep::Done(Ok(match self.line.take() {
            Some(LineAhead { limit, wait }) if denial.is_allowed() || !wait.wait.is_zero() => {
                let place = denial.places_of(limit).start + wait.quota;
                denial.denied_for(place, wait.wait)
            }
            _ => denial,
        }))
    }
}
