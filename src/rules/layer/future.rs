//! The response of a service that is limited by rules.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::group::RuleGroup;
use crate::{
    rate_limit::{DeskAnswer, ResponseFuture, Watched},
    reject::Reject,
};

pin_project_lite::pin_project! {
    /// The response of a [`RulesLimit`](super::RulesLimit) service.
    ///
    /// It can be dropped at any time: units that were taken stay taken.
    pub struct RulesFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        response: ResponseFuture<S, B, RuleGroup, R>,
        // The charges of rules in the shadow that the response may change.
        watched: Vec<Watched<RuleGroup, R>>,
    }
}

impl<S, B, R, ResBody> RulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    #[inline(always)]
    pub(super) fn new(
        answer: DeskAnswer<RuleGroup, R, ResBody>,
        inner: &mut S,
        (parts, body): (Parts, B),
        watched: Vec<Watched<RuleGroup, R>>,
    ) -> Self {
        Self {
            response: ResponseFuture::answered(answer, inner, parts, body),
            watched,
        }
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
