//! The response of a service that is rate limited.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::{
    admission::{Admission, Opening, Unsettled},
    demand::{Course, Demand, DemandRef},
    reservation::{Correcting, Reservation, Reserved},
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

/// The end of a trial, the charge that the limiter was asked for, and its way.
type Tried = (Result<Decision, LimiterError>, Demand, Course);

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct Waiting<S, B, L, R> {
    tried: Pin<Box<dyn Future<Output = Tried> + Send>>,
    admission: Arc<Admission<L, R>>,
    inner: S,
    request: Option<(Parts, B)>,
}

/// The work that is left when the response is there.
struct FollowUp<L, R> {
    admission: Arc<Admission<L, R>>,
    decision: Decision,
    /// Kept where the response may change what was charged; boxed, because elsewhere the room for it
    /// would be moved about with every request.
    reserved: Option<Box<Reserved>>,
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
        let opening = admission.ask(&mut parts, |demand, decision, parts| {
            FollowUp::admit(decision, demand, &Course::DIRECT, admission, parts)
        });
        let follow_up = match opening {
            Opening::Settled(Ok(follow_up)) => follow_up,
            Opening::Settled(Err(response)) => return State::rejected(response).into(),
            Opening::Open(unsettled) => {
                return State::tried(unsettled, admission, inner, parts, body).into();
            }
            Opening::Exempt(exempt) => {
                return State::exempt(exempt, admission, inner, parts, body).into();
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
    ResBody: 'static,
{
    /// The state of a request that the limiter is not asked about.
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
                Self::running(None, inner, parts, body)
            }
            Exempt::Reject(kind) => Self::rejected(admission.responder().refuse(&parts, kind)),
        }
    }

    /// The state of a request that the limiter's first answer does not settle, or that was not asked
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

    /// The state of a request whose trial takes time.
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
        Self::Waiting { waiting }
    }

    /// The state of a request whose trial is over.
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
            Ok(follow_up) => Self::running(follow_up, inner, parts, body),
            Err(response) => Self::rejected(response),
        }
    }

    /// The state of a request that passes.
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
    ResBody: 'static,
{
    /// The state that what it waits for leads to.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, B, L, R>> {
        let (answer, demand, course) = ready!(self.tried.as_mut().poll(cx));
        let (parts, body) = self.request.take().expect("polled after it was ready");
        let (admission, inner) = (&self.admission, &mut self.inner);
        let demand = demand.as_ref();
        Poll::Ready(State::judged(
            answer, demand, &course, admission, inner, parts, body,
        ))
    }
}

impl<L: Limiter, R> FollowUp<L, R> {
    /// Admits a request that was decided about and says what its response needs, for which it takes
    /// the decision; or says what a request that does not pass is answered.
    #[inline]
    fn admit<B: 'static>(
        decision: &mut Decision,
        demand: DemandRef<'_>,
        course: &Course,
        admission: &Arc<Admission<L, R>>,
        parts: &mut Parts,
    ) -> Result<Option<Self>, Response<B>>
    where
        R: Reject<B>,
    {
        admission.look(demand, parts);
        if !admission.passes(decision, demand, course) {
            return Err(admission.responder().deny(parts, decision));
        }
        admission.expose::<B>(demand.key, decision, &mut parts.extensions);
        // A request that only a shadow let pass was charged nothing.
        let corrects = admission.corrects() && decision.is_allowed();
        Ok(
            (corrects || admission.responder().decorates()).then(|| Self {
                admission: Arc::clone(admission),
                decision: decision.take(),
                reserved: corrects.then(|| Reserved::boxed(demand, course.exceeds)),
            }),
        )
    }
}

impl<L, R> FollowUp<L, R> {
    /// The charge that the response may change.
    fn reservation(&mut self) -> Option<Box<Reservation<L, R>>> {
        let reserved = self.reserved.take()?;
        let decision = self.decision.take();
        Some(Reservation::boxed(&self.admission, decision, reserved))
    }
}

/// Without a response, what was charged stays as it is.
impl<L, R> Drop for FollowUp<L, R> {
    #[inline]
    fn drop(&mut self) {
        if self.reserved.is_some() {
            drop(self.reservation());
        }
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
                    let Some(then) = follow_up else {
                        return Poll::Ready(Ok(response));
                    };
                    let Some(reservation) = then.reservation() else {
                        then.admission
                            .responder()
                            .decorate(&then.decision, &mut response);
                        return Poll::Ready(Ok(response));
                    };
                    match reservation.settle(response) {
                        Ok(response) => return Poll::Ready(Ok(response)),
                        Err(correcting) => state.set(State::Correcting { correcting }),
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
