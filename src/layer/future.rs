use std::{
    fmt,
    future::{Future, IntoFuture},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::{
    gate::{Exempt, Gate},
    ticket::Ticket,
};
use crate::{
    decision::Decision,
    key::Key,
    limiter::{Limiter, Pending, PendingFuture},
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

/// What comes of a request, and what the limiter was asked about it.
type Judged = Result<(Decision, Ticket), Exempt>;

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct Waiting<S, B, L, R> {
    judged: Pin<Box<dyn Future<Output = Judged> + Send>>,
    gate: Arc<Gate<L, R>>,
    inner: S,
    request: Option<(Parts, B)>,
}

/// What is done when the response is there.
struct FollowUp<L, R> {
    gate: Arc<Gate<L, R>>,
    decision: Decision,
    /// Kept where the response may change what was charged; boxed, because elsewhere the room for
    /// it would be moved about with every request.
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

impl<S, B, L, R, ResBody> ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    /// Asks the limiter, and calls the inner service at once if the answer is there and is yes.
    #[inline]
    pub(super) fn new(gate: &Arc<Gate<L, R>>, inner: &mut S, request: Request<B>) -> Self
    where
        S: Clone,
    {
        let (mut parts, body) = request.into_parts();
        // A block, so that nothing is left to be dropped after the call: its future is then built
        // where it stays.
        let follow_up = {
            if let Some(exempt) = gate.exempt(&parts) {
                return State::exempt(exempt, gate, inner, parts, body).into();
            }
            let extracted = gate.extract(&parts);
            let ticket = match gate.ticket(&extracted, &parts) {
                Ok(ticket) => ticket,
                Err(exempt) => return State::exempt(exempt, gate, inner, parts, body).into(),
            };
            let mut answer = gate.ask(ticket);
            let decision = match &mut answer {
                Pending::Ready(Ok(decision)) if !gate.has_to_wait(decision) => decision,
                _ => return State::waiting(answer, ticket, gate, inner, parts, body).into(),
            };
            match FollowUp::admit(decision, ticket, gate, &mut parts) {
                Ok(follow_up) => follow_up,
                Err(response) => return State::rejected(response).into(),
            }
        };
        Self {
            state: State::Running {
                response: inner.call(Request::from_parts(parts, body)),
                follow_up,
            },
        }
    }
}

impl<S, B, L, R> From<State<S, B, L, R>> for ResponseFuture<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    fn from(state: State<S, B, L, R>) -> Self {
        Self { state }
    }
}

impl<S, B, L, R, ResBody> State<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    /// Of a request that no decision is about.
    #[cold]
    fn exempt(exempt: Exempt, gate: &Gate<L, R>, inner: &mut S, parts: Parts, body: B) -> Self {
        match exempt {
            Exempt::Uncounted => Self::running(None, inner, parts, body),
            Exempt::Refused(kind) => Self::rejected(gate.voice().refuse(&parts, kind)),
        }
    }

    /// Of one that cannot be judged at once.
    #[inline(never)]
    fn waiting(
        answer: Pending<L::Future>,
        ticket: Ticket<&Key>,
        gate: &Arc<Gate<L, R>>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self
    where
        S: Clone,
    {
        // The clone is not ready; the instance that was polled ready goes along.
        // https://docs.rs/tower/latest/tower/trait.Service.html#be-careful-when-cloning-inner-services
        let unready = inner.clone();
        let waiting = Box::new(Waiting {
            judged: Box::pin(Arc::clone(gate).wait(answer, ticket.keep())),
            gate: Arc::clone(gate),
            inner: mem::replace(inner, unready),
            request: Some((parts, body)),
        });
        Self::Waiting { waiting }
    }

    /// Of one that passes.
    fn running(follow_up: Option<FollowUp<L, R>>, inner: &mut S, parts: Parts, body: B) -> Self {
        Self::Running {
            response: inner.call(Request::from_parts(parts, body)),
            follow_up,
        }
    }

    const fn rejected(response: Response<ResBody>) -> Self {
        Self::Rejected {
            response: Some(response),
        }
    }
}

impl<S, B, L, R, ResBody> Waiting<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
{
    /// The state that what it waits for leads to.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, B, L, R>> {
        let judged = ready!(self.judged.as_mut().poll(cx));
        let (mut parts, body) = self.request.take().expect("polled after it was ready");
        let (gate, inner) = (&self.gate, &mut self.inner);
        Poll::Ready(match judged {
            Err(exempt) => State::exempt(exempt, gate, inner, parts, body),
            Ok((mut decision, ticket)) => {
                match FollowUp::admit(&mut decision, ticket.as_ref(), gate, &mut parts) {
                    Ok(follow_up) => State::running(follow_up, inner, parts, body),
                    Err(response) => State::rejected(response),
                }
            }
        })
    }
}

impl<L: Limiter, R> FollowUp<L, R> {
    /// Lets a request pass that was decided about, and says what is left to be done, for which it
    /// takes the decision; or says what a request that does not pass is answered.
    #[inline]
    fn admit<B>(
        decision: &mut Decision,
        ticket: Ticket<&Key>,
        gate: &Arc<Gate<L, R>>,
        parts: &mut Parts,
    ) -> Result<Option<Self>, Response<B>>
    where
        R: Reject<B>,
    {
        if !gate.passes(decision, ticket) {
            return Err(gate.voice().deny(parts, decision));
        }
        if gate.exposes_decision() {
            parts.extensions.insert(decision.clone());
        }
        let corrects = gate.corrects();
        let follow_up = (corrects || gate.voice().decorates()).then(|| Self {
            gate: Arc::clone(gate),
            decision: decision.take(),
            ticket: corrects.then(|| Box::new(ticket.keep())),
        });
        Ok(follow_up)
    }

    /// Corrects what the request was charged, if its response says so.
    fn correct<B>(self, ticket: &Ticket, response: Response<B>) -> Finished<Response<B>, L, R> {
        let (parts, body) = response.into_parts();
        let answer = self.gate.correct(&parts, &self.decision, ticket.as_ref());
        let mut response = Response::from_parts(parts, body);
        let Some(answer) = answer else {
            self.show(&mut response);
            return Finished::Shown(response);
        };
        Finished::Correcting(Box::new(Correcting {
            answer: Box::pin(answer.into_future()),
            follow_up: self,
            response: Some(response),
        }))
    }

    /// Shows in the response how the quota stands.
    fn show<B>(&self, response: &mut Response<B>) {
        if self.gate.voice().decorates() {
            self.gate.voice().decorate(&self.decision, response);
        }
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
        let mut response = self.response.take().expect("polled after it was ready");
        self.follow_up.show(&mut response);
        Poll::Ready(response)
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
                    let mut response = ready!(response.poll(cx))?;
                    let Some(ticket) = follow_up.as_mut().and_then(|then| then.ticket.take())
                    else {
                        if let Some(follow_up) = follow_up {
                            follow_up.show(&mut response);
                        }
                        return Poll::Ready(Ok(response));
                    };
                    let follow_up = follow_up.take().expect("its ticket was just there");
                    match follow_up.correct(&ticket, response) {
                        Finished::Shown(response) => return Poll::Ready(Ok(response)),
                        Finished::Correcting(correcting) => {
                            state.set(State::Correcting { correcting });
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
