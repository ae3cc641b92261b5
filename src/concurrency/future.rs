//! The response of a service with a limit on concurrency.

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
    admission::{Admitted, PermitAdmission, PermitFate},
    body::ConcurrencyBody,
    in_flight::Permit,
};
use crate::{
    decision::Decision,
    middleware::{front::Exempt, service::take_ready},
    reject::Reject,
};

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
        // Other nodes are asked.
        AwaitingPermit { waiting: Box<AwaitingPermit<S, B, R>> },
        // The inner service works.
        Running { #[pin] response: S::Future, permit: Option<Permit>, shown: Option<Shown<R>> },
        // It was rejected.
        Rejected { response: Option<S::Response> },
    }
}

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct AwaitingPermit<S, B, R> {
    fate: Pin<Box<dyn Future<Output = PermitFate> + Send>>,
    admission: Arc<PermitAdmission<R>>,
    inner: S,
    request: Option<(Parts, B)>,
}

/// The decision that the response has to show.
type Shown<R> = (Arc<PermitAdmission<R>>, Decision);

impl<S, B, R, ResBody> ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
{
    /// Asks for a permit, and calls the inner service at once if there is one.
    pub(super) fn new(
        admission: &Arc<PermitAdmission<R>>,
        inner: &mut S,
        request: Request<B>,
    ) -> Self
    where
        S: Clone,
    {
        let (mut parts, body) = request.into_parts();
        let state = match admission.ask(&mut parts) {
            Admitted::Now(fate) => State::judged(fate, admission, inner, parts, body),
            Admitted::Later(fate) => State::AwaitingPermit {
                waiting: Box::new(AwaitingPermit {
                    fate,
                    admission: Arc::clone(admission),
                    inner: take_ready(inner),
                    request: Some((parts, body)),
                }),
            },
        };
        Self { state }
    }
}

impl<S, B, R, ResBody> State<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
{
    fn judged(
        fate: PermitFate,
        admission: &Arc<PermitAdmission<R>>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self {
        let responder = admission.responder();
        let (permit, shown) = match fate {
            PermitFate::Pass(permit, decision) => {
                let shown = responder.decorates();
                (permit, shown.then(|| (Arc::clone(admission), decision)))
            }
            PermitFate::Exempt(Exempt::Pass) => (None, None),
            PermitFate::Exempt(Exempt::Reject(kind)) => {
                return Self::rejected(responder.refuse(&parts, kind));
            }
            PermitFate::Deny(decision) => return Self::rejected(responder.deny(&parts, &decision)),
        };
        Self::Running {
            response: inner.call(Request::from_parts(parts, body)),
            permit,
            shown,
        }
    }

    const fn rejected(response: Response<ResBody>) -> Self {
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
    /// The state that the fate leads to.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, B, R>> {
        let fate = ready!(self.fate.as_mut().poll(cx));
        let (parts, body) = self.request.take().expect("polled after it was ready");
        let (admission, inner) = (&self.admission, &mut self.inner);
        Poll::Ready(State::judged(fate, admission, inner, parts, body))
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
                    let judged = ready!(waiting.poll(cx));
                    state.set(judged);
                }
                StateProjection::Running {
                    response,
                    permit,
                    shown,
                } => {
                    let answer = ready!(response.poll(cx));
                    // Taken before the error is passed on, which ends the request.
                    let permit = permit.take();
                    let mut response = answer?;
                    if let Some((admission, decision)) = shown {
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
