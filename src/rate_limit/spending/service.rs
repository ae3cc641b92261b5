//! The service that a [`SpendLayer`](super::SpendLayer) makes.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    body::{BoxError, SpendBody},
    future::SpendFuture,
};
use crate::{
    limiter::{Limiter, LocalLimiter},
    middleware::inner_service::inner_service,
    rate_limit::{ResponseFuture, admission::Admission},
    reject::{ProblemJson, Reject},
};

/// A service whose responses' units are limited. Made by [`SpendLayer`](super::SpendLayer).
///
/// Clones share the layer's budget. The inner service has to be `Clone`, as for a [`RateLimit`](crate::RateLimit).
pub struct SpendLimit<S, L = LocalLimiter, R = ProblemJson> {
    inner: S,
    admission: Arc<Admission<L, R>>,
}

impl<S, L, R> SpendLimit<S, L, R> {
    pub(super) const fn new(inner: S, admission: Arc<Admission<L, R>>) -> Self {
        Self { inner, admission }
    }

    inner_service!(S);
}

impl<S, L, R, ReqBody, ResBody> Service<Request<ReqBody>> for SpendLimit<S, L, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    L: Limiter,
    R: Reject<ResBody>,
    ResBody: Body<Error: Into<BoxError>> + 'static,
{
    type Response = Response<SpendBody<ResBody>>;
    type Error = S::Error;
    type Future = SpendFuture<S, ReqBody, L, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let admission = &self.admission;
        let decide = |parts: &mut http::request::Parts| admission.decide(parts);
        SpendFuture::new(ResponseFuture::new(&mut self.inner, request, decide))
    }
}

impl<S: Clone, L, R> Clone for SpendLimit<S, L, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<S: fmt::Debug, L, R> fmt::Debug for SpendLimit<S, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
