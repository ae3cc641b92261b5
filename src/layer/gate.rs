use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, Response, StatusCode, request::Parts};

use super::{MissingKey, settings::Settings};
use crate::{
    decision::Decision,
    error::{KeyError, KeyErrorKind, LimiterError},
    headers::Renderer,
    key::Key,
    limiter::{Limiter, Pending},
    observe::{Decided, Event, log},
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
    /// Whether the fault in the server's set-up has been reported.
    reported: AtomicBool,
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
    /// It does; the decision is to be shown in the response.
    Pass(Option<Decision>),
    /// It does not.
    Stop(RejectionKind, Option<Decision>),
}

impl<L: Limiter, R> Gate<L, R> {
    pub(super) fn new(limiter: Arc<L>, rejection: Arc<R>, settings: Settings) -> Self {
        Self {
            renderer: Renderer::new(&settings.headers, limiter.policies()),
            limiter,
            rejection,
            settings,
            reported: AtomicBool::new(false),
        }
    }

    pub(super) fn ask(&self, parts: &Parts) -> Asked<L::Future> {
        if self.settings.is_skipped(parts) {
            return Asked::Settled(self.bypass());
        }
        let key = match self.settings.extractor.extract(parts) {
            Ok(key) => key,
            Err(error) => match self.missing_key(error) {
                MissingKey::Share => Key::anonymous(),
                MissingKey::Skip => return Asked::Settled(self.bypass()),
                MissingKey::Reject => return Asked::Settled(self.reject_keyless(error)),
            },
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
            Ok(decision) => {
                self.observe_decision(&decision, ticket);
                self.judge(decision)
            }
            Err(error) => {
                self.observe(|| Event::Failed {
                    policies: self.limiter.policies(),
                    error: &error,
                });
                self.stop(RejectionKind::LimiterFailed, None)
            }
        }
    }

    fn judge(&self, mut decision: Decision) -> Verdict {
        if decision.is_allowed() {
            return Verdict::Pass(Some(decision));
        }
        decision.lengthen(self.settings.headers.draw_jitter());
        self.stop(RejectionKind::Denied, Some(decision))
    }

    /// The one place where a shadow lets pass what would be stopped.
    fn stop(&self, kind: RejectionKind, decision: Option<Decision>) -> Verdict {
        if self.settings.shadow {
            Verdict::Pass(decision)
        } else {
            Verdict::Stop(kind, decision)
        }
    }

    fn bypass(&self) -> Verdict {
        self.observe(|| Event::Bypassed {
            policies: self.limiter.policies(),
        });
        Verdict::Pass(None)
    }

    fn missing_key(&self, error: KeyError) -> MissingKey {
        let unavailable = error.kind() == KeyErrorKind::Unavailable;
        if unavailable && !self.reported.swap(true, Ordering::Relaxed) {
            log::error(&error.to_string());
        }
        self.settings.on_missing_key(error)
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
        self.stop(kind, None)
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

    /// The answer to a request that does not pass.
    pub(super) fn reject<B>(
        &self,
        kind: RejectionKind,
        parts: &Parts,
        decision: Option<&Decision>,
    ) -> Response<B>
    where
        R: Reject<B>,
    {
        let rejection = Rejection::new(kind, parts, decision);
        let mut response = self.rejection.reject(&rejection);
        // A gRPC client reads the gRPC fields, and a trailers-only answer should stay small.
        if let Some(decision) = decision
            && !is_grpc(response.headers())
        {
            let status = response.status();
            self.renderer.apply(decision, status, response.headers_mut());
        }
        response
    }

    /// Whether anything is to be added to the response of a request that passed.
    pub(super) fn decorates(&self) -> bool {
        !self.settings.shadow && self.renderer.renders_anything()
    }

    pub(super) fn exposes_decision(&self) -> bool {
        self.settings.expose_decision
    }

    pub(super) fn decorate(&self, decision: &Decision, status: StatusCode, headers: &mut HeaderMap) {
        self.renderer.apply(decision, status, headers);
    }
}
