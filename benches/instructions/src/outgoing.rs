//! Requests that go out: a client with a pacer, and the same client without. With the feature
//! `client`, which is built apart: it changes what the compiler makes of all others.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Request, Response};
use tower::{Layer, Service};
use tower_ratelimit::{
    Quota,
    client::{Pacer, PacerLayer},
};

use crate::{COUNT, counted};

pub(crate) fn bare() {
    outgoing(Told(false));
}

pub(crate) fn paced() {
    outgoing(with_pacer(Told(false)));
}

pub(crate) fn told() {
    outgoing(with_pacer(Told(true)));
}

/// A server that a client reaches at once, and that may tell its quota.
#[derive(Clone)]
struct Told(bool);

impl Service<Request<()>> for Told {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let [limit, policy] = match self.0 {
            true => [
                ("ratelimit", "\"default\";r=9000000;t=60"),
                ("ratelimit-policy", "\"default\";q=9000000;w=60"),
            ],
            // As many fields, so that what a server's answer costs is the same.
            false => [
                ("x-request-id", "0123456789abcdef01234567"),
                ("x-served-by", "cache-fra-etou8220020-FRA"),
            ],
        };
        let mut response = Response::new(());
        for (name, value) in [limit, policy, ("content-type", "application/json")] {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        ready(Ok(response))
    }
}

/// The client of a limit that is declared, and that nobody has to wait for.
fn with_pacer<S>(client: S) -> <PacerLayer as Layer<S>>::Service {
    let pacer = Pacer::new(Quota::per_second(1_000_000).burst(1_000_000));
    PacerLayer::new(pacer).layer(client)
}

fn outgoing<S>(mut client: S)
where
    S: Service<Request<()>, Response = Response<()>>,
{
    let mut send = || {
        let request = Request::get("https://api.example.com/things?page=2")
            .header("accept", "application/json")
            .header("authorization", "Bearer 0123456789abcdef");
        let request = request.body(()).expect("a request");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(client.poll_ready(&mut cx).is_ready());
        let response = pin!(client.call(request)).poll(&mut cx);
        assert!(response.is_ready(), "the answer is not there at once");
    };
    send();
    counted(|| {
        for _ in 0..COUNT {
            send();
        }
    });
}
