use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderName, HeaderValue, Response};
use tower::{Layer, Service};

/// A layer that does nothing: what any layer costs.
#[derive(Debug, Clone, Copy)]
pub struct NoOpLayer;

/// Made by [`NoOpLayer`].
#[derive(Debug, Clone)]
pub struct NoOp<S>(S);

impl<S> Layer<S> for NoOpLayer {
    type Service = NoOp<S>;

    fn layer(&self, inner: S) -> NoOp<S> {
        NoOp(inner)
    }
}

impl<S: Service<R>, R> Service<R> for NoOp<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

/// A layer that adds five fields which are ready: how much a response's headers grow.
#[derive(Debug, Clone, Copy)]
pub struct FiveFieldsLayer;

/// Ready at compile time: made of text in every call, they would be checked byte by byte.
const NAMES: [HeaderName; 5] = [
    HeaderName::from_static("x-one"),
    HeaderName::from_static("x-two"),
    HeaderName::from_static("x-three"),
    HeaderName::from_static("x-four"),
    HeaderName::from_static("x-five"),
];

/// Made by [`FiveFieldsLayer`].
#[derive(Debug, Clone)]
pub struct FiveFields<S>(S);

/// Made by [`FiveFields`].
#[derive(Debug)]
pub struct WithFiveFields<F>(F);

impl<S> Layer<S> for FiveFieldsLayer {
    type Service = FiveFields<S>;

    fn layer(&self, inner: S) -> FiveFields<S> {
        FiveFields(inner)
    }
}

impl<S, R, B> Service<R> for FiveFields<S>
where
    S: Service<R, Response = Response<B>>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = WithFiveFields<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        WithFiveFields(self.0.call(request))
    }
}

impl<F, B, E> Future for WithFiveFields<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut response = ready!(Pin::new(&mut self.0).poll(cx))?;
        let headers = response.headers_mut();
        // One more for the length that the router adds last, so that the map grows once.
        headers.reserve(6);
        for name in NAMES {
            headers.append(name, HeaderValue::from_static("1"));
        }
        Poll::Ready(Ok(response))
    }
}
