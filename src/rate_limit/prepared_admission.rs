//! Prepared admissions: for callers that find the key and the cost of a request themselves.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, StatusCode, request::Parts, response};

#[cfg(feature = "redis")]
use super::background_corrections::spawn;
use super::{
    admission::Admission,
    charge_request::{ChargeRequest, DecisionTrace, FewCharges, KeptCharges},
    decide::RateOutcome,
    reservation::Reservation,
    settings::{FinalCost, Overflow, Settings},
    spending::{CountedResponses, Spending},
    waiting::{LongestWaitOf, Waiting},
};
use crate::{
    decision::{Decision, Policy},
    error::LimiterError,
    headers::Headers,
    key::{Key, route::Global},
    limiter::{Charge, Limiter, OpRef, Pending, Tier},
    middleware::key_extraction_rules::Uncounted,
    observe::{Decided, KeysOf, Observer},
    quota::Priority,
    reject::{Reject, RejectionKind},
};

/// An admission of limits that its caller selects for each request.
pub(crate) struct PreparedAdmission<L, R> {
    admission: Arc<Admission<L, R>>,
    /// For each limit; at least one.
    terms: Box<[ChargeTerms]>,
}

/// The terms of requests at one of the limits of an admission.
#[derive(Default)]
pub(crate) struct ChargeTerms {
    pub(crate) tier: Tier,
    /// Whether a denial starts the limit's block at once.
    pub(crate) blocks_at_once: bool,
}

/// The key, the class and the cost of a request at a limit.
pub(crate) type RequestAtLimit<'k> = (&'k Key, Priority, u64);

pub(crate) struct PreparedSettings {
    pub(crate) headers: Headers,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) expose_decision: bool,
    pub(crate) grpc: bool,
    pub(crate) shadow: bool,
    pub(crate) counts: Option<CountedResponses>,
    pub(crate) queues: SharedQueues,
    /// The denied requests that wait; `None` if no request waits.
    pub(crate) wait: Option<WaitSettings>,
    /// The names of the limits whose denials do not end a request, at the index of the limit; `None` if all do.
    pub(crate) overflow: Option<Arc<[Option<HeaderValue>]>>,
    /// For each limit.
    pub(crate) terms: Box<[ChargeTerms]>,
    /// The charges that follow the bodies of responses, instead of `counts`.
    pub(crate) spending: Option<Spending>,
}

/// The queues of denied requests, which several admissions share.
#[derive(Clone)]
pub(crate) struct SharedQueues(Waiting);

/// How long denied requests wait.
pub(crate) struct WaitSettings {
    pub(crate) longest: Duration,
    /// The longest wait by the denial, if it depends on that.
    pub(crate) of_denial: Option<LongestWaitOf>,
    /// For each limit its identity, which names its queues, and the longest wait in them.
    pub(crate) limits: Arc<[(u64, Option<Duration>)]>,
}

/// A request at a limit in shadow mode, until its response.
pub(crate) struct ShadowRequest<L: Limiter, R>(ShadowCharge<L, R>);

enum ShadowCharge<L: Limiter, R> {
    Decided(Box<Reservation<L, R>>),
    /// The task that decides takes the status.
    #[cfg(feature = "redis")]
    Pending(tokio::sync::oneshot::Sender<StatusCode>),
}

impl SharedQueues {
    pub(crate) fn new() -> Self {
        Self(Waiting::new())
    }
}

impl<L: Limiter, R> PreparedAdmission<L, R> {
    pub(crate) fn new(limiter: L, rejection: Arc<R>, prepared: PreparedSettings) -> Self {
        // The extractor is never called.
        let mut settings = Settings::new(Global);
        settings.common.headers = prepared.headers;
        settings.common.observer = prepared.observer;
        settings.common.shadow = prepared.shadow;
        settings.common.grpc = prepared.grpc;
        settings.expose_decision = prepared.expose_decision;
        settings.final_cost = match prepared.spending {
            Some(spending) => Some(FinalCost::ByBody(Arc::new(spending))),
            None => prepared.counts.map(FinalCost::from),
        };
        settings.waiting = prepared.queues.0;
        settings.overflow = prepared.overflow.map_or(Overflow::Never, Overflow::OfRules);
        if let Some(wait) = prepared.wait {
            settings.waiting.longest = Some(wait.longest);
            settings.waiting.longest_of = wait.of_denial;
            settings.waiting.limits = wait.limits;
        }
        Self {
            admission: Arc::new(Admission::new(Arc::new(limiter), rejection, settings)),
            terms: prepared.terms,
        }
    }

