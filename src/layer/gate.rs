use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Response, request::Parts};

use super::{identify::Subject, settings::Settings};
use crate::{
    decision::Decision,
    error::{KeyError, KeyErrorKind, LimiterError},
    headers::Renderer,
    key::Key,
    limiter::{Limiter, Pending},
    observe::{Decided, Event},
    op::Op,
    reject::{Reject, Rejection, RejectionKind, is_grpc},
};

/// Where requests are decided about, apart from everything tower: one for all services of a layer's
/// `layer()` call and their clones.
pub(super) struct Gate<L, R> {
    limiter: Arc<L>,
    rejection: Arc<R>,
    settings: Settings,
    renderer: Renderer,
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
            renderer: Renderer::new(&settings.headers, limiter.policies()),
            limiter,
            rejection,
            settings,
        }
    }

    pub(super) fn ask(&self, parts: &Parts) -> Asked<L::Future> {
        let key = match self.settings.identify.subject(parts) {
            Subject::Key(key) => key,
            Subject::Nobody => return Asked::Settled(self.bypass()),
            Subject::Unknown(error) => return Asked::Settled(self.reject_keyless(error)),
        };
        let cost = self.settings.cost_of(parts);
        let asked_at = self.settings.observer.is_some().then(Instant::now);
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
                self.observe_decision(&decision, ticket);
                if decision.is_allowed() || self.settings.shadow {
                    return Verdict::Pass(Some(decision));
                }
                decision.lengthen(self.settings.headers.draw_jitter());
                Verdict::Deny(decision)
            }
            Err(error) => {
                self.observe(|| Event::Failed {
                    policies: self.limiter.policies(),
                    error: &error,
                });
                self.refuse(RejectionKind::LimiterFailed)
            }
        }
    }

    /// A shadow lets pass what could not be decided, too.
    fn refuse(&self, kind: RejectionKind) -> Verdict {
        if self.settings.shadow {
            Verdict::Pass(None)
        } else {
            Verdict::Refuse(kind)
        }
    }

    fn bypass(&self) -> Verdict {
        self.observe(|| Event::Bypassed {
            policies: self.limiter.policies(),
        });
        Verdict::Pass(None)
    }

    fn reject_keyless(&self, error: KeyError) -> Verdict {
        self.observe(|| Event::KeyMissing {
            policies: self.limiter.policies(),
            error: &error,
        });
        let kind = match error.kind() {
            KeyErrorKind::Absent => RejectionKind::KeyMissing,
            KeyErrorKind::Unavailable => RejectionKind::KeyUnavailable,
        };
        self.refuse(kind)
    }

    fn observe_decision(&self, decision: &Decision, ticket: &Ticket) {
        let latency = ticket.asked_at.map_or(Duration::ZERO, |at| at.elapsed());
        self.observe(|| {
            Event::Decided(Decided {
                decision,
                key: &ticket.key,
                cost: ticket.cost,
                latency,
                shadow: self.settings.shadow,
            })
        });
    }

    fn observe<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(observer) = &self.settings.observer {
            observer.observe(&event());
        }
    }

    /// The answer to a request that the limiter denied.
    pub(super) fn deny<B>(&self, parts: &Parts, decision: &Decision) -> Response<B>
    where
        R: Reject<B>,
    {
        let mut response = self.rejection.reject(&Rejection::denied(parts, decision));
        // A gRPC client reads the gRPC fields, and a trailers-only answer should stay small.
        if !is_grpc(response.headers()) {
            self.decorate(decision, &mut response);
        }
        response
    }

    /// The answer to a request that was not decided about.
    pub(super) fn refuse_with<B>(&self, kind: RejectionKind, parts: &Parts) -> Response<B>
    where
        R: Reject<B>,
    {
        self.rejection.reject(&Rejection::new(kind, parts))
    }

    /// Whether anything is to be added to the response of a request that passed.
    pub(super) fn decorates(&self) -> bool {
        !self.settings.shadow && self.renderer.renders_limits()
    }

    pub(super) fn exposes_decision(&self) -> bool {
        self.settings.expose_decision
    }

    pub(super) fn decorate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        let status = response.status();
        self.renderer
            .apply(decision, status, response.headers_mut());
    }
}
