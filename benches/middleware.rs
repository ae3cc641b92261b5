//! Requests through an axum router with a layer, beside the same router with a layer that does
//! nothing: `cargo bench --bench middleware`.
#![allow(missing_docs, reason = "criterion's macros")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, layer::util::Identity, service_fn};
use tower_ratelimit::{
    Global, Header, Headers, KeyExtractor, LocalLimiter, PeerIp, Quota, RateLimitLayer,
    headers::{IetfDraft, ResetFormat},
    quota::IntoQuotas,
};

/// A limit beyond all requests of a bench's client, and one that denies all but the first request.
const ALLOWED: Quota = Quota::per_second(1_000_000).burst(4_000_000_000);
const DENIED: Quota = Quota::per_day(1);

fn app() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn layer(extractor: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new(ALLOWED, extractor)
}

fn plain(extractor: impl KeyExtractor) -> RateLimitLayer {
    layer(extractor).headers(Headers::none())
}

/// The status of a response that is ready at once.
fn status<S, R, B>(service: &mut S, request: R) -> StatusCode
where
    S: Service<R, Response = Response<B>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    match pin!(service.call(request)).poll(&mut cx) {
        Poll::Ready(Ok(response)) => response.status(),
        Poll::Pending => panic!("the answer is not there at once"),
    }
}

fn send(app: &mut Router) -> StatusCode {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
        .headers_mut()
        .insert("x-api-key", "k-123".parse().expect("a value"));
    status(app, request)
}

/// A row whose requests get this status, which is checked before and after the measurement.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    expected: StatusCode,
    mut send: impl FnMut() -> StatusCode,
) {
    // It takes what little there is where requests are to be denied.
    send();
    assert_eq!(send(), expected, "{name}");
    group.bench_function(name, |bencher| bencher.iter(&mut send));
    assert_eq!(send(), expected, "{name}");
}

/// `with_state` is what a server does before it starts.
fn requests(c: &mut Criterion) {
    let key = || (PeerIp, Header::new("x-api-key"));
    let mut group = c.benchmark_group("request");
    for (name, app) in [
        ("bare router", app()),
        ("no-op layer", app().layer(Identity::new())),
        ("no headers, one key for all", app().layer(plain(Global))),
        ("no headers, by address", app().layer(plain(PeerIp))),
        (
            "no headers, by header",
            app().layer(plain(Header::new("x-api-key"))),
        ),
        ("no headers, by both", app().layer(plain(key()))),
        ("default headers, by address", app().layer(layer(PeerIp))),
        ("denied", app().layer(RateLimitLayer::new(DENIED, PeerIp))),
    ] {
        let mut app = app.with_state::<()>(());
        let expected = match name {
            "denied" => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        measure(&mut group, name, expected, || send(&mut app));
    }
    group.finish();
}

/// Around a service that is next to nothing, so that what is left is the layer.
fn headers(c: &mut Criterion) {
    let three = [ALLOWED.named("a"), ALLOWED.named("b"), ALLOWED.named("c")];
    let mut group = c.benchmark_group("headers");
    for (name, headers, layer) in [
        ("none", Headers::none(), around(ALLOWED)),
        (
            "RateLimit",
            Headers::none().ietf(Some(IetfDraft::Draft11)),
            around(ALLOWED),
        ),
        (
            "X-RateLimit",
            Headers::none().x_ratelimit(Some(ResetFormat::DeltaSeconds)),
            around(ALLOWED),
        ),
        ("default", Headers::new(), around(ALLOWED)),
        ("default, three quotas", Headers::new(), around(three)),
    ] {
        let inner =
            service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
        let mut service = layer.headers(headers).layer(inner);
        measure(&mut group, name, StatusCode::OK, || {
            status(&mut service, Request::new(()))
        });
    }
    group.finish();
}

/// Many rules around a service that does next to nothing. The request meets the last one.
#[cfg(feature = "rules")]
fn rules(c: &mut Criterion) {
    use tower_ratelimit::rules::{Format, Rules, RulesLayer};

    let paths = |at: usize| format!("path: \"/r{at}/**\"");
    // Each of them is checked: nothing of them is in the index.
    let headers = |at: usize| format!("header: {{x-tenant: t{at}}}");
    let mut group = c.benchmark_group("rules");
    for (name, count) in [
        ("20 of paths", 20),
        ("1,000 of paths", 1_000),
        ("20 of headers", 20),
        ("1,000 of headers", 1_000),
    ] {
        let found = |at| {
            if name.ends_with("paths") {
                paths(at)
            } else {
                headers(at)
            }
        };
        let mut text = String::from("defaults: {key: global, headers: []}\nrules:\n");
        for at in 1..count {
            text += &format!(
                "  - {{name: r{at}, match: {{{}}}, quota: 9/s}}\n",
                found(at)
            );
        }
        text += "  - {name: all, match: {path: /}, quota: 1000000/s burst 4000000000}\n";
        let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
        let inner =
            service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
        let mut service = RulesLayer::new(rules).layer(inner);
        measure(&mut group, name, StatusCode::OK, || {
            let mut request = Request::new(());
            let tenant = http::HeaderValue::from_static("other");
            request.headers_mut().insert("x-tenant", tenant);
            status(&mut service, request)
        });
    }
    group.finish();
}

#[cfg(not(feature = "rules"))]
const fn rules(_: &mut Criterion) {}

fn around(quotas: impl IntoQuotas) -> RateLimitLayer {
    RateLimitLayer::new(LocalLimiter::new(quotas), Global)
}

criterion_group!(benches, requests, headers, rules);
criterion_main!(benches);