    fn charge<'a>(
        &self,
        terms: &'a ChargeTerms,
        (key, class, cost): RequestAtLimit<'a>,
    ) -> Charge<'a> {
        let op = if terms.blocks_at_once {
            OpRef::Acquire(cost)
        } else {
            self.admission.charge_op(cost)
        };
        Charge::new(key, op).tier(&terms.tier).class(class)
    }

    fn request<'a>(&self, charges: &'a [Charge<'a>]) -> ChargeRequest<'a> {
        ChargeRequest {
            charges,
            started: self.admission.responder().start(),
        }
    }

    /// Decides about a request at the only limit, whose denial is the end of it.
    #[inline]
    pub(crate) fn decide_one<B: 'static>(
        &self,
        counted: RequestAtLimit<'_>,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        let charges = [self.charge(&self.terms[0], counted)];
        self.admission.decide_in_turn(self.request(&charges), parts)
    }

    /// Decides about a request at each of one or several limits. Some may deny it without an end of it.
    pub(crate) fn decide<'k, B: 'static>(
        &self,
        counted: impl Iterator<Item = RequestAtLimit<'k>>,
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        let all = self.terms.iter().zip(counted).enumerate();
        let all = all.map(|(limit, (terms, counted))| self.charge(terms, counted).limit(limit));
        let charges = FewCharges::collected(all);
        let request = self.request(charges.as_slice());
        if self.admission.settings.overflow.is_of_rules() {
            return self.admission.decide_with_overflow(request, parts);
        }
        self.admission.decide_in_turn(request, parts)
    }

    /// The units that are reserved for a request at each of several limits, with `costs` in place of those that responses
    /// do not charge.
    #[cold]
    pub(crate) fn reservations(
        &self,
        costs: impl Iterator<Item = u64>,
        parts: &Parts,
    ) -> Box<[u64]> {
        match self.admission.spending() {
            Some(spending) => spending.reservations_beside(costs, parts),
            None => costs.collect(),
        }
    }

    /// Reports a denial by another limit than those of the admission, whose decision began at `started` if it took time.
    #[cold]
    pub(crate) fn report_denial(&self, decision: &Decision, key: &Key, started: Option<Instant>) {
        let responder = self.admission.responder();
        responder.decided(|| {
            let keys = KeysOf::One(key);
            Decided::now(decision, keys, 1, started.or_else(|| responder.start()))
        });
    }

    #[cold]
    pub(crate) fn deny<B>(&self, decision: &Decision, parts: &Parts) -> http::Response<B>
    where
        R: Reject<B>,
    {
        self.admission.responder().deny(parts, decision)
    }

    /// Reports a request that a limit with these policies failed to decide. Returns its rejection; `None` in the shadow.
    #[cold]
    pub(crate) fn report_failure(
        &self,
        error: &LimiterError,
        policies: &[Policy],
    ) -> Option<RejectionKind> {
        self.admission.fail(error, policies)
    }

    #[cold]
    pub(crate) fn refuse<B>(&self, kind: RejectionKind, parts: &Parts) -> http::Response<B>
    where
        R: Reject<B>,
    {
        self.admission.responder().refuse(parts, kind)
    }

    /// Passes or rejects a request that limits with these policies do not count.
    #[cold]
    pub(crate) fn uncounted<B: 'static>(
        &self,
        why: Uncounted,
        policies: &[Policy],
        parts: &mut Parts,
    ) -> RateOutcome<L, R, B>
    where
        R: Reject<B>,
    {
        self.admission.uncounted(why, policies, parts)
    }

    /// Charges a request in shadow mode, which neither delays nor rejects it. Returns the charge that its
    /// response may correct.
    pub(crate) fn watch(&self, counted: RequestAtLimit<'_>) -> Option<ShadowRequest<L, R>>
    where
        R: Send + Sync + 'static,
    {
        let charges = [self.charge(&self.terms[0], counted)];
        let charge = self.request(&charges);
        match self.admission.request_for(charge, false) {
            Pending::Ready(answer) => {
                let reservation = report(&self.admission, answer, charge)?;
                Some(ShadowRequest(ShadowCharge::Decided(reservation)))
            }
            Pending::Later(answer) => Self::watch_later(&self.admission, answer, charge.keep()),
        }
    }

    #[cfg(feature = "redis")]
    fn watch_later(
        admission: &Arc<Admission<L, R>>,
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
        Some(ShadowRequest(ShadowCharge::Pending(sender)))
    }

    /// Without Redis every limiter answers at once.
    #[cfg(not(feature = "redis"))]
    #[allow(clippy::needless_pass_by_value, reason = "as its twin")]
    fn watch_later(
        _: &Arc<Admission<L, R>>,
        _: L::Future,
        _: KeptCharges,
    ) -> Option<ShadowRequest<L, R>> {
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
            admission.fail(&error, admission.limiter.policies());
            return None;
        }
    };
    admission.passes(&mut decision, charge, &DecisionTrace::DIRECT);
    let corrects = admission.corrects() && decision.is_allowed();
    corrects.then(|| Box::new(Reservation::new(admission, decision, charge, false)))
}

impl<L: Limiter, R: Send + Sync + 'static> ShadowRequest<L, R> {
    /// Corrects the charge by the response.
    pub(crate) fn settle(self, status: StatusCode) {
        match self.0 {
            ShadowCharge::Decided(reservation) => {
                reservation.settle_in_background(&parts_of(status));
            }
            #[cfg(feature = "redis")]
            ShadowCharge::Pending(sender) => drop(sender.send(status)),
        }
    }
}

fn parts_of(status: StatusCode) -> response::Parts {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts
}

impl From<CountedResponses> for FinalCost {
    fn from(counts: CountedResponses) -> Self {
        match counts {
            CountedResponses::OfOne(counts) => {
                Self::OfAll(Arc::new(
                    move |response, units| if counts(response.status) { units } else { 0 },
                ))
            }
            CountedResponses::OfEach(kept) => {
                Self::OfEach(Arc::new(move |response, of| kept(response.status, of)))
            }
        }
    }
}
