//! The service that a [`RateLimitLayer`](super::RateLimitLayer) makes.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{ResponseFuture, admission::Admission};
use crate::{
    limiter::{Limiter, LocalLimiter},
    middleware::inner_service::inner_service,
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

    // Within its caller the future would be built apart and then moved to its place, 80 instructions.
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
