//! The admission of a layer: permits, settings and reports. It is independent of tower.
//!
//! In: the head of a request. Out: a [`RequestOutcome`]. The request passes with its permit, which the body of its response
//! holds until it ends; or it is rejected; or other nodes decide.
//!
//! The key stage finds the key. [`Permits`] acquire one: of the counts of this process (`in_flight.rs`), or of the leases of
//! all nodes (`shared_permits.rs`), which takes a call. The answer is a [`Grant`]: a decision, and the permit if there is
//! one.
//!
//! Example: two at the same time. The third request of a key gets a grant without a permit, whose decision is a denial, and
//! gets 429. In shadow mode it passes uncounted.

use std::{
    convert::Infallible,
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use http::{Response, request::Parts};
use http_body::Body;

use super::{
    body::{ConcurrencyBody, HeldPermits},
    in_flight::{Grant, PendingGrant, Permit},
    permits::Permits,
};
use tower_ratelimit_core::{
    decision::{Decision, Policy},
    quota::Priority,
    reject::{ProblemJson, Reject, RejectionKind},
};
use tower_ratelimit_layer::{
    middleware::{
        followed_body::Followed,
        gate::{Admit, Admits, FinalOutcome, Gate, GateFuture, RequestOutcome},
        key_extraction::KeyStage,
        key_extraction_rules::PerRequest,
        responder::Responder,
    },
    observe::{Decided, KeysOf},
};

/// Decides about requests; independent of tower. Shared by all services and clones of one layer.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub(crate) struct PermitAdmission<R> {
    permits: Permits,
    key_stage: KeyStage<R>,
    priority: Option<PerRequest<Priority>>,
}

/// A service that has a limited number of requests in flight for each key. Made by
/// [`ConcurrencyLayer`](crate::layer::ConcurrencyLayer).
pub type ConcurrencyLimit<S, R = ProblemJson> = Gate<S, ByPermit<R>>;

/// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit) service. When it is dropped, its permit comes back.
pub type ResponseFuture<S, B, R> = GateFuture<S, B, ByPermit<R>>;

/// A [`PermitAdmission`] as that of a [`Gate`].
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct ByPermit<R>(pub(super) Arc<PermitAdmission<R>>);

impl<R> Clone for ByPermit<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Admit for ByPermit<R> {
    type Work = Running<R>;
    type Deferred = PendingPermit<R>;
    type Late = Infallible;
}

impl<R: Reject<B>, B: Body> Admits<B> for ByPermit<R> {
    type Body = ConcurrencyBody<B>;

    fn decide(&self, parts: &mut Parts) -> PermitOutcome<R, B> {
        PermitAdmission::decide(&self.0, parts)
    }

    fn poll_decision(
        deferred: &mut PendingPermit<R>,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<Running<R>, B>> {
        let grant = ready!(deferred.grant.as_mut().poll(cx));
        let (admission, started) = (&deferred.admission, deferred.started);
        Poll::Ready(admission.admit(grant, started, parts))
    }

    fn show(running: &mut Running<R>, response: &mut Response<B>) -> ControlFlow<()> {
        if let Some((admission, decision)) = &running.shown {
            admission.responder().decorate(decision, response);
        }
        ControlFlow::Continue(())
    }

    fn wrap<E>(
        running: &mut Running<R>,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<ConcurrencyBody<B>>, E>> {
        let result = ready!(polled);
        // Taken before an error is returned, which ends the request.
        let permits = HeldPermits::from(running.permit.take());
        let held = |response: Response<B>| response.map(|body| Followed::new(body, permits));
        Poll::Ready(result.map(held))
    }
}

type PermitOutcome<R, B> = RequestOutcome<Running<R>, B, PendingPermit<R>>;

/// A request in flight.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct Running<R> {
    /// `None` if the request is not counted.
    permit: Option<Permit>,
    shown: Option<(Arc<PermitAdmission<R>>, Decision)>,
}

/// A decision that waits for other nodes.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct PendingPermit<R> {
    grant: Pin<Box<dyn Future<Output = Grant> + Send>>,
    started: Option<Instant>,
    admission: Arc<PermitAdmission<R>>,
}

impl<R> PermitAdmission<R> {
    pub(super) fn new(
        permits: Permits,
        key_stage: KeyStage<R>,
        priority: Option<PerRequest<Priority>>,
    ) -> Self {
        Self {
            permits,
            key_stage,
            priority,
        }
    }

    const fn responder(&self) -> &Responder<R> {
        self.key_stage.responder()
    }

    pub(crate) fn decide<B>(self: &Arc<Self>, parts: &Parts) -> PermitOutcome<R, B>
    where
        R: Reject<B>,
    {
        let key = match self.key_stage.key_of(parts) {
            Ok(key) => key,
            Err(why) => {
                let rejection = self.key_stage.exempt(why, self.policies());
                return self.undecided(rejection, parts);
            }
        };
        // One of a layer's first requests: the key may be the address of a proxy.
        let diagnostics = self.key_stage.diagnostics();
        if diagnostics.is_active() && diagnostics.checks_next() {
            self.key_stage.check_for_proxy(parts);
        }
        let started = self.responder().start();
        let priority = self.priority.as_ref();
        let class = priority.map_or(Priority::CRITICAL, |priority| priority(parts));
        match self.permits.acquire(key, class) {
            PendingGrant::Ready(grant) => self.admit(grant, started, parts),
            PendingGrant::Later(grant) => RequestOutcome::Defer(PendingPermit {
                grant,
                started,
                admission: Arc::clone(self),
            }),
        }
    }

    fn admit<B, D>(
        self: &Arc<Self>,
        Grant { decision, holder }: Grant,
        started: Option<Instant>,
        parts: &Parts,
    ) -> RequestOutcome<Running<R>, B, D>
    where
        R: Reject<B>,
    {
        let decision = match decision {
            Ok(decision) => decision,
            Err(error) => {
                let rejection = self.key_stage.undecided(&error, self.policies());
                return self.undecided(rejection, parts);
            }
        };
        let responder = self.responder();
        responder.decided(|| Decided::now(&decision, KeysOf::One(holder.key()), 1, started));
        if decision.is_allowed() {
            let shown = responder.decorates();
            RequestOutcome::Pass(Running {
                permit: holder.permit(),
                shown: shown.then(|| (Arc::clone(self), decision)),
            })
        } else if responder.is_shadow() {
            RequestOutcome::Pass(Running::default())
        } else {
            RequestOutcome::Reject(responder.deny(parts, &decision))
        }
    }

    /// Rejects a request without a decision, or passes it if there is no rejection.
    fn undecided<B, D>(
        &self,
        rejection: Option<RejectionKind>,
        parts: &Parts,
    ) -> RequestOutcome<Running<R>, B, D>
    where
        R: Reject<B>,
    {
        match rejection {
            Some(kind) => RequestOutcome::Reject(self.responder().refuse(parts, kind)),
            None => RequestOutcome::Pass(Running::default()),
        }
    }

    fn policies(&self) -> &[Policy] {
        slice::from_ref(self.permits.policy())
    }
}

impl<R> Default for Running<R> {
    /// A request that is not counted.
    fn default() -> Self {
        Self {
            permit: None,
            shown: None,
        }
    }
}
