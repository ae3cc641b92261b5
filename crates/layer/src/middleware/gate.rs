//! The service of every layer that decides about requests, and its response.
//!
//! In: a request. Out: the response of the inner service, or a rejection.
//!
//! 1. [`Gate::call`] learns from an [`Admits`] what is [`Begun`] by the request's extensions alone. Otherwise it takes the request
//!    apart, and the answer is a [`RequestOutcome`].
//! 2. A request that passes goes to the instance of the inner service that was polled ready. A request whose decision takes
//!    time takes that instance along. A rejection drops it, since the instance may hold what it got for a call.
//! 3. The response of a request that passed stays where the inner future puts it, unless something follows its body.
//!    The work that the decision left, `Work`, adds the fields. If the response settles the charge, and the limiter does
//!    not answer at once, the response waits (`Late`).
//!
//! Example: a layer counts responses with 401 only. A login is charged, its work is a reservation, and the response has
//! 200: [`Admits::settle`] refunds the unit before the response leaves.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    mem,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Extensions, Request, Response, request::Parts};
use tower_service::Service;

use tower_ratelimit_core::{decision::Decision, key::Key};

/// The outcome of a layer's decision about a request, for every service and for callers that find
/// the key themselves.
#[allow(missing_debug_implementations, reason = "users only name it")]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum RequestOutcome<P, B, D> {
    /// The inner service is called; `P` is the work that its response leaves.
    Pass(P),
    Reject(Response<B>),
    /// The decision takes time; `D` completes it.
    Defer(D),
}

/// The outcome of a request once its decision is complete. Each decision writes it in its place: a
/// response is long, and each conversion would move it.
pub type FinalOutcome<P, B> = RequestOutcome<P, B, Infallible>;

/// The outcome for a request before it is taken apart.
#[allow(missing_debug_implementations, reason = "users only name it")]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum Begun<W> {
    /// It passes.
    Pass(W),
    /// This key is denied.
    Denied(Key, Decision),
    Nothing,
}

/// A decision about requests: its types without those of bodies.
pub trait Admit {
    /// The work that is left when the response comes; by default none.
    type Work: Default;
    /// A decision that takes time.
    type Deferred;
    /// The correction that a response waits for.
    type Late;
}

/// Decides about requests in front of a service whose bodies are `B`.
pub trait Admits<B>: Admit {
    /// `B` itself, or what follows it.
    type Body;

    /// Decides about a request by its extensions, if these are enough.
    #[inline(always)]
    fn begin(&self, extensions: &Extensions) -> Begun<Self::Work> {
        let _ = extensions;
        Begun::Nothing
    }

    fn decide(&self, parts: &mut Parts) -> RequestOutcome<Self::Work, B, Self::Deferred>;

    /// Decides about a request that was denied before it was taken apart.
    fn decide_denied(
        &self,
        key: &Key,
        decision: Decision,
        parts: &mut Parts,
    ) -> RequestOutcome<Self::Work, B, Self::Deferred> {
        let _ = (key, decision);
        self.decide(parts)
    }

