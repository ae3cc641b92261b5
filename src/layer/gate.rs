use std::{
    cmp::Ordering,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{request::Parts, response};

use super::{identify::Subject, settings::Settings, timer, voice::Voice};
use crate::{
    decision::{Decision, Receipt},
    error::LimiterError,
    key::Key,
    limiter::{Limiter, Pending, Tier},
    observe::Event,
    op::Op,
    reject::RejectionKind,
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer
/// and their clones.
pub(super) struct Gate<L, R> {
    limiter: Arc<L>,
    settings: Settings,
    voice: Voice<R>,
}

/// What the limiter makes of a request.
pub(super) enum Asked<F> {
    /// It is settled.
    Settled(Verdict),
    /// The limiter thinks, or the request has to wait: [`Gate::wait`] goes on from here.
    Waiting(Pending<F>, Ticket),
}

/// A request that the limiter was asked about.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    key: Key,
    tier: Tier,
    cost: u64,
    /// Only kept for an observer.
    asked_at: Option<Instant>,
}

/// Whether a request passes.
pub(super) enum Verdict {
    /// It does, and nobody asks for the decision: nothing is told of it, or there is none.
    PassUnseen,
    /// It does. The ticket is kept where the response may change what was charged; boxed, because
    /// elsewhere the room for it would be moved about with every request.
    Pass(Decision, Option<Box<Ticket>>),
    /// The limiter denied it.
    Deny(Decision),
    /// It was not decided about, for this reason.
    Refuse(RejectionKind),
}

impl<L: Limiter, R> Gate<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, settings: Settings) -> Self {
        Self {
            voice: Voice::new(
                rejection,
                &settings.headers,
                limiter.policies(),
                settings.observer.clone(),
                settings.shadow,
            ),
            limiter,
            settings,
        }
    }

    /// Asks the limiter about a request, and judges the answer if it is there at once.
    #[inline]
    pub(super) fn ask(&self, parts: &Parts) -> Asked<L::Future> {
        let ticket = match self.ticket(parts) {
            ControlFlow::Continue(ticket) => ticket,
            ControlFlow::Break(verdict) => return Asked::Settled(verdict),
        };
        match self.apply(&ticket, Op::Acquire(ticket.cost)) {
            Pending::Ready(Ok(decision)) if !self.has_to_wait(&decision) => {
                Asked::Settled(self.judge(decision, ticket))
            }
            answer => Asked::Waiting(answer, ticket),
        }
    }

    /// What to ask the limiter, or a verdict without it.
    #[inline]
    fn ticket(&self, parts: &Parts) -> ControlFlow<Verdict, Ticket> {
        if !self.settings.is_enabled() {
            return ControlFlow::Break(self.bypass());
        }
        let key = match self.settings.identify.subject(parts) {
            Subject::Key(key) => key,
            Subject::Nobody => return ControlFlow::Break(self.bypass()),
            Subject::Banned => {
                let policies = self.limiter.policies();
                self.voice.observe(|| Event::Banned { policies });
                return ControlFlow::Break(self.refuse(RejectionKind::Banned));
            }
            Subject::Unknown(error) => {
                let kind = self.voice.keyless(self.limiter.policies(), error);
                return ControlFlow::Break(self.refuse(kind));
            }
        };
        let tier = self.settings.tier_of(parts);
        if tier == Tier::UNLIMITED {
            return ControlFlow::Break(self.bypass());
        }
        ControlFlow::Continue(Ticket {
            key,
            tier,
            cost: self.settings.cost_of(parts),
            asked_at: self.voice.start(),
        })
    }

    #[inline]
    fn apply(&self, ticket: &Ticket, op: Op) -> Pending<L::Future> {
        self.limiter.apply_in(ticket.tier, &ticket.key, op)
    }

    #[inline]
    fn has_to_wait(&self, decision: &Decision) -> bool {
        if self.voice.is_shadow() {
            return false;
        }
        !decision.delay().is_zero() || (decision.is_denied() && self.settings.bends())
    }

    /// The way of a request that cannot be judged at once.
    pub(super) async fn wait(
        self: Arc<Self>,
        answer: Pending<L::Future>,
        ticket: Ticket,
    ) -> Verdict {
        match self.decide_in_time(answer, &ticket).await {
            Ok(decision) => self.judge(decision, ticket),
            Err(error) => {
                self.voice.observe(|| Event::Failed {
                    policies: self.limiter.policies(),
                    error: &error,
                });
                self.refuse(RejectionKind::LimiterFailed)
            }
        }
    }

    /// The decision, after whatever waiting it asks for and a denial allows.
    async fn decide_in_time(
        &self,
        answer: Pending<L::Future>,
        ticket: &Ticket,
    ) -> Result<Decision, LimiterError> {
        let mut decision = answer.await?;
        let mut waited = Duration::ZERO;
        while decision.is_denied() && self.has_to_wait(&decision) {
            let elastic = self.settings.elastic.as_ref();
            if !decision.is_blocked() && elastic.is_some_and(|passes| passes()) {
                let hit = self.apply(ticket, Op::Hit(ticket.cost)).await?;
                return Ok(hit.into_excess().delayed_by(waited));
            }
            let room = &self.settings.waiting_room;
            let place = room.enter(decision.retry_after(), waited);
            let Some((wait, _seat)) = place else {
                return Ok(decision);
            };
            let slept = timer::sleep(wait).await;
            waited += slept.map_err(LimiterError::unavailable)?;
            decision = self.apply(ticket, Op::Acquire(ticket.cost)).await?;
        }
        if !decision.delay().is_zero() && !self.voice.is_shadow() {
            let turn = timer::sleep(decision.delay()).await;
            turn.map_err(LimiterError::unavailable)?;
        }
        Ok(decision.delayed_by(waited))
    }

    #[inline]
    fn judge(&self, mut decision: Decision, ticket: Ticket) -> Verdict {
        self.voice
            .decided(&decision, &ticket.key, ticket.cost, ticket.asked_at);
        if decision.is_allowed() || self.voice.is_shadow() {
            if !self.exposes_decision() && !self.follows_up() {
                return Verdict::PassUnseen;
            }
            let corrected = self.settings.final_cost.is_some();
            return Verdict::Pass(decision, corrected.then(|| Box::new(ticket)));
        }
        decision.lengthen(self.settings.headers.draw_jitter());
        Verdict::Deny(decision)
    }

    /// A shadow lets pass what could not be decided, too.
    fn refuse(&self, kind: RejectionKind) -> Verdict {
        if self.voice.is_shadow() {
            Verdict::PassUnseen
        } else {
            Verdict::Refuse(kind)
        }
    }

    fn bypass(&self) -> Verdict {
        self.voice.observe(|| Event::Bypassed {
            policies: self.limiter.policies(),
        });
        Verdict::PassUnseen
    }

    pub(super) const fn voice(&self) -> &Voice<R> {
        &self.voice
    }

    pub(super) const fn exposes_decision(&self) -> bool {
        self.settings.expose_decision
    }

    /// Whether a request that passed needs looking after when its response is there.
    #[inline]
    pub(super) fn follows_up(&self) -> bool {
        self.settings.final_cost.is_some() || self.voice.decorates()
    }

    /// Corrects what a request was charged by what its response says that it cost.
    pub(super) fn correct(
        &self,
        response: &response::Parts,
        decision: &Decision,
        ticket: &Ticket,
    ) -> Option<Pending<L::Future>> {
        let final_cost = self.settings.final_cost.as_ref()?;
        if decision.is_denied() {
            // Only a shadow let it pass; it was charged nothing, and would not have run.
            return None;
        }
        let charged = decision.charged();
        let op = correction(charged, final_cost(response, charged), decision.receipt())?;
        Some(self.apply(ticket, op))
    }
}

fn correction(charged: u64, cost: u64, receipt: Receipt) -> Option<Op> {
    match cost.cmp(&charged) {
        Ordering::Equal => None,
        Ordering::Greater => Some(Op::Hit(cost - charged)),
        Ordering::Less => Some(Op::Refund(charged - cost, Some(receipt))),
    }
}
