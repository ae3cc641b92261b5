//! The service: a client whose requests wait for their turn.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response, StatusCode, request::Parts};
use tower_service::Service;

use crate::{
    error::PacerError,
    pacer::Pacer,
    replayable_body::{ByReplay, Copies, CopyBody},
    request_with_retries::{
        BodyConsumed, BoxError, CallSettings, Failed, OutgoingRequest, is_connection_error,
    },
};

/// A client whose requests wait for their turn. Made by [`PacerLayer`](crate::PacerLayer).
///
/// It is always ready: it checks the client's readiness when the turn comes. Otherwise waiting
/// requests would hold permits of a concurrency limit inside. For the same reason a load balancer
/// outside cannot see whether the client is ready; it belongs inside.
#[derive(Clone)]
pub struct Paced<S, P = ByReplay> {
    pub(crate) inner: S,
    pub(crate) calls: Arc<CallSettings>,
    pub(crate) bodies: P,
}

impl<S, P> Paced<S, P> {
    pub(crate) const fn new(inner: S, calls: Arc<CallSettings>, bodies: P) -> Self {
        Self {
            inner,
            calls,
            bodies,
        }
    }

    /// The wrapped client.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The pacer that requests wait for.
    pub fn pacer(&self) -> &Pacer {
        &self.calls.pacer
    }
}

impl<S, P, B, R> Service<Request<B>> for Paced<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: CopyBody<B>,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = PacedFuture<Response<R>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let calls = Arc::clone(&self.calls);
        let mut outgoing = self.outgoing(request);
        PacedFuture::new(async move {
            outgoing.keep(&calls).await?;
            let response = calls.call(&mut outgoing, &mut None).await;
            response.map_err(BoxError::from)
        })
    }
}

impl<S: Clone, P> Paced<S, P> {
    /// The request for this client.
    pub(crate) fn outgoing<B>(&self, request: Request<B>) -> HttpRequest<S, B, P>
    where
        P: CopyBody<B>,
    {
        let (parts, body) = request.into_parts();
        // Made outside the async block, so that the future stores it once and not twice.
        HttpRequest {
            client: self.inner.clone(),
            parts: Some(parts),
            bodies: Copies::new(body, self.bodies.clone()),
        }
    }
}

/// A request of a client that takes `http::Request`s.
pub(crate) struct HttpRequest<S, B, P: CopyBody<B>> {
    client: S,
    parts: Option<Parts>,
    bodies: Copies<B, P>,
}

impl<S, B, P: CopyBody<B>> HttpRequest<S, B, P> {
    /// Makes the copy of the body, if the request may be sent again.
    pub(crate) async fn keep(&mut self, calls: &CallSettings) -> Result<(), PacerError> {
        self.bodies.keep(self.parts.as_ref(), &calls.retry).await
    }

    /// The request for the next attempt. Keeps a copy of its parts if further attempts are
    /// possible.
    fn next(&mut self) -> Option<Request<B>> {
        let body = self.bodies.next()?;
        let parts = if self.bodies.is_kept() {
            self.parts.clone()?
        } else {
            self.parts.take()?
        };
        Some(Request::from_parts(parts, body))
    }
}

impl<S, B, R, P> OutgoingRequest for HttpRequest<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>> + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: CopyBody<B>,
    B: Send,
    R: Send,
{
    type Response = Response<R>;
    type Error = BoxError;

    fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    async fn send(&mut self) -> Result<Response<R>, BoxError> {
        poll_fn(|cx| self.client.poll_ready(cx))
            .await
            .map_err(Into::into)?;
        let Some(request) = self.next() else {
            return Err(BodyConsumed.into());
        };
        let response = self.client.call(request);
        response.await.map_err(Into::into)
    }

    fn head<'r>(&self, response: &'r Response<R>) -> (StatusCode, &'r HeaderMap) {
        (response.status(), response.headers())
    }

    fn is_connection_error(error: &BoxError) -> bool {
        is_connection_error(&**error)
    }
}

impl<E: Into<Self>> From<Failed<E>> for BoxError {
    fn from(failed: Failed<E>) -> Self {
        match failed {
            Failed::Refused(error) => error.into(),
            Failed::Client(error) => error.into(),
        }
    }
}

/// The future of a [`Paced`] client.
#[must_use = "futures do nothing unless they are polled"]
pub struct PacedFuture<R>(Pin<Box<dyn Future<Output = Result<R, BoxError>> + Send>>);

impl<R> PacedFuture<R> {
    pub(crate) fn new(call: impl Future<Output = Result<R, BoxError>> + Send + 'static) -> Self {
        Self(Box::pin(call))
    }
}

impl<R> Future for PacedFuture<R> {
    type Output = Result<R, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Paced<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced")
            .field("inner", &self.inner)
            .field("pacer", &self.calls.pacer)
            .finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for PacedFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedFuture").finish_non_exhaustive()
    }
}
