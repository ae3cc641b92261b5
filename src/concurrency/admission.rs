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
//! is answered 429. In shadow mode it passes uncounted.

use std::{
    future::Future,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use http::request::Parts;

use super::{
    in_flight::{Grant, PendingGrant, Permit},
    permits::Permits,
};
use crate::{
    decision::{Decision, Policy},
    middleware::{
        gate::{FinalOutcome, RequestOutcome},
        key_extraction::KeyStage,
        key_extraction_rules::PerRequest,
        responder::Responder,
    },
    observe::Decided,
    quota::Priority,
    reject::{Reject, RejectionKind},
};

/// Decides about requests; independent of tower. Shared by all services and clones of one layer.
pub(super) struct PermitAdmission<R> {
    permits: Permits,
    key_stage: KeyStage<R>,
    priority: Option<PerRequest<Priority>>,
}

type PermitOutcome<R, B> = RequestOutcome<Running<R>, B, PendingPermit<R>>;

pub(super) struct Running<R> {
    /// `None` if the request is not counted.
    pub(super) permit: Option<Permit>,
    pub(super) shown: Option<(Arc<PermitAdmission<R>>, Decision)>,
}

/// A decision that waits for other nodes.
pub(super) struct PendingPermit<R> {
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

    pub(super) const fn responder(&self) -> &Responder<R> {
        self.key_stage.responder()
    }

    pub(super) fn decide<B>(self: &Arc<Self>, parts: &Parts) -> PermitOutcome<R, B>
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
        responder.decided(|| Decided::now(&decision, holder.key(), 1, started));
        if decision.is_allowed() {
            let shown = responder.decorates();
            RequestOutcome::Pass(Running {
                permit: holder.permit(),
                shown: shown.then(|| (Arc::clone(self), decision)),
            })
        } else if responder.is_shadow() {
            RequestOutcome::Pass(Running::UNCOUNTED)
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
            None => RequestOutcome::Pass(Running::UNCOUNTED),
        }
    }

    fn policies(&self) -> &[Policy] {
        slice::from_ref(self.permits.policy())
    }
}

impl<R> Running<R> {
    const UNCOUNTED: Self = Self {
        permit: None,
        shown: None,
    };
}

impl<R> PendingPermit<R> {
    /// Completes the decision about the request with these parts.
    pub(super) fn poll<B>(
        &mut self,
        parts: &Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<Running<R>, B>>
    where
        R: Reject<B>,
    {
        let grant = ready!(self.grant.as_mut().poll(cx));
        Poll::Ready(self.admission.admit(grant, self.started, parts))
    }
}
