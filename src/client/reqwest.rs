//! `reqwest::Client` as a client: its requests are no `http::Request`s.

use std::{future::poll_fn, sync::Arc, task::Context, task::Poll};

use http::{HeaderMap, StatusCode, Uri, request::Parts};
use reqwest::{Request, Response};
use tower_service::Service;

use super::{
    CopyBody, Paced, PacedFuture, PacerError, Retry,
    call::{BoxError, Outgoing, SentAlready},
    connection::is_connection,
    replay::Copies,
};
use crate::limiter::Limiter;

impl<S, L, P> Service<Request> for Paced<S, L, P>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    L: Limiter,
    P: CopyBody<Request>,
{
    type Response = Response;
    type Error = BoxError;
    type Future = PacedFuture<Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let calls = Arc::clone(&self.calls);
        let mut outgoing = ReqwestRequest {
            client: self.inner.clone(),
            requests: Requests::new(request, self.bodies.clone()),
        };
        PacedFuture::new(async move {
            outgoing.requests.keep(&calls.retry).await?;
            calls.call(&mut outgoing).await.map_err(BoxError::from)
        })
    }
}

/// A request of reqwest and its copies.
pub(super) struct Requests<P: CopyBody<Request>> {
    /// None once it cannot be sent again.
    parts: Option<Parts>,
    copies: Copies<Request, P>,
}

impl<P: CopyBody<Request>> Requests<P> {
    pub(super) fn new(request: Request, copy: P) -> Self {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.method = request.method().clone();
        // A URL that is no URI has no host either.
        parts.uri = request
            .url()
            .as_str()
            .parse()
            .unwrap_or(Uri::from_static("/"));
        parts.headers = request.headers().clone();
        Self {
            parts: Some(parts),
            copies: Copies::new(request, copy),
        }
    }

    /// Keeps a copy, if the request may be sent again at all.
    pub(super) async fn keep(&mut self, retry: &Retry) -> Result<(), PacerError> {
        self.copies.keep(self.parts.as_ref(), retry).await
    }

    /// The request without its body; `None` once it cannot be sent again.
    pub(super) const fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    pub(super) fn next(&mut self) -> Option<Request> {
        if !self.copies.is_kept() {
            self.parts = None;
        }
        self.copies.next()
    }
}

struct ReqwestRequest<S, P: CopyBody<Request>> {
    client: S,
    requests: Requests<P>,
}

impl<S, P> Outgoing for ReqwestRequest<S, P>
where
    S: Service<Request, Response = Response> + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    P: CopyBody<Request>,
{
    type Response = Response;
    type Error = BoxError;

    fn parts(&self) -> Option<&Parts> {
        self.requests.parts()
    }

    async fn send(&mut self) -> Result<Response, BoxError> {
        poll_fn(|cx| self.client.poll_ready(cx))
            .await
            .map_err(Into::into)?;
        let Some(request) = self.requests.next() else {
            return Err(SentAlready.into());
        };
        self.client.call(request).await.map_err(Into::into)
    }

    fn head(response: &Response) -> (StatusCode, &HeaderMap) {
        (response.status(), response.headers())
    }

    fn is_connection(error: &BoxError) -> bool {
        is_connection(&**error)
    }
}
