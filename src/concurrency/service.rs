//! The service that a [`ConcurrencyLayer`](super::ConcurrencyLayer) makes, and its response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tower_service::Service;

use super::{
    admission::{PendingPermit, PermitAdmission, Running},
    body::ConcurrencyBody,
};
use crate::{
    middleware::gate::{RequestOutcome, drop_ready, inner_service, take_ready},
    reject::{ProblemJson, Reject},
};

/// A service that has a limited number of requests in flight for each key. Made by
/// [`ConcurrencyLayer`](crate::ConcurrencyLayer).
///
/// Clones share the layer's permits. The inner service must be `Clone`: while other nodes decide, a
/// request holds the instance that was ready for it, and a clone replaces that instance.
pub struct ConcurrencyLimit<S, R = ProblemJson> {
    inner: S,
    admission: Arc<PermitAdmission<R>>,
}

impl<S, R> ConcurrencyLimit<S, R> {
    pub(super) const fn new(inner: S, admission: Arc<PermitAdmission<R>>) -> Self {
        Self { inner, admission }
    }

    inner_service!(S);
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: Body,
{
    type Response = Response<ConcurrencyBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        ResponseFuture::new(&self.admission, &mut self.inner, request)
    }
}

impl<S: Clone, R> Clone for ConcurrencyLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for ConcurrencyLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit) service.
    ///
    /// It can be dropped at any time: its permit comes back.
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, R>,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<S, B, R>
    where
        S: Service<Request<B>>,
    {
        // Other nodes decide.
        AwaitingPermit { waiting: Box<AwaitingPermit<S, B, R>> },
        // The inner service runs.
        Running { #[pin] response: S::Future, running: Running<R> },
        // The request was rejected.
        Rejected { response: Option<S::Response> },
    }
}

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct AwaitingPermit<S, B, R> {
    deferred: PendingPermit<R>,
    inner: S,
    request: Option<(Parts, B)>,
}

impl<S, B, R, ResBody> ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
{
    /// Decides about the request, and calls the inner service at once if it passes now.
    fn new(admission: &Arc<PermitAdmission<R>>, inner: &mut S, request: Request<B>) -> Self
    where
        S: Clone,
    {
        let (parts, body) = request.into_parts();
        let state = match admission.decide(&parts) {
            RequestOutcome::Pass(running) => State::running(running, inner, parts, body),
            RequestOutcome::Reject(response) => {
                drop_ready(inner);
                State::rejected(response)
            }
            RequestOutcome::Defer(deferred) => State::AwaitingPermit {
                waiting: Box::new(AwaitingPermit {
                    deferred,
                    inner: take_ready(inner),
                    request: Some((parts, body)),
                }),
            },
        };
        Self { state }
    }
}

impl<S, B, R> State<S, B, R>
where
    S: Service<Request<B>>,
{
    fn running(running: Running<R>, inner: &mut S, parts: Parts, body: B) -> Self {
        Self::Running {
            response: inner.call(Request::from_parts(parts, body)),
            running,
        }
    }

    const fn rejected(response: S::Response) -> Self {
        Self::Rejected {
            response: Some(response),
        }
    }
}

impl<S, B, R, ResBody> AwaitingPermit<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
{
    /// The state of the request once it is decided.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, B, R>> {
        let (parts, _) = self.request.as_ref().expect("polled after it was ready");
        let admitted = ready!(self.deferred.poll(parts, cx));
        let (parts, body) = self.request.take().expect("it was there");
        Poll::Ready(match admitted {
            RequestOutcome::Pass(running) => State::running(running, &mut self.inner, parts, body),
            RequestOutcome::Reject(response) => State::rejected(response),
            RequestOutcome::Defer(never) => match never {},
        })
    }
}

impl<S, B, R, ResBody> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
    ResBody: Body,
{
    type Output = Result<Response<ConcurrencyBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        let (response, permit) = loop {
            match state.as_mut().project() {
                StateProjection::AwaitingPermit { waiting } => {
                    let decided = ready!(waiting.poll(cx));
                    state.set(decided);
                }
                StateProjection::Running { response, running } => {
                    let result = ready!(response.poll(cx));
                    // Taken before the error is returned, which ends the request.
                    let permit = running.permit.take();
                    let mut response = result?;
                    if let Some((admission, decision)) = &running.shown {
                        admission.responder().decorate(decision, &mut response);
                    }
                    break (response, permit);
                }
                StateProjection::Rejected { response } => {
                    let response = response.take().expect("polled after it was ready");
                    break (response, None);
                }
            }
        };
        Poll::Ready(Ok(response.map(|body| ConcurrencyBody::new(body, permit))))
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