    fn poll_decision(
        deferred: &mut Self::Deferred,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<FinalOutcome<Self::Work, B>>;

    /// Adds the fields of the decision; `Break` if the response settles the charge of its request first.
    fn show(work: &mut Self::Work, response: &mut Response<B>) -> ControlFlow<()>;

    /// Settles the charge by the response; `Some` if the response has to wait for that.
    fn settle(_: &mut Self::Work, _: &mut Response<B>) -> Option<Self::Late> {
        None
    }

    fn poll_late(_: &mut Self::Late, _: &mut Response<B>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Follows the body of a response, if something has to.
    fn wrap<E>(
        work: &mut Self::Work,
        polled: Poll<Result<Response<B>, E>>,
    ) -> Poll<Result<Response<Self::Body>, E>>;
}

/// A service whose requests a layer decides about. Its names are those of the layers' services, such as
/// [`RateLimit`](crate::rate_limit::RateLimit).
///
/// Clones share the layer's state. The inner service has to be `Clone`: while a request waits,
/// for a shared limiter's answer or for its turn, it keeps the instance that was ready for it, and
/// a clone takes that one's place.
#[derive(Clone)]
pub struct Gate<S, A> {
    inner: S,
    admit: A,
}

impl<S, A> Gate<S, A> {
    #[doc(hidden)]
    pub const fn new(inner: S, admit: A) -> Self {
        Self { inner, admit }
    }

    crate::inner_service!(S);
}

impl<S, A, ReqBody, ResBody> Service<Request<ReqBody>> for Gate<S, A>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    A: Admits<ResBody>,
{
    type Response = Response<A::Body>;
    type Error = S::Error;
    type Future = GateFuture<S, ReqBody, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    // Within its caller the future would be built apart and then moved to its place.
    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let admit = &self.admit;
        match admit.begin(request.extensions()) {
            Begun::Pass(work) => GateFuture {
                state: State::Running {
                    response: self.inner.call(request),
                },
                work,
            },
            Begun::Denied(key, decision) => self.denied(request, &key, decision),
            Begun::Nothing => {
                GateFuture::new(&mut self.inner, request, |parts| admit.decide(parts))
            }
        }
    }
}

impl<S, A> Gate<S, A> {
    #[inline(never)]
    fn denied<B, ResBody>(
        &mut self,
        request: Request<B>,
        key: &Key,
        decision: Decision,
    ) -> GateFuture<S, B, A>
    where
        S: Service<Request<B>, Response = Response<ResBody>> + Clone,
        A: Admits<ResBody>,
    {
        let admit = &self.admit;
        GateFuture::new(&mut self.inner, request, |parts| {
            admit.decide_denied(key, decision, parts)
        })
    }
}

impl<S: fmt::Debug, A> fmt::Debug for Gate<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`Gate`].
    ///
    /// It can be dropped at any time: units that were charged stay charged, and permits come back.
    pub struct GateFuture<S, B, A>
    where
        S: Service<Request<B>>,
        A: Admit,
    {
        work: A::Work,
        #[pin]
        state: State<S, B, A>,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<S, B, A>
    where
        S: Service<Request<B>>,
        A: Admit,
    {
        // The decision takes time.
        Deciding { waiting: Box<WaitingRequest<S, B, A::Deferred>> },
        // The inner service runs.
        Running { #[pin] response: S::Future },
        // The response waits for the correction of its charge.
        Late { late: Box<(A::Late, Option<S::Response>)> },
        // The request was rejected.
        Rejected { response: Option<S::Response> },
    }
}

/// A request that waits; boxed, so that one that does not wait carries no room for it.
struct WaitingRequest<S, B, D> {
    deferred: D,
    inner: S,
    request: Option<(Parts, B)>,
}

impl<S, B, A, ResBody> GateFuture<S, B, A>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    A: Admits<ResBody>,
{
    /// Decides about the request, and calls the inner service at once if it passes now.
    // A request is long, and each call that passes it on would move it, even an inlined one.
    #[inline(always)]
    fn new(
        inner: &mut S,
        request: Request<B>,
        decide: impl FnOnce(&mut Parts) -> RequestOutcome<A::Work, ResBody, A::Deferred>,
    ) -> Self
    where
        S: Clone,
    {
        let (mut parts, body) = request.into_parts();
        match decide(&mut parts) {
            RequestOutcome::Pass(work) => Self {
                state: State::Running {
                    response: inner.call(Request::from_parts(parts, body)),
                },
                work,
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
    fn waiting(deferred: A::Deferred, inner: &mut S, parts: Parts, body: B) -> Self
    where
        S: Clone,
    {
        let waiting = Box::new(WaitingRequest {
            deferred,
            inner: take_ready(inner),
            request: Some((parts, body)),
        });
        Self {
            state: State::Deciding { waiting },
            work: A::Work::default(),
        }
    }

    fn rejected(response: Response<ResBody>) -> Self {
        Self {
            state: State::Rejected {
                response: Some(response),
            },
            work: A::Work::default(),
        }
    }

    /// Corrects the charge of a request by its response.
    #[inline(never)]
    fn settle(
        mut self: Pin<&mut Self>,
        polled: Poll<Result<Response<ResBody>, S::Error>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<A::Body>, S::Error>> {
        let mut this = self.as_mut().project();
        let mut response = ready!(polled)?;
        match A::settle(this.work, &mut response) {
            None => A::wrap(this.work, Poll::Ready(Ok(response))),
            Some(late) => {
                let late = Box::new((late, Some(response)));
                this.state.set(State::Late { late });
                self.poll_rare(cx)
            }
        }
    }

    /// Polls in a state without an inner service that runs.
    #[inline(never)]
    fn poll_rare(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<A::Body>, S::Error>> {
        let mut this = self.as_mut().project();
        let response = match this.state.as_mut().project() {
            StateProjection::Deciding { waiting } => {
                let Self { work, state } = ready!(waiting.poll::<A, _>(cx));
                *this.work = work;
                this.state.set(state);
                return self.poll(cx);
            }
            StateProjection::Running { .. } => return self.poll(cx),
            StateProjection::Late { late } => {
                let (late, response) = &mut **late;
                let shown = response.as_mut().expect("polled after it was ready");
                ready!(A::poll_late(late, shown, cx));
                response
            }
            StateProjection::Rejected { response } => response,
        };
        let response = response.take().expect("polled after it was ready");
        A::wrap(this.work, Poll::Ready(Ok(response)))
    }
}

impl<S, B, D> WaitingRequest<S, B, D> {
    fn poll<A, ResBody>(&mut self, cx: &mut Context<'_>) -> Poll<GateFuture<S, B, A>>
    where
        S: Service<Request<B>, Response = Response<ResBody>>,
        A: Admits<ResBody, Deferred = D>,
    {
        let request = self.request.as_mut();
        let (parts, _) = request.expect("polled after it was ready");
        let admitted = ready!(A::poll_decision(&mut self.deferred, parts, cx));
        let (parts, body) = self.request.take().expect("it was there");
        Poll::Ready(match admitted {
            RequestOutcome::Pass(work) => GateFuture {
                state: State::Running {
                    response: self.inner.call(Request::from_parts(parts, body)),
                },
                work,
            },
            RequestOutcome::Reject(response) => GateFuture::rejected(response),
            RequestOutcome::Defer(never) => match never {},
        })
    }
}

impl<S, B, A, ResBody> Future for GateFuture<S, B, A>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    A: Admits<ResBody>,
{
    type Output = Result<Response<A::Body>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        let StateProjection::Running { response } = this.state.project() else {
            return self.poll_rare(cx);
        };
        // A response is large: it stays where the inner future puts it, unless something follows its body.
        let mut polled = response.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled
            && A::show(this.work, response).is_break()
        {
            return self.settle(polled, cx);
        }
        A::wrap(this.work, polled)
    }
}

impl<S, B, A> fmt::Debug for GateFuture<S, B, A>
where
    S: Service<Request<B>>,
    A: Admit,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateFuture").finish_non_exhaustive()
    }
}

/// Takes the instance that was polled ready, for a request that waits. A clone replaces it, which is not
/// ready.
/// <https://docs.rs/tower/latest/tower/trait.Service.html#be-careful-when-cloning-inner-services>
pub fn take_ready<S: Clone>(inner: &mut S) -> S {
    let unready = inner.clone();
    mem::replace(inner, unready)
}

/// Drops the instance that was polled ready, of a request that is rejected: it may hold what it got for a call, such as
/// a permit. A clone replaces it.
#[cold]
#[inline(never)]
fn drop_ready<S: Clone>(inner: &mut S) {
    drop(take_ready(inner));
}

/// The accessors of a service that keeps the one inside in its field `inner`.
#[doc(hidden)]
#[macro_export]
macro_rules! inner_service {
    ($inner:ty) => {
        /// The inner service.
        pub const fn get_ref(&self) -> &$inner {
            &self.inner
        }

        /// The inner service.
        pub const fn get_mut(&mut self) -> &mut $inner {
            &mut self.inner
        }

        /// The inner service.
        pub fn into_inner(self) -> $inner {
            self.inner
        }
    };
}
