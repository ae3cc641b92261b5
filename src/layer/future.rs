use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::gate::{Gate, Ticket, Verdict};
use crate::{
    decision::Decision,
    limiter::{Limiter, PendingFuture},
    reject::Reject,
};

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
        // The limiter thinks, or the request waits for its turn.
        Waiting { waiting: Box<Waiting<S, B, L, R>> },
        // The inner service works.
        Running { #[pin] response: S::Future, follow_up: Option<FollowUp<L, R>> },
        // The response is there, and what it cost is corrected.
        Correcting { correcting: Box<Correcting<S::Response, L, R>> },
        // It was rejected.
        Rejected { response: Option<S::Response> },
    }
}

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct Waiting<S, B, L, R> {
    verdict: Pin<Box<dyn Future<Output = Verdict> + Send>>,
    gate: Arc<Gate<L, R>>,
    inner: S,
    request: Option<(Parts, B)>,
}

/// What is done when the response is there.
struct FollowUp<L, R> {
    gate: Arc<Gate<L, R>>,
    decision: Decision,
    ticket: Option<Box<Ticket>>,
}

/// A response that is there.
enum Finished<P, L: Limiter, R> {
    /// It is complete.
    Shown(P),
    /// What it cost is corrected.
    Correcting(Box<Correcting<P, L, R>>),
}

/// A response that waits for the limiter to correct what it cost.
struct Correcting<P, L: Limiter, R> {
    answer: Pin<Box<PendingFuture<L::Future>>>,
    follow_up: FollowUp<L, R>,
    response: Option<P>,
}

impl<S, B, L, R> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    pub(super) fn waiting(
        verdict: impl Future<Output = Verdict> + Send + 'static,
        gate: Arc<Gate<L, R>>,
        inner: S,
        parts: Parts,
        body: B,
    ) -> Self {
        let waiting = Box::new(Waiting {
            verdict: Box::pin(verdict),
            gate,
            inner,
            request: Some((parts, body)),
        });
        Self {
            state: State::Waiting { waiting },
        }
    }
}

impl<S, B, L, R, ResBody> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    #[inline]
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
    #[inline]
    fn judged(
        verdict: Verdict,
        gate: &Arc<Gate<L, R>>,
        inner: &mut S,
        mut parts: Parts,
        body: B,
    ) -> Self {
        let follow_up = match verdict {
            Verdict::PassUnseen => None,
            Verdict::Pass(decision, ticket) => {
                if gate.exposes_decision() {
                    parts.extensions.insert(decision.clone());
                }
                gate.follows_up().then(|| FollowUp {
                    gate: Arc::clone(gate),
                    decision,
                    ticket,
                })
            }
            Verdict::Deny(decision) => {
                return Self::Rejected {
                    response: Some(gate.voice().deny(&parts, &decision)),
                };
            }
            Verdict::Refuse(kind) => {
                return Self::Rejected {
                    response: Some(gate.voice().refuse(&parts, kind)),
                };
            }
        };
        Self::Running {
            response: inner.call(Request::from_parts(parts, body)),
            follow_up,
        }
    }
}

impl<S, B, L, R, ResBody> Waiting<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    /// The state that the verdict leads to.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, B, L, R>> {
        let verdict = ready!(self.verdict.as_mut().poll(cx));
        let (parts, body) = self.request.take().expect("polled after it was ready");
        let state = State::judged(verdict, &self.gate, &mut self.inner, parts, body);
        Poll::Ready(state)
    }
}

impl<L: Limiter, R> FollowUp<L, R> {
    /// Corrects what the response cost, if it has to be, and shows in it how the quota stands; or
    /// says what has to be waited for.
    #[inline]
    fn finish<B>(slot: &mut Option<Self>, response: Response<B>) -> Finished<Response<B>, L, R> {
        let Some(follow_up) = slot else {
            return Finished::Shown(response);
        };
        let Some(ticket) = &follow_up.ticket else {
            return Finished::Shown(follow_up.show(response));
        };
        let (parts, body) = response.into_parts();
        let correction = (follow_up.gate).correct(&parts, &follow_up.decision, ticket);
        let response = Response::from_parts(parts, body);
        let Some(answer) = correction else {
            return Finished::Shown(follow_up.show(response));
        };
        Finished::Correcting(Box::new(Correcting {
            answer: Box::pin(answer.into_future()),
            follow_up: slot.take().expect("it was just there"),
            response: Some(response),
        }))
    }

    fn show<B>(&self, mut response: Response<B>) -> Response<B> {
        if self.gate.voice().decorates() {
            self.gate.voice().decorate(&self.decision, &mut response);
        }
        response
    }
}

impl<B, L: Limiter, R> Correcting<Response<B>, L, R> {
    /// The response, showing how the quota stands after the correction; if that failed, before it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<B>> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        if let Ok(decision) = answer {
            // The request has passed, even if it took more than there was: no wait is to be shown.
            self.follow_up.decision = decision.into_excess();
        }
        let response = self.response.take().expect("polled after it was ready");
        Poll::Ready(self.follow_up.show(response))
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
                StateProjection::Waiting { waiting } => {
                    let judged = ready!(waiting.poll(cx));
                    state.set(judged);
                }
                StateProjection::Running {
                    response,
                    follow_up,
                } => {
                    let response = ready!(response.poll(cx))?;
                    match FollowUp::finish(follow_up, response) {
                        Finished::Shown(response) => return Poll::Ready(Ok(response)),
                        Finished::Correcting(correcting) => {
                            state.set(State::Correcting { correcting })
                        }
                    }
                }
                StateProjection::Correcting { correcting } => {
                    return correcting.poll(cx).map(Ok);
                }
                StateProjection::Rejected { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response));
                }
            }
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
