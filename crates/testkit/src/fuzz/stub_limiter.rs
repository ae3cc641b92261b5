//! Layers whose limiter gives a made-up answer.

use std::{
    convert::Infallible,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Decision, Global, Headers, Limiter, RateLimitLayer,
    decision::Policy,
    limiter::{Call, Never, Pending},
};

struct Fixed {
    policies: Vec<Policy>,
    decision: Decision,
}

impl Limiter for Fixed {
    type Future = Never;

    fn call(&self, _: &Call<'_>) -> Pending<Self::Future> {
        Pending::Ready(Ok(self.decision.clone()))
    }

    fn policies(&self) -> &[Policy] {
        &self.policies
    }
}

/// The answer to a client when the limiter decides so.
pub fn answer(
    policies: Vec<Policy>,
    decision: Decision,
    headers: Headers,
    request: Request<String>,
) -> Response<String> {
    let layer = RateLimitLayer::new(Fixed { policies, decision }, Global).headers(headers);
    let service = layer.layer(service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new("inner".to_owned()))
    }));
    let mut future = pin!(service.oneshot(request));
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("it waits"),
    }
}
