//! Outgoing requests: a client with a pacer, and a client without. The feature `client` is built
//! apart, since it changes the optimizations of all others.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Request, Response};
use tower::{Layer, Service};
use tower_ratelimit::Quota;
use tower_ratelimit_client::{Pacer, PacerLayer};

use crate::{COUNT, counted};

pub(crate) fn bare() {
    outgoing(Server(false));
}

pub(crate) fn paced() {
    outgoing(with_pacer(Server(false)));
}

pub(crate) fn reporting() {
    outgoing(with_pacer(Server(true)));
}

/// A server that responds at once, and may report its quota.
#[derive(Clone)]
struct Server(bool);

impl Service<Request<()>> for Server {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let [limit, policy] = if self.0 {
            [
                ("ratelimit", "\"default\";r=9000000;t=60"),
                ("ratelimit-policy", "\"default\";q=9000000;w=60"),
            ]
        } else {
            // The number of fields is equal, so that the response itself costs the same.
            [
                ("x-request-id", "0123456789abcdef01234567"),
                ("x-served-by", "cache-fra-etou8220020-FRA"),
            ]
        };
        let mut response = Response::new(());
        for (name, value) in [limit, policy, ("content-type", "application/json")] {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        ready(Ok(response))
    }
}

/// A client with a declared limit that is never reached.
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
