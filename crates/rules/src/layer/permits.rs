//! The permits of a request: acquired in this process, or requested from the store that all nodes share.

use std::{
    future::Future,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use http::{Response, header::UPGRADE, request::Parts};

use super::{
    rule_admissions::Admissions,
    service::{PendingQuotas, RulesWork, ShadowRequests, decide_by_verdict},
};
use crate::{rule::Rule, select::RulesVerdict, store::RuleLimits};
use tower_ratelimit_concurrency::{Grant, HeldPermits, PendingGrant, Permit};
use tower_ratelimit_core::{
    clock::Timestamp,
    decision::Decision,
    reject::{Reject, RejectionKind},
};
pub(super) use tower_ratelimit_layer::{middleware::gate::RequestOutcome, rate_limit::RateOutcome};

type HoldingOutcome<R, B> =
    RequestOutcome<RulesWork<R, HeldPermits>, B, PendingQuotas<R, HeldPermits>>;

/// A permit that other nodes count, too. It is acquired when its future is polled.
pub(super) struct RequestedPermit {
    position: u16,
    set_index: usize,
    grant: PendingGrant,
}

/// Acquires the permits of all rules or none in this process, then decides by the quotas. A request that a quota denies
/// holds none.
pub(super) fn decide_holding<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    now: Timestamp,
    permits: &mut HeldPermits,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let mut denied = None;
    let acquire = |rule: &Rule, at, key| {
        let Some(limit) = admissions.in_flight(rule).filter(|_| denied.is_none()) else {
            return;
        };
        let PendingGrant::Ready(Grant { decision, holder }) = limit.acquire(at, key) else {
            unreachable!("rules that count in Redis wait for their permits");
        };
        match decision {
            Ok(decision) if decision.is_denied() => {
                let admission = admissions.admission(rule);
                admission.report_denial(&decision, holder.key(), None);
                if !rule.shadow {
                    denied = Some((admission, decision));
                }
            }
            _ => holder
                .permit()
                .into_iter()
                .for_each(|permit| permits.push(permit)),
        }
    };
    let verdict = admissions.rules.select_in_flight(parts, now, acquire);
    let outcome = match denied.filter(|_| may_pass(&verdict)) {
        Some((admission, decision)) => {
            RequestOutcome::Reject(admission.responder().deny(parts, &decision))
        }
        None => decide_by_verdict(admissions, &verdict, watched, parts),
    };
    settle(permits, &outcome, parts);
    outcome
}

/// The verdict on a request, and the permits that it needs, in the order of the rules.
pub(super) fn request_permits<'a, R>(
    admissions: &'a Admissions<R>,
    now: Timestamp,
    parts: &Parts,
) -> (RulesVerdict<'a>, Vec<RequestedPermit>) {
    let mut requested = Vec::new();
    let acquire = |rule: &Rule, set_index, key| {
        if let Some(limit) = admissions.in_flight(rule) {
            requested.push(RequestedPermit {
                position: rule.position,
                set_index,
                grant: limit.acquire(set_index, key),
            });
        }
    };
    let verdict = admissions.rules.select_in_flight(parts, now, acquire);
    if !may_pass(&verdict) {
        requested.clear();
    }
    (verdict, requested)
}

/// Whether limits decide about the request.
const fn may_pass(verdict: &RulesVerdict<'_>) -> bool {
    matches!(verdict, RulesVerdict::Limited(_) | RulesVerdict::Bypassed)
}

/// Releases the permits of a request that is rejected, and shares those of an upgrade.
fn settle<P, B, D>(
    permits: &mut HeldPermits,
    outcome: &RequestOutcome<P, B, D>,
    parts: &mut Parts,
) {
    match outcome {
        RequestOutcome::Reject(_) => permits.release(),
        _ if !permits.is_empty() && parts.headers.contains_key(UPGRADE) => {
            parts.extensions.insert(permits.share());
        }
        _ => {}
    }
}

/// A request that waits for its permits. Dropping it releases those that it has.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct AwaitingPermits<R> {
    acquiring: Pin<Box<dyn Future<Output = Result<HeldPermits, Refusal>> + Send>>,
    admissions: Arc<Admissions<R>>,
    now: Timestamp,
}

struct Refusal {
    position: u16,
    reason: Reason,
}

enum Reason {
    Denied(Box<Decision>),
    /// The store failed, and `on_failure` of the rules denies.
    Failed(RejectionKind),
}

impl<R: Send + Sync + 'static> AwaitingPermits<R> {
    pub(super) fn new(
        admissions: Arc<Admissions<R>>,
        requested: Vec<RequestedPermit>,
        now: Timestamp,
    ) -> Self {
        Self {
            acquiring: Box::pin(acquire(Arc::clone(&admissions), requested)),
            admissions,
            now,
        }
    }

    /// Decides by the quotas once the request has all permits.
    pub(super) fn poll<B: 'static>(
        &mut self,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<HoldingOutcome<R, B>>
    where
        R: Reject<B>,
    {
        let acquired = ready!(self.acquiring.as_mut().poll(cx));
        let (admissions, mut watched) = (&*self.admissions, Vec::new());
        let mut permits = match acquired {
            Ok(permits) => permits,
            Err(refusal) => {
                let response = refusal.response(admissions, parts);
                return Poll::Ready(RequestOutcome::Reject(response));
            }
        };
        let verdict = admissions.rules.select(parts, self.now);
        let outcome = decide_by_verdict(admissions, &verdict, &mut watched, parts);
        settle(&mut permits, &outcome, parts);
        Poll::Ready(PendingQuotas::outcome(outcome, watched, permits))
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
                return Err(Refusal { position, reason });
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
    let rule = &admissions.rules.rules()[usize::from(position)];
    let admission = || admissions.admission(rule);
    match decision {
        Ok(decision) if decision.is_allowed() => Ok(holder.permit()),
        Ok(decision) => {
            admission().report_denial(&decision, holder.key(), Some(started));
            if rule.shadow {
                return Ok(None);
            }
            Err(Reason::Denied(Box::new(decision)))
        }
        Err(error) => {
            let limit = admissions.in_flight(rule);
            let policy = limit.map(|limit| limit.policy(set_index));
            let policies = policy.map(slice::from_ref).unwrap_or_default();
            let rejection = admission().fail(&error, policies);
            rejection.map_or(Ok(None), |kind| Err(Reason::Failed(kind)))
        }
    }
}

impl Refusal {
    fn response<R: Reject<B>, B>(self, admissions: &Admissions<R>, parts: &Parts) -> Response<B> {
        let rule = &admissions.rules.rules()[usize::from(self.position)];
        let admission = admissions.admission(rule);
        match self.reason {
            Reason::Denied(decision) => admission.responder().deny(parts, &decision),
            Reason::Failed(kind) => admission.responder().refuse(parts, kind),
        }
    }
}
