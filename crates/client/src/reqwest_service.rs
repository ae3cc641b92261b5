//! `reqwest::Client` as a client, whose requests are not `http::Request`s.

use std::{
    future::poll_fn,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
};

use http::{HeaderMap, StatusCode, Uri, request::Parts};
use reqwest::{Request, Response};
use tower_service::Service;

use crate::{
    error::PacerError,
    replayable_body::{Copies, CopyBody},
    request_with_retries::{BodyConsumed, BoxError, OutgoingRequest, is_connection_error},
    retry::Retry,
    service::{Paced, PacedFuture},
};

impl<S, P> Service<Request> for Paced<S, P>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
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
            let response = calls.call(&mut outgoing, &mut None).await;
            response.map_err(BoxError::from)
        })
    }
}

/// The host of a response that has no URL.
const NO_URL: &str = "no.url.provided.local";

/// A request of reqwest and its copies.
pub(crate) struct Requests<P: CopyBody<Request>> {
    parts: Parts,
    /// Whether another attempt is possible.
    can_go_again: bool,
    copies: Copies<Request, P>,
}

impl<P: CopyBody<Request>> Requests<P> {
    pub(crate) fn new(request: Request, copy: P) -> Self {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.method = request.method().clone();
        // A URL that is not a valid URI has no host either.
        parts.uri = request
            .url()
            .as_str()
            .parse()
            .unwrap_or(Uri::from_static("/"));
        parts.headers = request.headers().clone();
        Self {
            parts,
            can_go_again: true,
            copies: Copies::new(request, copy),
        }
    }

    /// Makes the copy, if the request may be sent again.
    pub(crate) async fn keep(&mut self, retry: &Retry) -> Result<(), PacerError> {
        self.copies.keep(Some(&self.parts), retry).await
    }

    /// The request without its body; `None` once it can no longer be sent.
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.can_go_again.then_some(&self.parts)
    }

    pub(crate) fn next(&mut self) -> Option<Request> {
        self.can_go_again = self.copies.is_kept();
        self.copies.next()
    }

    /// The head of a response. Without fields when it comes from another origin, as after a
    /// redirect that reqwest followed.
    pub(crate) fn head<'r>(&self, response: &'r Response) -> (StatusCode, &'r HeaderMap) {
        static NO_FIELDS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        let (uri, url) = (&self.parts.uri, response.url());
        let is_same_origin = uri.host() == url.host_str()
            && uri.scheme_str() == Some(url.scheme())
            && uri.port_u16() == url.port();
        // A response that was not received, such as one from a cache, has no URL of its own.
        let is_unknown = uri.host().is_none() || url.host_str() == Some(NO_URL);
        if is_same_origin || is_unknown {
            (response.status(), response.headers())
        } else {
            (response.status(), &NO_FIELDS)
        }
    }
}

struct ReqwestRequest<S, P: CopyBody<Request>> {
    client: S,
    requests: Requests<P>,
}

impl<S, P> OutgoingRequest for ReqwestRequest<S, P>
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
            return Err(BodyConsumed.into());
        };
        self.client.call(request).await.map_err(Into::into)
    }

    fn head<'r>(&self, response: &'r Response) -> (StatusCode, &'r HeaderMap) {
        self.requests.head(response)
    }

    fn is_connection_error(error: &BoxError) -> bool {
        is_connection_error(&**error)
    }
}
