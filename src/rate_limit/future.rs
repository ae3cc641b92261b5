//! The response of a service that is rate limited.

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

#[cfg(feature = "rules")]
use super::desk::{DeskAnswer, DeskStep};
use super::{
    admission::{Admission, Unasked, Unsettled},
    demand::{Course, Demand, DemandRef},
    follow_up::{First, FollowUp},
    reservation::Correcting,
    trial::{NextStep, Trial},
};
use crate::{
    decision::Decision,
    error::LimiterError,
    limiter::Limiter,
    middleware::{front::Exempt, service::take_ready},
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
        follow_up: FollowUp<L, R>,
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
        Running { #[pin] response: S::Future },
        // The response is there, and what it cost is corrected.
        Correcting { correcting: Box<Correcting<S::Response, L, R>> },
        // It was rejected.
        Rejected { response: Option<S::Response> },
    }
}

/// The end of a trial, the charge that the limiter was asked for, and its way.
type Tried = (Result<Decision, LimiterError>, Demand, Course);

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct Waiting<S, B, L, R> {
    tried: Pin<Box<dyn Future<Output = Tried> + Send>>,
    admission: Arc<Admission<L, R>>,
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
    /// Asks the limiter, and calls the inner service at once if the answer is there and is yes.
    #[inline]
    pub(super) fn new(admission: &Arc<Admission<L, R>>, inner: &mut S, request: Request<B>) -> Self
    where
        S: Clone,
    {
        let (mut parts, body) = request.into_parts();
        // The block drops everything else before the inner service is called.
        let follow_up = {
            if let Some(why) = admission.exempts(&parts) {
                return Self::unasked(why, admission, inner, parts, body);
            }
            let extracted = admission.extract(&parts);
            let mut demand = match admission.key_of(&extracted) {
                Ok(key) => Demand::usual(key),
                Err(why) => return Self::unasked(why, admission, inner, parts, body),
            };
            let mut tier = None;
            if let Some(why) = admission.complete(&mut demand, &mut tier, &parts) {
                return Self::unasked(why, admission, inner, parts, body);
            }
            match First::ask(demand, admission, &mut parts) {
                First::Passes(follow_up) => follow_up,
                First::Rejected(response) => return Self::rejected(response),
                First::Open(open) => return Self::tried(open, admission, inner, parts, body),
            }
        };
        Self {
            follow_up,
            state: State::running(inner, parts, body),
        }
    }

    /// The future of a request that a desk was asked about. One place for the request to go from: it
    /// is long, and each call that it is handed on by would move it.
    #[cfg(feature = "rules")]
    #[inline(always)]
    pub(crate) fn answered(
        answer: DeskAnswer<L, R, ResBody>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self
    where
        S: Clone,
    {
        match answer.0 {
            DeskStep::Passes(follow_up) => Self {
                state: State::running(inner, parts, body),
                follow_up,
            },
            DeskStep::Rejected(response) => Self::rejected(response),
            DeskStep::Open(open, admission) => Self::tried(open, &admission, inner, parts, body),
            DeskStep::Unasked(why, admission) => Self::unasked(why, &admission, inner, parts, body),
        }
    }

    /// The future of a request that the limiter is not asked about at once.
    #[cold]
    #[inline(never)]
    pub(super) fn unasked(
        unasked: Unasked,
        admission: &Arc<Admission<L, R>>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self
    where
        S: Clone,
    {
        match unasked {
            Unasked::Exempt(exempt) => Self::exempt(exempt, admission, inner, parts, body),
            Unasked::InLine(demand) => {
                let unsettled = Unsettled {
                    demand,
                    answer: None,
                };
                Self::tried(unsettled, admission, inner, parts, body)
            }
        }
    }

    /// The future of a request that the limiter is not asked about.
    #[cold]
    fn exempt(
        exempt: Exempt,
        admission: &Admission<L, R>,
        inner: &mut S,
        mut parts: Parts,
        body: B,
    ) -> Self {
        match exempt {
            Exempt::Pass => {
                admission.expose_exemption::<ResBody>(&mut parts.extensions);
                Self {
                    state: State::running(inner, parts, body),
                    follow_up: FollowUp::Nothing,
                }
            }
            Exempt::Reject(kind) => Self::rejected(admission.responder().refuse(&parts, kind)),
        }
    }

    /// The future of a request that the limiter's first answer does not settle, or that was not asked
    /// about yet.
    #[cold]
    #[inline(never)]
    fn tried(
        unsettled: Unsettled<L::Future>,
        admission: &Arc<Admission<L, R>>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self
    where
        S: Clone,
    {
        let demand = unsettled.demand.as_ref();
        let mut trial = Trial::new(demand);
        match trial.try_now(unsettled.answer, admission, demand) {
            NextStep::Done(answer) => Self::judged(
                answer,
                demand,
                trial.course(),
                admission,
                inner,
                parts,
                body,
            ),
            next => Self::waiting(trial, next, demand, admission, inner, parts, body),
        }
    }

    /// The future of a request whose trial takes time.
    fn waiting(
        mut trial: Trial,
        next: NextStep<L::Future>,
        demand: DemandRef<'_>,
        admission: &Arc<Admission<L, R>>,
        inner: &mut S,
        parts: Parts,
        body: B,
    ) -> Self
    where
        S: Clone,
    {
        let (demand, asking) = (demand.keep(), Arc::clone(admission));
        let tried = async move {
            let answer = trial.finish(next, &asking, demand.as_ref()).await;
            (answer, demand, *trial.course())
        };
        let waiting = Box::new(Waiting {
            tried: Box::pin(tried),
            admission: Arc::clone(admission),
            inner: take_ready(inner),
            request: Some((parts, body)),
        });
        Self {
            state: State::Waiting { waiting },
            follow_up: FollowUp::Nothing,
        }
    }

    /// The future of a request whose trial is over.
    fn judged(
        answer: Result<Decision, LimiterError>,
        demand: DemandRef<'_>,
        course: &Course,
        admission: &Arc<Admission<L, R>>,
        inner: &mut S,
        mut parts: Parts,
        body: B,
    ) -> Self {
        let mut decision = match admission.judge(answer) {
            Ok(decision) => decision,
            Err(exempt) => return Self::exempt(exempt, admission, inner, parts, body),
        };
        match FollowUp::admit(&mut decision, demand, course, admission, &mut parts) {
            Ok(follow_up) => Self {
                state: State::running(inner, parts, body),
                follow_up,
            },
            Err(response) => Self::rejected(response),
        }
    }

    const fn rejected(response: Response<ResBody>) -> Self {
        Self {
            state: State::Rejected {
                response: Some(response),
            },
            follow_up: FollowUp::Nothing,
        }
    }
}

impl<S, B, L, R> State<S, B, L, R>
where
    S: Service<Request<B>>,
    L: Limiter,
{
    /// The state of a request that passes.
    #[inline]
    fn running(inner: &mut S, parts: Parts, body: B) -> Self {
        Self::Running {
            response: inner.call(Request::from_parts(parts, body)),
        }
    }
}

impl<S, B, L, R, ResBody> Waiting<S, B, L, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    /// The future that what it waits for leads to.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ResponseFuture<S, B, L, R>> {
        let (answer, demand, course) = ready!(self.tried.as_mut().poll(cx));
        let (parts, body) = self.request.take().expect("polled after it was ready");
        let (admission, inner) = (&self.admission, &mut self.inner);
        let demand = demand.as_ref();
        Poll::Ready(ResponseFuture::judged(
            answer, demand, &course, admission, inner, parts, body,
        ))
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
        // The response, which is large, stays where the inner future puts it.
        let mut polled = response.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled {
            match this.follow_up {
                FollowUp::Nothing => {}
                FollowUp::ShowFigures(admission, figures) => {
                    admission.responder().decorate_with(figures, response);
                }
                FollowUp::Show(admission, decision) => {
                    admission.responder().decorate(decision, response);
                }
                FollowUp::Settle(_) => return self.settle(polled, cx),
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
    /// Goes on with a response that says what its request costs.
    #[inline(never)]
    fn settle(
        mut self: Pin<&mut Self>,
        polled: Poll<Result<Response<ResBody>, S::Error>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<ResBody>, S::Error>> {
        let mut this = self.as_mut().project();
        let response = ready!(polled)?;
        let FollowUp::Settle(reservation) = mem::replace(this.follow_up, FollowUp::Nothing) else {
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

    /// Goes on in a state in which the inner service does not work.
    #[inline(never)]
    fn poll_rare(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<ResBody>, S::Error>> {
        let mut this = self.as_mut().project();
        match this.state.as_mut().project() {
            StateProjection::Waiting { waiting } => {
                let Self { follow_up, state } = ready!(waiting.poll(cx));
                *this.follow_up = follow_up;
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
