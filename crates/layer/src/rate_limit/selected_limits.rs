//! Admissions of limits that rules select for each request: the caller finds keys, tiers, classes and costs, and passes a
//! list of charges.

use std::{sync::Arc, time::Instant};

use http::{StatusCode, request::Parts, response};

#[cfg(feature = "shared")]
use super::reservation::background::spawn;
use super::{
    admission::{Admission, Path},
    decide::RateOutcome,
    request_charges::{ChargeRequest, DecisionTrace, KeptCharges},
    reservation::Reservation,
    settings::{Settings, TermsOfLimit},
    waiting::Waiting,
};
use crate::{
    key::Global,
    middleware::responder::Responder,
    observe::event::{Decided, Observer},
};
use tower_ratelimit_core::{
    decision::{Decision, Policy},
    error::LimiterError,
    headers::Headers,
    key::Key,
    limiter::{
        call::{Charge, OpRef},
        limiter::{Limiter, Pending},
    },
    reject::rejection::Reject,
};

/// Settings that the admissions of several limits share.
#[allow(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "hidden"
)]
#[doc(hidden)]
pub struct SelectedSettings<L, R> {
    pub limiter: Arc<L>,
    pub rejection: Arc<R>,
    pub observer: Option<Arc<dyn Observer>>,
    pub expose_decision: bool,
    pub grpc: bool,
    /// The queues of denied requests, which all admissions and reloads share.
    pub waiting: Waiting,
    /// One for each limit, by its index.
    pub limits: Arc<[TermsOfLimit]>,
}

/// A request at a limit in shadow mode, until its response.
#[allow(missing_debug_implementations, reason = "hidden")]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum ShadowRequest<L: Limiter, R> {
    /// The limiter has decided.
    Decided(Box<Reservation<L, R>>),
    #[cfg(feature = "shared")]
    /// The task that decides takes the status.
    Pending(tokio::sync::oneshot::Sender<StatusCode>),
}

impl<L: Limiter, R> SelectedSettings<L, R> {
    /// The admission of requests whose first limit has these policies, or one of these sets: it chooses the fields of
    /// their responses.
    pub fn admission(
        &self,
        headers: &Headers,
        shadow: bool,
        sets: &[&[Policy]],
    ) -> Arc<Admission<L, R>> {
        // The extractor is never called.
        let mut settings = Settings::new(Global);
        settings.common.headers = headers.clone();
        settings.common.observer = self.observer.clone();
        settings.common.shadow = shadow;
        settings.common.grpc = self.grpc;
        settings.expose_decision = self.expose_decision && !shadow;
        settings.waiting = self.waiting.clone();
        settings.limits = Arc::clone(&self.limits);
        let responder = Responder::new(&settings.common, Arc::clone(&self.rejection), sets);
        Arc::new(Admission::new(
            Arc::clone(&self.limiter),
            responder,
            settings,
        ))
    }
}

impl<L: Limiter, R> Admission<L, R> {
    /// Decides about a request at these limits. Some may deny it without an end of it.
    #[inline]
    pub fn decide_selected<B: 'static>(
        self: &Arc<Self>,
        charges: &[Charge<'_>],
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        let charge = self.request_of(charges);
        if self.settings.are_plain_for(charge.limits()) {
            return self.decide_now(charge, self.path < Path::Full, parts);
        }
        self.decide_apart_selected(charge, parts)
    }

    #[inline(never)]
    fn decide_apart_selected<B: 'static>(
        self: &Arc<Self>,
        charge: ChargeRequest<'_>,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        if charge.charges.iter().any(|charge| charge.overflows) {
            let answer = (!self.may_queue(charge)).then(|| self.request_for(charge, false));
            return self.defer(charge, answer, parts);
        }
        self.decide_charge(charge, parts)
    }

    /// The units that are reserved for a request at these limits: where responses charge a limit, in place of the units of
    /// the charge. Each has the capacity in `capacities`.
    #[cold]
    pub fn reserve(&self, charges: &mut [Charge<'_>], capacities: &[u64], parts: &Parts) {
        let limits = charges.iter().map(Charge::index);
        if let Some(spending) = self.settings.spending(limits) {
            spending.reserve(charges, capacities, parts);
        }
    }

    /// Reports a denial by another limit than those of the admission, whose decision began at `started` if it took time.
    #[cold]
    pub fn report_denial(&self, decision: &Decision, key: &Key, started: Option<Instant>) {
        let responder = &self.responder;
        let charges = [Charge::new(key, OpRef::Acquire(1))];
        let started = started.or_else(|| responder.start());
        responder.decided(|| Decided::now(decision, &charges, started));
    }

    /// Charges a request in shadow mode, which neither delays nor rejects it. Returns the charge that its
    /// response may correct.
    pub fn watch(self: &Arc<Self>, charge: Charge<'_>) -> Option<ShadowRequest<L, R>>
    where
        R: Send + Sync + 'static,
    {
        let charges = [charge];
        let charge = self.request_of(&charges);
        match self.request_for(charge, false) {
            Pending::Ready(answer) => {
                let reservation = report(self, answer, charge)?;
                Some(ShadowRequest::Decided(reservation))
            }
            Pending::Later(answer) => Self::watch_later(self, answer, charge.keep()),
        }
    }

    #[cfg(feature = "shared")]
    fn watch_later(
        admission: &Arc<Self>,
        answer: L::Future,
        charge: KeptCharges,
    ) -> Option<ShadowRequest<L, R>>
    where
        R: Send + Sync + 'static,
    {
        let admission = Arc::clone(admission);
        let (sender, status) = tokio::sync::oneshot::channel();
        spawn(async move {
            let answer = answer.await;
            let reservation = {
                let charges = charge.as_refs();
                report(&admission, answer, charge.request(&charges))
            };
            if let (Some(reservation), Ok(status)) = (reservation, status.await) {
                reservation.settle_in_background(&parts_of(status));
            }
        });
        Some(ShadowRequest::Pending(sender))
    }

    /// Without Redis every limiter answers at once.
    #[cfg(not(feature = "shared"))]
    #[allow(clippy::needless_pass_by_value, reason = "as its twin")]
    fn watch_later(_: &Arc<Self>, _: L::Future, _: KeptCharges) -> Option<ShadowRequest<L, R>> {
        None
    }
}

/// Reports a decision in shadow mode. Returns the charge that the response may correct.
fn report<L: Limiter, R>(
    admission: &Arc<Admission<L, R>>,
    answer: Result<Decision, LimiterError>,
    charge: ChargeRequest<'_>,
) -> Option<Box<Reservation<L, R>>> {
    let mut decision = match answer {
        Ok(decision) => decision,
        Err(error) => {
            admission.fail(&error, &admission.policies(charge.charges));
            return None;
        }
    };
    admission.passes(&mut decision, charge, &DecisionTrace::DIRECT);
    let corrects = admission.settings.corrects(charge.limits()) && decision.is_allowed();
    corrects.then(|| Box::new(Reservation::new(admission, decision, charge, false)))
}

impl<L: Limiter, R: Send + Sync + 'static> ShadowRequest<L, R> {
    /// Corrects the charge by the response.
    pub fn settle(self, status: StatusCode) {
        match self {
            Self::Decided(reservation) => {
                reservation.settle_in_background(&parts_of(status));
            }
            #[cfg(feature = "shared")]
            Self::Pending(sender) => drop(sender.send(status)),
        }
    }
}

fn parts_of(status: StatusCode) -> response::Parts {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts
}
