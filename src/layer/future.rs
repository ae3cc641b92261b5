use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::gate::{Gate, Ticket, Verdict};
use crate::{decision::Decision, limiter::Limiter, reject::Reject};

pin_project_lite::pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// It can be dropped at any time: units that were taken stay taken.
    pub struct ResponseFuture<S, B, L, R>
    where
        S: Service<Request<B>>,
        L: Limiter,
    {
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
        // Boxed, so that a request that waits for nothing does not carry the room for it.
        Checking { check: Pin<Box<Checking<S, B, L, R>>> },
        Running { #[pin] response: S::Future, shown: Option<Shown<L, R>> },
        Rejected { response: Option<S::Response> },
    }
}

/// What the response has to show.
type Shown<L, R> = (Arc<Gate<L, R>>, Decision);

pin_project_lite::pin_project! {
    /// A request that waits for the limiter's answer.
    pub(super) struct Checking<S, B, L: Limiter, R> {
        #[pin]
        answer: L::Future,
        ticket: Ticket,
        gate: Arc<Gate<L, R>>,
        inner: S,
        request: Option<Request<B>>,
    }
}

impl<S, B, L: Limiter, R> Checking<S, B, L, R> {
    pub(super) const fn new(
        answer: L::Future,
        ticket: Ticket,
        gate: Arc<Gate<L, R>>,
        inner: S,
        request: Request<B>,
    ) -> Self {
        Self {
            answer,
            ticket,
            gate,
            inner,
            request: Some(request),
        }
    }
}

impl<S, B, L, R> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    pub(super) fn checking(check: Checking<S, B, L, R>) -> Self {
        let check = Box::pin(check);
        Self {
            state: State::Checking { check },
        }
    }
}

impl<S, B, L, R, ResBody> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    pub(super) fn judged(
        verdict: Verdict,
        gate: &Arc<Gate<L, R>>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self {
        Self {
            state: State::judged(verdict, gate, inner, parts, body),
        }
    }
}

impl<S, B, L, R, ResBody> State<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    fn judged(
        verdict: Verdict,
        gate: &Arc<Gate<L, R>>,
        inner: &mut S,
        mut parts: Parts,
        body: B,
    ) -> Self {
        match verdict {
            Verdict::Pass(decision) => {
                if let Some(decision) = decision.as_ref().filter(|_| gate.exposes_decision()) {
                    parts.extensions.insert(decision.clone());
                }
                let shown = decision.filter(|_| gate.decorates());
                Self::Running {
                    response: inner.call(Request::from_parts(parts, body)),
                    shown: shown.map(|decision| (Arc::clone(gate), decision)),
                }
            }
            Verdict::Deny(decision) => Self::Rejected {
                response: Some(gate.deny(&parts, &decision)),
            },
            Verdict::Refuse(kind) => Self::Rejected {
                response: Some(gate.refuse_with(kind, &parts)),
            },
        }
    }
}

impl<S, B, L, R, ResBody> Future for ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    type Output = Result<Response<ResBody>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Checking { check } => {
                    let judged = ready!(check.as_mut().poll_judged(cx));
                    state.set(judged);
                }
                StateProjection::Running { response, shown } => {
                    let mut response = ready!(response.poll(cx))?;
                    if let Some((gate, decision)) = shown {
                        gate.decorate(decision, &mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Rejected { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}

impl<S, B, L, R, ResBody> Checking<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    /// The state that the limiter's answer leads to.
    fn poll_judged(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<State<S, B, L, R>> {
        let check = self.project();
        let answer = ready!(check.answer.poll(cx));
        let verdict = check.gate.settle(answer, check.ticket);
        let request = check.request.take().expect("polled after it was ready");
        let (parts, body) = request.into_parts();
        Poll::Ready(State::judged(verdict, check.gate, check.inner, parts, body))
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
