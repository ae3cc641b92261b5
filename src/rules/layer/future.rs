//! The response of a service that is limited by rules.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::rule_limits::RuleLimits;
use crate::{
    rate_limit::{RateOutcome, ResponseFuture, ResponseWork, ShadowRequest},
    reject::Reject,
};

pin_project_lite::pin_project! {
    /// The response of a [`RulesLimit`](super::RulesLimit) service.
    ///
    /// Dropping it is safe at any time. Charged units stay charged.
    pub struct RulesFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        response: ResponseFuture<S, B, RuleLimits, R>,
        // The charges of shadow rules, which `count_if` settles by the response.
        watched: ShadowRequests<R>,
    }
}

pub(super) type ShadowRequests<R> = Vec<ShadowRequest<RuleLimits, R>>;

impl<S, B, R, ResBody> RulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    #[inline(always)]
    pub(super) fn new(
        inner: &mut S,
        request: Request<B>,
        decide: impl FnOnce(&mut Parts, &mut ShadowRequests<R>) -> RateOutcome<RuleLimits, R, ResBody>,
    ) -> Self {
        let mut watched = Vec::new();
        Self {
            response: ResponseFuture::new(inner, request, |parts| decide(parts, &mut watched)),
            watched,
        }
    }
}

impl<S, B, R, ResBody> RulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    /// The work of a response that is ready.
    pub(super) fn work(self: Pin<&mut Self>) -> &mut ResponseWork<RuleLimits, R> {
        self.project().response.work()
    }

    pub(super) const fn is_rejected(&self) -> bool {
        self.response.is_rejected()
    }
}

impl<S, B, R, ResBody> Future for RulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    type Output = Result<Response<ResBody>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.response.poll(cx);
        if let (false, Poll::Ready(Ok(response))) = (this.watched.is_empty(), &polled) {
            for watched in this.watched.drain(..) {
                watched.settle(response.status());
            }
        }
        polled
    }
}

impl<S: Service<Request<B>>, B, R> fmt::Debug for RulesFuture<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesFuture").finish_non_exhaustive()
    }
}
