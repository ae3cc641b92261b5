use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{ConcurrencyBody, ResponseFuture, gate::Gate};
use crate::reject::{ProblemJson, Reject};

/// A service that has a limited number of requests in flight for each key. Made by
/// [`ConcurrencyLayer`](super::ConcurrencyLayer).
///
/// Clones share the layer's permits.
pub struct ConcurrencyLimit<S, R = ProblemJson> {
    inner: S,
    gate: Arc<Gate<R>>,
}

impl<S, R> ConcurrencyLimit<S, R> {
    pub(super) const fn new(inner: S, gate: Arc<Gate<R>>) -> Self {
        Self { inner, gate }
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

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyLimit<S, R>
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
        match self.gate.admit(&parts) {
            Ok(admitted) => {
                let response = self.inner.call(Request::from_parts(parts, body));
                ResponseFuture::running(response, admitted, &self.gate)
            }
            Err(response) => ResponseFuture::rejected(response),
        }
    }
}

impl<S: Clone, R> Clone for ConcurrencyLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            gate: Arc::clone(&self.gate),
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
