//! The service whose responses hold the permits of `in_flight`.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    future::RulesFuture,
    handle::Shared,
    permits::{AwaitingPermits, decide_holding, request_permits},
    rule_admissions::Admissions,
    service::decide_by_verdict,
};
use crate::{
    concurrency::{ConcurrencyBody, HeldPermits},
    middleware::gate::{inner_service, take_ready},
    rate_limit::{SpendBody, follow},
    reject::{ProblemJson, Reject},
};

/// The body of a response that holds permits, and that `spend` follows.
type FollowedBody<B> = SpendBody<ConcurrencyBody<B>>;

/// A service whose requests are limited by rules, and whose responses hold permits. Created by
/// [`HoldingRulesLayer`](super::HoldingRulesLayer).
pub struct HoldingRulesLimit<S, R = ProblemJson> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> HoldingRulesLimit<S, R> {
    pub(super) const fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
        Self { inner, shared }
    }

    inner_service!(S);
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for HoldingRulesLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type Response = Response<FollowedBody<ResBody>>;
    type Error = S::Error;
    type Future = HoldingRulesFuture<S, ReqBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let admissions = self.shared.admissions.load();
        if admissions.rules.awaits_permits() {
            let admissions = Arc::clone(&admissions);
            return HoldingRulesFuture::of_nodes(admissions, &mut self.inner, request);
        }
        let mut permits = HeldPermits::default();
        let held = &mut permits;
        let response = RulesFuture::new(&mut self.inner, request, move |parts, watched| {
            // Moved here, so that it is dropped before the inner service is called.
            let admissions = admissions;
            let now = admissions.rules.begin(&mut parts.headers);
            if admissions.rules.has_in_flight() {
                return decide_holding(&admissions, now, held, watched, parts);
            }
            let verdict = admissions.rules.select(parts, now);
            decide_by_verdict(&admissions, &verdict, watched, parts)
        });
        HoldingRulesFuture::decided(response, permits)
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`HoldingRulesLimit`] service.
    ///
    /// Dropping it is safe at any time: its permits are released.
    pub struct HoldingRulesFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, R>,
        permits: HeldPermits,
    }
}

pin_project_lite::pin_project! {
    #[project = StateProjection]
    enum State<S, B, R>
    where
        S: Service<Request<B>>,
    {
        // Other nodes decide about the permits.
        AwaitingPermits { waiting: Box<AwaitingPermits<S, B, R>> },
        // The quotas decide, or have decided.
        Decided { #[pin] response: RulesFuture<S, B, R> },
    }
}

impl<S, B, R> HoldingRulesFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    #[inline(always)]
    const fn decided(response: RulesFuture<S, B, R>, permits: HeldPermits) -> Self {
        Self {
            state: State::Decided { response },
            permits,
        }
    }
}

impl<S, B, R, ResBody> HoldingRulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: 'static,
{
    /// Requests the permits that other nodes count, too.
    #[cold]
    #[inline(never)]
    fn of_nodes(admissions: Arc<Admissions<R>>, inner: &mut S, request: Request<B>) -> Self {
        let (mut parts, body) = request.into_parts();
        let now = admissions.rules.begin(&mut parts.headers);
        let (verdict, requested) = request_permits(&admissions, now, &parts);
        if requested.is_empty() {
            let request = Request::from_parts(parts, body);
            let response = RulesFuture::new(inner, request, |parts, watched| {
                decide_by_verdict(&admissions, &verdict, watched, parts)
            });
            return Self::decided(response, HeldPermits::default());
        }
        drop(verdict);
        let request = Request::from_parts(parts, body);
        let waiting =
            AwaitingPermits::new((admissions, requested), now, take_ready(inner), request);
        Self {
            state: State::AwaitingPermits {
                waiting: Box::new(waiting),
            },
            permits: HeldPermits::default(),
        }
    }
}

impl<S, B, R, ResBody> Future for HoldingRulesFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type Output = Result<Response<FollowedBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut response = loop {
            match this.state.as_mut().project() {
                StateProjection::Decided { response } => break response,
                StateProjection::AwaitingPermits { waiting } => {
                    let (response, permits) = ready!(waiting.poll(cx));
                    *this.permits = permits;
                    this.state.set(State::Decided { response });
                }
            }
        };
        let result = ready!(response.as_mut().poll(cx));
        // A quota in Redis, or a wait, may have denied the request since.
        if response.is_rejected() {
            this.permits.release();
        }
        let permits = std::mem::take(this.permits);
        let held = result?.map(|body| ConcurrencyBody::new(body, permits));
        Poll::Ready(Ok(follow(response.work(), held)))
    }
}

impl<S: Service<Request<B>>, B, R> fmt::Debug for HoldingRulesFuture<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldingRulesFuture").finish_non_exhaustive()
    }
}

impl<S: Clone, R> Clone for HoldingRulesLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for HoldingRulesLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldingRulesLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
