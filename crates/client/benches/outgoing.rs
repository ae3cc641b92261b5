//! Requests through a client with a pacer, beside the same client without: `cargo bench -p
//! tower-ratelimit-client`. No request has to wait.
#![allow(missing_docs, reason = "criterion's macros")]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderValue, Method, Request, Response};
use tower::{Layer, Service};
use tower_ratelimit::Quota;
use tower_ratelimit_client::{Pacer, PacerLayer, Retry};

/// Fields of a server that reports its quota, and other fields of the same number.
const REPORTED: [(&str, &str); 2] = [
    ("ratelimit", "\"default\";r=9000000;t=60"),
    ("ratelimit-policy", "\"default\";q=9000000;w=60"),
];
const OTHERS: [(&str, &str); 2] = [
    ("x-request-id", "0123456789abcdef01234567"),
    ("x-served-by", "cache-0123456789-0123456789"),
];

/// A client whose response, with these fields, arrives at once.
#[derive(Clone)]
struct Client([(&'static str, &'static str); 2]);

impl Service<Request<()>> for Client {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(());
        for (name, value) in self.0 {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        ready(Ok(response))
    }
}

fn request(method: Method) -> Request<()> {
    let request = Request::builder()
        .method(method)
        .uri("https://api.example.com/things?page=2")
        .header("accept", "application/json")
        .header("authorization", "Bearer 0123456789abcdef");
    request.body(()).expect("a request")
}

fn send<S: Service<Request<()>, Response = Response<()>>>(client: &mut S, method: &Method) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(client.poll_ready(&mut cx).is_ready());
    let response = pin!(client.call(request(method.clone()))).poll(&mut cx);
    assert!(
        matches!(response, Poll::Ready(Ok(_))),
        "the answer is not there at once"
    );
}

fn layer() -> PacerLayer {
    PacerLayer::new(Pacer::new(
        Quota::per_second(1_000_000).burst(4_000_000_000),
    ))
}

fn calls(c: &mut Criterion) {
    let (get, post) = (&Method::GET, &Method::POST);
    let mut group = c.benchmark_group("outgoing request");
    let mut bare = Client(REPORTED);
    group.bench_function("bare client", |b| b.iter(|| send(&mut bare, get)));
    for (name, fields, method, retry) in [
        ("no fields", OTHERS, get, Retry::new()),
        ("RateLimit", REPORTED, get, Retry::new()),
        (
            "RateLimit, nothing sent again",
            REPORTED,
            get,
            Retry::none(),
        ),
        ("RateLimit, POST", REPORTED, post, Retry::new()),
    ] {
        let mut client = layer().retry(retry).layer(Client(fields));
        group.bench_function(name, |b| b.iter(|| send(&mut client, method)));
    }
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
