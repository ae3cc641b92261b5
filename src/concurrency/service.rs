//! The service that a [`ConcurrencyLayer`](super::ConcurrencyLayer) makes.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{admission::PermitAdmission, body::ConcurrencyBody, future::ResponseFuture};
use crate::{
    middleware::inner_service::inner_service,
    reject::{ProblemJson, Reject},
};

/// A service that has a limited number of requests in flight for each key. Made by
/// [`ConcurrencyLayer`](super::ConcurrencyLayer).
///
/// Clones share the layer's permits. The inner service must be `Clone`: while other nodes decide, a
/// request holds the instance that was ready for it, and a clone replaces that instance.
pub struct ConcurrencyLimit<S, R = ProblemJson> {
    inner: S,
    admission: Arc<PermitAdmission<R>>,
}

impl<S, R> ConcurrencyLimit<S, R> {
    pub(super) const fn new(inner: S, admission: Arc<PermitAdmission<R>>) -> Self {
        Self { inner, admission }
    }

    inner_service!(S);
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: Reject<ResBody>,
    ResBody: Body,
{
    type Response = Response<ConcurrencyBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        ResponseFuture::new(&self.admission, &mut self.inner, request)
    }
}

impl<S: Clone, R> Clone for ConcurrencyLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            admission: Arc::clone(&self.admission),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for ConcurrencyLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
