use std::{sync::Arc, time::Instant};

use http::{Response, request::Parts};

use super::{identify::Subject, settings::Settings, voice::Voice};
use crate::{
    decision::Decision,
    error::LimiterError,
    key::Key,
    limiter::{Limiter, Pending},
    observe::Event,
    op::Op,
    reject::{Reject, RejectionKind},
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer's
/// `layer()` call and their clones.
pub(super) struct Gate<L, R> {
    limiter: Arc<L>,
    settings: Settings,
    voice: Voice<R>,
}

/// What is known of a request before the limiter has answered.
pub(super) enum Asked<F> {
    /// It needs no answer.
    Settled(Verdict),
    /// The limiter's answer, and what [`Gate::settle`] needs to judge it.
    Waiting(Pending<F>, Ticket),
}

/// A request that the limiter was asked about.
pub(super) struct Ticket {
    key: Key,
    cost: u64,
    /// Only kept for an observer.
    asked_at: Option<Instant>,
}

/// Whether a request passes.
pub(super) enum Verdict {
    /// It does, and the response may show the decision.
    Pass(Option<Decision>),
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

    pub(super) fn ask(&self, parts: &Parts) -> Asked<L::Future> {
        let key = match self.settings.identify.subject(parts) {
            Subject::Key(key) => key,
            Subject::Nobody => return Asked::Settled(self.bypass()),
            Subject::Unknown(error) => {
                let kind = self.voice.keyless(self.limiter.policies(), error);
                return Asked::Settled(self.refuse(kind));
            }
        };
        let cost = self.settings.cost_of(parts);
        let asked_at = self.voice.start();
        let answer = self.limiter.apply(&key, Op::Acquire(cost));
        let ticket = Ticket {
            key,
            cost,
            asked_at,
        };
        Asked::Waiting(answer, ticket)
    }

    /// Judges the limiter's answer.
    pub(super) fn settle(
        &self,
        answer: Result<Decision, LimiterError>,
        ticket: &Ticket,
    ) -> Verdict {
        match answer {
            Ok(mut decision) => {
                self.voice
                    .decided(&decision, &ticket.key, ticket.cost, ticket.asked_at);
                if decision.is_allowed() || self.voice.is_shadow() {
                    return Verdict::Pass(Some(decision));
                }
                decision.lengthen(self.settings.headers.draw_jitter());
                Verdict::Deny(decision)
            }
            Err(error) => {
                self.voice.observe(|| Event::Failed {
                    policies: self.limiter.policies(),
                    error: &error,
                });
                self.refuse(RejectionKind::LimiterFailed)
            }
        }
    }

    /// A shadow lets pass what could not be decided, too.
    fn refuse(&self, kind: RejectionKind) -> Verdict {
        if self.voice.is_shadow() {
            Verdict::Pass(None)
        } else {
            Verdict::Refuse(kind)
        }
    }

    fn bypass(&self) -> Verdict {
        self.voice.observe(|| Event::Bypassed {
            policies: self.limiter.policies(),
        });
        Verdict::Pass(None)
    }

    /// The answer to a request that the limiter denied.
    pub(super) fn deny<B>(&self, parts: &Parts, decision: &Decision) -> Response<B>
    where
        R: Reject<B>,
    {
        self.voice.deny(parts, decision)
    }

    /// The answer to a request that was not decided about.
    pub(super) fn refuse_with<B>(&self, kind: RejectionKind, parts: &Parts) -> Response<B>
    where
        R: Reject<B>,
    {
        self.voice.refuse(parts, kind)
    }

    /// Whether anything is to be added to the response of a request that passed.
    pub(super) fn decorates(&self) -> bool {
        self.voice.decorates()
    }

    pub(super) fn exposes_decision(&self) -> bool {
        self.settings.expose_decision
    }

    pub(super) fn decorate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        self.voice.decorate(decision, response);
    }
}
