//! The service that a [`RateLimitLayer`](super::RateLimitLayer) makes, and its response.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::{
    admission::Admission,
    decide::{PendingOutcome, RateOutcome, ResponseWork},
    reservation::{Correcting, Reservation},
};
use crate::{
    limiter::{Limiter, LocalLimiter},
    middleware::inner_service::{RequestOutcome, drop_ready, inner_service, take_ready},
    reject::{ProblemJson, Reject},
};

/// A service whose requests are rate limited. Made by [`RateLimitLayer`](super::RateLimitLayer).
///
/// Clones share the layer's budget. The inner service has to be `Clone`: while a request waits,
/// for a shared limiter's answer or for its turn, it keeps the instance that was ready for it, and
/// a clone takes that one's place.
pub struct RateLimit<S, L = LocalLimiter, R = ProblemJson> {
    inner: S,
    admission: Arc<Admission<L, R>>,
}

impl<S, L, R> RateLimit<S, L, R> {
    pub(super) const fn new(inner: S, admission: Arc<Admission<L, R>>) -> Self {
        Self { inner, admission }
    }

    inner_service!(S);
}

impl<S, L, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, L, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, L, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    // Within its caller the future would be built apart and then moved to its place.
    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let admission = &self.admission;
        ResponseFuture::new(&mut self.inner, request, |parts| admission.decide(parts))
    }
}

impl<S: Clone, L, R> Clone for RateLimit<S, L, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<S: fmt::Debug, L, R> fmt::Debug for RateLimit<S, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// It can be dropped at any time: units that were charged stay charged.
    pub struct ResponseFuture<S, B, L, R>
    where
        S: Service<Request<B>>,
        L: Limiter,
    {
        response_work: ResponseWork<L, R>,
        #[pin]
        state: State<S, B, L, R>,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<S, B, L, R>
    where
        S: Service<Request<B>>,
        L: Limiter,
    {
        // The limiter decides, or the request waits in a queue.
        Waiting { waiting: Box<WaitingRequest<S, B, L, R>> },
        // The inner service runs.
        Running { #[pin] response: S::Future },
        // The response waits for the correction of its charge.
        Correcting { correcting: Box<Correcting<S::Response, L, R>> },
        // The request was rejected.
        Rejected { response: Option<S::Response> },
    }
}

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct WaitingRequest<S, B, L, R> {
    deferred: PendingOutcome<L, R>,
    inner: S,
    request: Option<(Parts, B)>,
}

impl<S, B, L, R, ResBody> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    /// Decides about the request, and calls the inner service at once if it passes now.
    // A request is long, and each call that passes it on would move it, even an inlined one.
    #[inline(always)]
    pub(crate) fn new(
        inner: &mut S,
        request: Request<B>,
        decide: impl FnOnce(&mut Parts) -> RateOutcome<L, R, ResBody>,
    ) -> Self
    where
        S: Clone,
    {
        let (mut parts, body) = request.into_parts();
        match decide(&mut parts) {
            RequestOutcome::Pass(response_work) => Self {
                state: State::Running {
                    response: inner.call(Request::from_parts(parts, body)),
                },
                response_work,
            },
            RequestOutcome::Reject(response) => {
                drop_ready(inner);
                Self::rejected(response)
            }
            RequestOutcome::Defer(deferred) => Self::waiting(deferred, inner, parts, body),
        }
    }

    #[cold]
    #[inline(never)]
    fn waiting(deferred: PendingOutcome<L, R>, inner: &mut S, parts: Parts, body: B) -> Self
    where
        S: Clone,
    {
        let waiting = Box::new(WaitingRequest {
            deferred,
            inner: take_ready(inner),
            request: Some((parts, body)),
        });
        Self {
            state: State::Waiting { waiting },
            response_work: ResponseWork::Nothing,
        }
    }

    /// The reservation of a response that is ready, if its body determines the charge.
    pub(crate) fn take_reservation(self: Pin<&mut Self>) -> Option<Box<Reservation<L, R>>> {
        match mem::replace(self.project().response_work, ResponseWork::Nothing) {
            ResponseWork::Settle(reservation) => Some(reservation),
            _ => None,
        }
    }

    #[cfg(feature = "rules")]
    pub(crate) const fn is_rejected(&self) -> bool {
        matches!(self.state, State::Rejected { .. })
    }

    const fn rejected(response: Response<ResBody>) -> Self {
        Self {
            state: State::Rejected {
                response: Some(response),
            },
            response_work: ResponseWork::Nothing,
        }
    }
}

impl<S, B, L, R, ResBody> WaitingRequest<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ResponseFuture<S, B, L, R>> {
        let request = self.request.as_mut();
        let (parts, _) = request.expect("polled after it was ready");
        let admitted = ready!(self.deferred.poll(parts, cx));
        let (parts, body) = self.request.take().expect("it was there");
        Poll::Ready(match admitted {
            RequestOutcome::Pass(response_work) => ResponseFuture {
                state: State::Running {
                    response: self.inner.call(Request::from_parts(parts, body)),
                },
                response_work,
            },
            RequestOutcome::Reject(response) => ResponseFuture::rejected(response),
            RequestOutcome::Defer(never) => match never {},
        })
    }
}

impl<S, B, L, R, ResBody> Future for ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    type Output = Result<Response<ResBody>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        let StateProjection::Running { response } = this.state.project() else {
            return self.poll_rare(cx);
        };
        // A response is large: it stays where the inner future puts it.
        let mut polled = response.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled {
            match this.response_work {
                ResponseWork::Nothing => {}
                ResponseWork::ShowNumbers(admission, numbers) => {
                    admission.responder().decorate_with(numbers, response);
                }
                ResponseWork::Show(admission, decision) => {
                    admission.responder().decorate(decision, response);
                }
                ResponseWork::Settle(_) => return self.settle(polled, cx),
            }
        }
        polled
    }
}

impl<S, B, L, R, ResBody> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    /// Corrects the charge of a request by its response.
    #[inline(never)]
    fn settle(
        mut self: Pin<&mut Self>,
        polled: Poll<Result<Response<ResBody>, S::Error>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<ResBody>, S::Error>> {
        let mut this = self.as_mut().project();
        let mut response = ready!(polled)?;
        if let ResponseWork::Settle(reservation) = this.response_work
            && reservation.follows_body(&mut response)
        {
            return Poll::Ready(Ok(response));
        }
        let ResponseWork::Settle(reservation) =
            mem::replace(this.response_work, ResponseWork::Nothing)
        else {
            return Poll::Ready(Ok(response));
        };
        match reservation.settle(response) {
            Ok(response) => Poll::Ready(Ok(response)),
            Err(correcting) => {
                this.state.set(State::Correcting { correcting });
                self.poll_rare(cx)
            }
        }
    }

    /// Polls in a state without an inner service that runs.
    #[inline(never)]
    fn poll_rare(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<ResBody>, S::Error>> {
        let mut this = self.as_mut().project();
        match this.state.as_mut().project() {
            StateProjection::Waiting { waiting } => {
                let Self {
                    response_work,
                    state,
                } = ready!(waiting.poll(cx));
                *this.response_work = response_work;
                this.state.set(state);
                self.poll(cx)
            }
            StateProjection::Correcting { correcting } => correcting.poll(cx).map(Ok),
            StateProjection::Rejected { response } => {
                let response = response.take().expect("polled after it was ready");
                Poll::Ready(Ok(response))
            }
            StateProjection::Running { .. } => self.poll(cx),
        }
    }
}

impl<S, B, L, R> fmt::Debug for ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
