//! A layer that denies everything with a ready response: what a denial with fields costs at least.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tower::{Layer, Service};

/// A layer that denies everything with an answer that is ready: what a denial with the fields and
/// the document of this crate's default cannot do without. The checks see that it has both.
#[derive(Debug, Clone, Copy)]
pub struct ReadyDenialLayer;

/// Made by [`ReadyDenialLayer`]. It holds an inner service that it never calls, because every layer
/// that sometimes calls it has to.
#[derive(Debug, Clone)]
pub struct ReadyDenial<S>(S);

const FIELDS: [(HeaderName, &str); 8] = [
    (http::header::CONTENT_TYPE, "application/problem+json"),
    (http::header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("ratelimit-policy"),
        "\"default\";q=1;w=86400",
    ),
    (
        HeaderName::from_static("ratelimit"),
        "\"default\";r=0;t=86400",
    ),
    (HeaderName::from_static("x-ratelimit-limit"), "1"),
    (HeaderName::from_static("x-ratelimit-remaining"), "0"),
    (HeaderName::from_static("x-ratelimit-reset"), "86400"),
    (http::header::RETRY_AFTER, "86400"),
];

const DOCUMENT: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#,
    r#""status":429,"violated-policies":["default"]}"#,
);

impl<S> Layer<S> for ReadyDenialLayer {
    type Service = ReadyDenial<S>;

    fn layer(&self, inner: S) -> ReadyDenial<S> {
        ReadyDenial(inner)
    }
}

impl<S, B> Service<Request<B>> for ReadyDenial<S>
where
    S: Service<Request<B>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let content = Bytes::from_static(DOCUMENT.as_bytes());
        let mut response = Response::new(Body::from(content));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        // One more for the length that the router adds last.
        headers.reserve(FIELDS.len() + 1);
        for (name, value) in FIELDS {
            headers.append(name, HeaderValue::from_static(value));
        }
        ready(Ok(response))
    }
}
