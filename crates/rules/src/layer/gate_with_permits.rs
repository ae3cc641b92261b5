//! The gate whose responses hold the permits of `in_flight`.

use std::{
    ops::ControlFlow,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Response, request::Parts};
use http_body::Body;

use super::{
    handle::Shared,
    permits::{AwaitingPermits, decide_holding, request_permits},
    service::{PendingQuotas, RulesWork, decide_by_verdict},
};
use crate::store::RuleLimits;
use tower_ratelimit_concurrency::{ConcurrencyBody, HeldPermits};
use tower_ratelimit_core::reject::{ProblemJson, Reject};
use tower_ratelimit_layer::{
    middleware::{
        body::BoxError,
        gate::{Admit, Admits, FinalOutcome, Gate, GateFuture, RequestOutcome},
    },
    rate_limit::{Correcting, SpendBody, follow},
};

/// A service whose requests are limited by rules, and whose responses hold permits. Created by
/// [`HoldingRulesLayer`](super::HoldingRulesLayer).
pub type HoldingRulesLimit<S, R = ProblemJson> = Gate<S, HoldingByRules<R>>;

/// The response of a [`HoldingRulesLimit`] service.
///
/// Dropping it is safe at any time: its permits are released.
pub type HoldingRulesFuture<S, B, R> = GateFuture<S, B, HoldingByRules<R>>;

type HoldingWork<R> = RulesWork<R, HeldPermits>;

#[allow(missing_debug_implementations, reason = "users only name it")]
pub enum PendingHolding<R> {
    /// Other nodes decide about the permits.
    Permits(AwaitingPermits<R>),
    /// The quotas decide.
    Quotas(PendingQuotas<R, HeldPermits>),
}

/// Rules whose permits last until the end of a response, as the decision of a [`Gate`].
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct HoldingByRules<R>(pub(super) Arc<Shared<R>>);

impl<R> Clone for HoldingByRules<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Admit for HoldingByRules<R> {
    type Work = HoldingWork<R>;
    type Deferred = PendingHolding<R>;
    type Late = Correcting<RuleLimits, R>;
}

impl<R, B> Admits<B> for HoldingByRules<R>
where
    R: Reject<B>,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Body = ConcurrencyBody<SpendBody<B>>;

    #[inline(always)]
    fn decide(&self, parts: &mut Parts) -> RequestOutcome<HoldingWork<R>, B, PendingHolding<R>> {
        // Dropped before the inner service is called.
        let admissions = self.0.admissions.load();
        let now = admissions.rules.begin(&mut parts.headers);
        let (mut watched, mut permits) = (Vec::new(), HeldPermits::default());
        let outcome = if admissions.rules.awaits_permits() {
            let (verdict, requested) = request_permits(&admissions, now, parts);
            if !requested.is_empty() {
                drop(verdict);
                let waiting = AwaitingPermits::new(Arc::clone(&admissions), requested, now);
                return RequestOutcome::Defer(PendingHolding::Permits(waiting));
            }
            decide_by_verdict(&admissions, &verdict, &mut watched, parts)
        } else if admissions.rules.has_in_flight() {
            decide_holding(&admissions, now, &mut permits, &mut watched, parts)
        } else {
            let verdict = admissions.rules.select(parts, now);
            decide_by_verdict(&admissions, &verdict, &mut watched, parts)
        };
        match PendingQuotas::outcome(outcome, watched, permits) {
            RequestOutcome::Pass(work) => RequestOutcome::Pass(work),
            RequestOutcome::Reject(response) => RequestOutcome::Reject(response),
            RequestOutcome::Defer(quotas) => RequestOutcome::Defer(PendingHolding::Quotas(quotas)),
        }
    }

    fn poll_decision(
        deferred: &mut PendingHolding<R>,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<HoldingWork<R>, B>> {
        loop {
            match deferred {
                PendingHolding::Quotas(quotas) => return quotas.poll(parts, cx),
                PendingHolding::Permits(waiting) => match ready!(waiting.poll(parts, cx)) {
                    RequestOutcome::Pass(work) => return Poll::Ready(RequestOutcome::Pass(work)),
                    RequestOutcome::Reject(response) => {
                        return Poll::Ready(RequestOutcome::Reject(response));
                    }
                    RequestOutcome::Defer(quotas) => *deferred = PendingHolding::Quotas(quotas),
                },
            }
        }
    }

    fn show(work: &mut HoldingWork<R>, response: &mut Response<B>) -> ControlFlow<()> {
        work.rate.show(response)
    }

    fn settle(work: &mut HoldingWork<R>, response: &mut Response<B>) -> Option<Self::Late> {
        work.rate.settle(response)
    }

    fn poll_late(
        late: &mut Self::Late,
        response: &mut Response<B>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        late.poll(response, cx)
    }

    fn wrap<E>(
        work: &mut HoldingWork<R>,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<Self::Body>, E>> {
        work.settle_watched(&polled);
        let result = ready!(polled);
        // Taken before an error is returned, which ends the request.
        let permits = std::mem::take(&mut work.permits);
        Poll::Ready(result.map(|response| {
            // The charges are settled before the permits are given back.
            let charged = follow(&mut work.rate, response);
            charged.map(|body| ConcurrencyBody::new(body, permits))
        }))
    }
}
