use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{ConcurrencyBody, LocalPermits, ResponseFuture, admission::ConcurrencyAdmission};
use crate::reject::{ProblemJson, Reject};

/// A service that has a limited number of requests in flight for each key. Made by
/// [`ConcurrencyLayer`](super::ConcurrencyLayer).
///
/// Clones share the layer's permits.
pub struct ConcurrencyLimit<S, R = ProblemJson, P = LocalPermits> {
    pub(super) inner: S,
    pub(super) admission: Arc<ConcurrencyAdmission<R>>,
    pub(super) permits: P,
}

impl<S, R, P> ConcurrencyLimit<S, R, P> {
    pub(super) const fn new(inner: S, admission: Arc<ConcurrencyAdmission<R>>, permits: P) -> Self {
        Self {
            inner,
            admission,
            permits,
        }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, R, LocalPermits>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
    ResBody: Body,
{
    type Response = Response<ConcurrencyBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let verdict = self.admission.admit(&parts);
        ResponseFuture::settled(verdict, &self.admission, &mut self.inner, parts, body)
    }
}

impl<S: Clone, R, P: Clone> Clone for ConcurrencyLimit<S, R, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admission: Arc::clone(&self.admission),
            permits: self.permits.clone(),
        }
    }
}

impl<S: fmt::Debug, R, P> fmt::Debug for ConcurrencyLimit<S, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
