//! The service whose responses hold the permits of `in_flight`.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, header::UPGRADE, request::Parts};
use http_body::Body;
use tower_service::Service;

use super::{
    future::{RulesFuture, ShadowRequests},
    handle::Shared,
    rule_admissions::Admissions,
    rule_limits::RuleLimits,
    service::decide_by_verdict,
};
use crate::{
    clock::Timestamp,
    concurrency::{ConcurrencyBody, Grant, HeldPermits},
    middleware::{inner_service::inner_service, request_outcome::RequestOutcome},
    rate_limit::{RateOutcome, SpendBody, follow},
    reject::{ProblemJson, Reject},
    rules::select::RulesVerdict,
};

/// The body of a response that holds permits, and that `spend` follows.
pub(super) type FollowedBody<B> = SpendBody<ConcurrencyBody<B>>;

/// A service whose requests are limited by rules, and whose responses hold permits. Created by
/// [`HoldingRulesLayer`](super::HoldingRulesLayer).
pub struct HoldingRulesLimit<S, R = ProblemJson> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> HoldingRulesLimit<S, R> {
    pub(super) const fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
        Self { inner, shared }
    }

    inner_service!(S);
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for HoldingRulesLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type Response = Response<FollowedBody<ResBody>>;
    type Error = S::Error;
    type Future = HoldingRulesFuture<S, ReqBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let shared = &self.shared;
        let mut permits = HeldPermits::default();
        let response = RulesFuture::new(&mut self.inner, request, |parts, watched| {
            let admissions = shared.admissions.load();
            let now = admissions.rules.begin(&mut parts.headers);
            if admissions.rules.has_in_flight() {
                return decide_holding(&admissions, now, &mut permits, watched, parts);
            }
            let verdict = admissions.rules.select(parts, now);
            decide_by_verdict(&admissions, &verdict, watched, parts)
        });
        HoldingRulesFuture { response, permits }
    }
}

/// Acquires the permits of all rules or none, then decides by the quotas. A request that a quota denies holds none.
fn decide_holding<R: Reject<B>, B: 'static>(
    admissions: &Admissions<R>,
    now: Timestamp,
    permits: &mut HeldPermits,
    watched: &mut ShadowRequests<R>,
    parts: &mut Parts,
) -> RateOutcome<RuleLimits, R, B> {
    let mut denied = None;
    let verdict = admissions
        .rules
        .select_in_flight(parts, now, |rule, at, key| {
            let Some(limit) = admissions.in_flight(rule).filter(|_| denied.is_none()) else {
                return;
            };
            let Grant { decision, holder } = limit.acquire(at, key);
            match decision {
                Ok(decision) if decision.is_denied() => {
                    let admission = admissions.denied_in_flight((rule, limit), at);
                    admission.report_denial(&decision, holder.key());
                    if !rule.shadow {
                        denied = Some((admission, decision));
                    }
                }
                _ => holder
                    .permit()
                    .into_iter()
                    .for_each(|permit| permits.push(permit)),
            }
        });
    let limits = matches!(verdict, RulesVerdict::Limited(_) | RulesVerdict::Bypassed);
    let outcome = match denied.filter(|_| limits) {
        Some((admission, decision)) => RequestOutcome::Reject(admission.deny(&decision, parts)),
        None => decide_by_verdict(admissions, &verdict, watched, parts),
    };
    match &outcome {
        RequestOutcome::Reject(_) => permits.release(),
        _ => share_with_upgrade(permits, parts),
    }
    outcome
}

/// Puts the permits of a request that asks for an upgrade into its extensions.
fn share_with_upgrade(permits: &mut HeldPermits, parts: &mut Parts) {
    if !permits.is_empty() && parts.headers.contains_key(UPGRADE) {
        parts.extensions.insert(permits.share());
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`HoldingRulesLimit`] service.
    ///
    /// Dropping it is safe at any time: its permits are released.
    pub struct HoldingRulesFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        response: RulesFuture<S, B, R>,
        permits: HeldPermits,
    }
}

impl<S, B, R, ResBody> Future for HoldingRulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
    ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type Output = Result<Response<FollowedBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = ready!(this.response.as_mut().poll(cx));
        // A quota in Redis, or a wait, may have denied the request since.
        if this.response.is_rejected() {
            this.permits.release();
        }
        let permits = std::mem::take(this.permits);
        let reservation = this.response.take_reservation();
        let held = result?.map(|body| ConcurrencyBody::new(body, permits));
        Poll::Ready(Ok(follow(reservation, held)))
    }
}

impl<S: Service<Request<B>>, B, R> fmt::Debug for HoldingRulesFuture<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldingRulesFuture").finish_non_exhaustive()
    }
}

impl<S: Clone, R> Clone for HoldingRulesLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for HoldingRulesLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldingRulesLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
