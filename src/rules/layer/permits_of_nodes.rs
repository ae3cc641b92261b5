//! A request that waits for permits that all nodes count together.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::{
    future::RulesFuture,
    permits::{RequestedPermit, settle},
    rule_admissions::{Admissions, RuleAdmission},
    service::decide_by_verdict,
};
use crate::{
    clock::Timestamp,
    concurrency::{Grant, HeldPermits, PendingGrant, Permit},
    decision::Decision,
    middleware::inner_service::RequestOutcome,
    reject::{Reject, RejectionKind},
};

/// A request that waits for its permits. Dropping it releases those that it has.
pub(super) struct AwaitingPermits<S, B, R> {
    acquiring: Pin<Box<dyn Future<Output = Result<HeldPermits, Refusal>> + Send>>,
    admissions: Arc<Admissions<R>>,
    /// The time at which its rules were selected.
    now: Timestamp,
    inner: S,
    request: Option<Request<B>>,
}

/// The reason why a request has no permit.
struct Refusal {
    position: u16,
    set_index: usize,
    reason: Reason,
}

enum Reason {
    Denied(Box<Decision>),
    /// The store failed, and `on_failure` of the rules denies.
    Failed(RejectionKind),
}

impl<S, B, R> AwaitingPermits<S, B, R>
where
    R: Send + Sync + 'static,
{
    pub(super) fn new(
        (admissions, requested): (Arc<Admissions<R>>, Vec<RequestedPermit>),
        now: Timestamp,
        inner: S,
        request: Request<B>,
    ) -> Self {
        Self {
            acquiring: Box::pin(acquire(Arc::clone(&admissions), requested)),
            admissions,
            now,
            inner,
            request: Some(request),
        }
    }
}

impl<S, B, R, ResBody> AwaitingPermits<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    /// The response of the request once it has all permits or is denied one, and the permits.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(RulesFuture<S, B, R>, HeldPermits)> {
        let acquired = ready!(self.acquiring.as_mut().poll(cx));
        let request = self.request.take().expect("polled after it was ready");
        let (admissions, now) = (&*self.admissions, self.now);
        let (mut permits, refusal) = match acquired {
            Ok(permits) => (permits, None),
            Err(refusal) => (HeldPermits::default(), Some(refusal)),
        };
        let response = RulesFuture::new(&mut self.inner, request, |parts, watched| {
            let outcome = match refusal {
                Some(refusal) => RequestOutcome::Reject(refusal.response(admissions, parts)),
                None => {
                    let verdict = admissions.rules.select(parts, now);
                    decide_by_verdict(admissions, &verdict, watched, parts)
                }
            };
            settle(&mut permits, &outcome, parts);
            outcome
        });
        Poll::Ready((response, permits))
    }
}

/// Acquires one permit after another, in the order of the rules: of requests that need the same two permits, the one that
/// has the first also gets the second.
async fn acquire<R: Send + Sync>(
    admissions: Arc<Admissions<R>>,
    requested: Vec<RequestedPermit>,
) -> Result<HeldPermits, Refusal> {
    let mut permits = HeldPermits::default();
    for RequestedPermit {
        position,
        set_index,
        grant,
    } in requested
    {
        let started = Instant::now();
        let grant = match grant {
            PendingGrant::Ready(grant) => grant,
            PendingGrant::Later(grant) => grant.await,
        };
        match permit(&admissions, (position, set_index), grant, started) {
            Ok(permit) => permit.into_iter().for_each(|permit| permits.push(permit)),
            Err(reason) => {
                return Err(Refusal {
                    position,
                    set_index,
                    reason,
                });
            }
        }
    }
    Ok(permits)
}

/// The permit of a grant; `None` if the request passes without one. Reports a denial, and a store that failed.
fn permit<R>(
    admissions: &Admissions<R>,
    (position, set_index): (u16, usize),
    Grant { decision, holder }: Grant,
    started: Instant,
) -> Result<Option<Permit>, Reason> {
    let admission = || denying(admissions, position, set_index);
    match decision {
        Ok(decision) if decision.is_allowed() => Ok(holder.permit()),
        Ok(decision) => {
            admission().report_denial(&decision, holder.key(), Some(started));
            if admissions.rules.rules()[usize::from(position)].shadow {
                return Ok(None);
            }
            Err(Reason::Denied(Box::new(decision)))
        }
        Err(error) => match admission().report_failure(&error) {
            Some(kind) => Err(Reason::Failed(kind)),
            None => Ok(None),
        },
    }
}

/// The admission that rejects requests without a permit of this rule.
fn denying<R>(admissions: &Admissions<R>, position: u16, set_index: usize) -> &RuleAdmission<R> {
    let rule = &admissions.rules.rules()[usize::from(position)];
    let limit = admissions.in_flight(rule);
    let limit = limit.expect("only rules with a limit request permits");
    admissions.denied_in_flight((rule, limit), set_index)
}

impl Refusal {
    fn response<R: Reject<B>, B>(self, admissions: &Admissions<R>, parts: &Parts) -> Response<B> {
        let admission = denying(admissions, self.position, self.set_index);
        match self.reason {
            Reason::Denied(decision) => admission.deny(&decision, parts),
            Reason::Failed(kind) => admission.refuse(kind, parts),
        }
    }
}
