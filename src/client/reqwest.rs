//! `reqwest::Client` as a client: its requests are no `http::Request`s.

use std::{future::poll_fn, sync::Arc, task::Context, task::Poll};

use http::{HeaderMap, StatusCode, Uri, request::Parts};
use reqwest::{Request, Response};
use tower_service::Service;

use super::{
    Paced, PacedFuture,
    call::{BoxError, Outgoing, SentAlready, is_connection},
};
use crate::limiter::Limiter;

impl<S, L, P> Service<Request> for Paced<S, L, P>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    L: Limiter,
{
    type Response = Response;
    type Error = BoxError;
    type Future = PacedFuture<Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (client, calls) = (self.inner.clone(), Arc::clone(&self.calls));
        PacedFuture::new(async move {
            let outgoing = ReqwestRequest {
                client,
                requests: Requests::new(request),
            };
            calls.call(outgoing).await.map_err(BoxError::from)
        })
    }
}

/// A request of reqwest, which copies itself.
pub(super) struct Requests {
    parts: Parts,
    /// The request to send next; `None` once the last one was sent.
    next: Option<Request>,
}

impl Requests {
    pub(super) fn new(request: Request) -> Self {
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
            parts,
            next: Some(request),
        }
    }

    /// The request without its body; `None` once it cannot be sent again.
    pub(super) fn parts(&self) -> Option<&Parts> {
        self.next.as_ref().map(|_| &self.parts)
    }

    pub(super) fn next(&mut self) -> Option<Request> {
        let request = self.next.take()?;
        self.next = request.try_clone();
        Some(request)
    }
}

struct ReqwestRequest<S> {
    client: S,
    requests: Requests,
}

impl<S> Outgoing for ReqwestRequest<S>
where
    S: Service<Request, Response = Response> + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
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
