//! Tower's contract of a middleware: readiness, clones, errors, dropped futures.

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use testkit::{Probe, Slow, get, limiter, now, send};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, Global, Key, LocalLimiter, Quota, RateLimitLayer,
    rate_limit::{RateLimit, ResponseFuture},
    spend::Field,
};

fn slow(limiter: &LocalLimiter) -> (Slow, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let slow = Slow {
        limiter: limiter.clone(),
        gate: Arc::clone(&gate),
    };
    (slow, gate)
}

/// Waits until the service is ready, and calls it.
fn call<S: Service<Request<()>, Error: std::fmt::Debug>>(service: &mut S) -> S::Future {
    now(service.ready()).unwrap().call(Request::new(()))
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut cx)
}

#[test]
fn the_instance_that_was_polled_ready_is_the_one_that_is_called() {
    let (limiter, _) = limiter(Quota::per_minute(10));
    let probe = Probe::default();
    let mut service = RateLimitLayer::new(limiter, Global).layer(probe.clone());
    for _ in 0..3 {
        let response = now(call(&mut service)).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(probe.count(), 3);
}

#[test]
fn a_limiter_that_waits_keeps_the_ready_instance() {
    let (limiter, _) = limiter(Quota::per_minute(10));
    let (slow, gate) = slow(&limiter);
    let probe = Probe::default();
    let mut service = RateLimitLayer::new(slow, Global).layer(probe.clone());

    let mut first = call(&mut service);
    let mut second = call(&mut service);
    assert!(poll(&mut Box::pin(&mut first)).is_pending());
    assert_eq!(probe.count(), 0);
    gate.add_permits(2);
    assert_eq!(now(&mut second).unwrap().status(), StatusCode::OK);
    assert_eq!(now(&mut first).unwrap().status(), StatusCode::OK);
    assert_eq!(probe.count(), 2);
}

#[test]
fn a_service_that_is_not_ready_holds_requests_back() {
    #[derive(Clone)]
    struct NeverReady;
    impl Service<Request<()>> for NeverReady {
        type Response = Response<String>;
        type Error = &'static str;
        type Future = std::future::Pending<Result<Response<String>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Pending
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            unreachable!("never ready")
        }
    }
    let mut service = RateLimitLayer::new(Quota::per_minute(1), Global).layer(NeverReady);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(service.poll_ready(&mut cx).is_pending());
}

#[test]
fn services_of_one_layer_share_a_budget_and_two_layers_do_not() {
    let layer = || RateLimitLayer::new(Quota::per_hour(2), Global);
    let (one, other) = (layer(), layer());
    let route_a = one.layer(Probe::default());
    let route_b = one.clone().layer(Probe::default());
    let elsewhere = other.layer(Probe::default());

    assert_eq!(send(&route_a, get("/a")).status(), 200);
    assert_eq!(send(&route_b.clone(), get("/b")).status(), 200);
    assert_eq!(send(&route_a, get("/a")).status(), 429);
    assert_eq!(send(&route_b, get("/b")).status(), 429);
    assert_eq!(send(&elsewhere, get("/")).status(), 200);
}

#[test]
fn a_denied_request_never_reaches_the_inner_service() {
    let probe = Probe::default();
    let service = RateLimitLayer::new(Quota::per_hour(2), Global).layer(probe.clone());
    let statuses: Vec<_> = (0..5)
        .map(|_| send(&service, get("/")).status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    assert_eq!(probe.count(), 2);
}

#[test]
fn the_service_s_error_passes_as_it_is() {
    #[derive(Debug, PartialEq)]
    struct Odd(u32);
    let failing = service_fn(async |_: Request<()>| Err::<Response<String>, _>(Odd(7)));
    let service = RateLimitLayer::new(Quota::per_hour(1), Global).layer(failing);
    let error: Odd = now(service.clone().oneshot(Request::new(()))).unwrap_err();
    assert_eq!(error, Odd(7));
    // The attempt counts all the same.
    assert_eq!(
        now(service.oneshot(Request::new(()))).unwrap().status(),
        429
    );
}

#[test]
fn services_and_bodies_need_not_be_send() {
    let calls = Rc::new(std::cell::Cell::new(0));
    let counted = Rc::clone(&calls);
    let local = service_fn(move |request: Request<Rc<str>>| {
        let calls = Rc::clone(&counted);
        async move {
            calls.set(calls.get() + 1);
            Ok::<_, Rc<str>>(Response::new(request.body().to_string()))
        }
    });
    let service = RateLimitLayer::new(Quota::per_hour(1), Global).layer(local);
    let request = || Request::new(Rc::from("body"));
    let response = now(service.clone().oneshot(request())).unwrap();
    assert_eq!(response.body(), "body");
    assert_eq!(now(service.oneshot(request())).unwrap().status(), 429);
    assert_eq!(calls.get(), 1);
}

#[test]
fn a_future_that_is_dropped_unpolled_has_been_charged() {
    let (limiter, _) = limiter(Quota::per_hour(3));
    let mut service = RateLimitLayer::new(limiter.clone(), Global).layer(Probe::default());
    drop(call(&mut service));
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(2));
}

#[test]
fn a_future_that_is_dropped_while_the_limiter_thinks_leaves_the_service_usable() {
    let (limiter, _) = limiter(Quota::per_hour(3));
    let (slow, gate) = slow(&limiter);
    let probe = Probe::default();
    let mut service = RateLimitLayer::new(slow, Global).layer(probe.clone());
    for _ in 0..1_000 {
        let mut waiting = Box::pin(call(&mut service));
        assert!(poll(&mut waiting).is_pending());
    }
    assert_eq!(probe.count(), 0);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(3));

    gate.add_permits(1);
    let response = now(call(&mut service)).unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(probe.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn a_future_that_is_dropped_while_the_service_works_stays_counted() {
    let (limiter, _) = limiter(Quota::per_hour(3));
    let stuck = service_fn(|_: Request<()>| std::future::pending::<Result<Response<String>, ()>>());
    let service = RateLimitLayer::new(limiter.clone(), Global).layer(stuck);
    let mut response = Box::pin(service.oneshot(Request::new(())));
    assert!(poll(&mut response).is_pending());
    drop(response);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(2));
}

#[test]
fn public_types_have_the_auto_traits_that_servers_need() {
    fn send_sync_clone<T: Send + Sync + Clone + 'static>() {}
    fn send<T: Send>() {}
    send_sync_clone::<RateLimitLayer>();
    send_sync_clone::<RateLimit<Probe>>();
    send_sync_clone::<LocalLimiter>();
    send_sync_clone::<Key>();
    send::<ResponseFuture<Probe, String, LocalLimiter, tower_ratelimit::reject::ProblemJson>>();
}

type Answer = std::future::Ready<Result<Response<Full<bytes::Bytes>>, std::convert::Infallible>>;
type Inner = tower::util::ServiceFn<fn(Request<()>) -> Answer>;
type Permitted = tower::limit::ConcurrencyLimit<Inner>;

/// Calls a service of this layer, and then another one that lives on, which is denied.
fn assert_released_by_denial<L, B>(layer: &L)
where
    L: Layer<Permitted>,
    L::Service: Service<Request<()>, Response = Response<B>, Error: std::fmt::Debug>,
{
    let answer: fn(Request<()>) -> Answer =
        |_| std::future::ready(Ok(Response::new(Full::from("hello"))));
    let service = |permits: &Arc<Semaphore>| {
        layer.layer(Permitted::with_semaphore(
            service_fn(answer),
            Arc::clone(permits),
        ))
    };
    let [own, permits] = [1, 1].map(|count| Arc::new(Semaphore::new(count)));
    let allowed = now(call(&mut service(&own))).unwrap();
    assert_eq!(allowed.status(), StatusCode::OK);
    let mut denying = service(&permits);
    let denied = now(call(&mut denying)).unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(permits.available_permits(), 1, "while the service lives");
    drop(denying);
}

#[test]
fn a_rejection_drops_the_ready_instance_with_what_it_holds() {
    let once = || limiter(Quota::per_day(1)).0;
    assert_released_by_denial(&RateLimitLayer::new(once(), Global));
    let (slow, gate) = slow(&once());
    gate.add_permits(2);
    assert_released_by_denial(&RateLimitLayer::new(slow, Global));
    let units = Field::header("x-units");
    assert_released_by_denial(&RateLimitLayer::new(once(), Global).spending(units));
    assert_released_by_denial(&ConcurrencyLayer::new(Concurrency::max(1), Global));
}

#[cfg(feature = "rules")]
#[test]
fn a_rejection_by_rules_drops_the_ready_instance_with_what_it_holds() {
    use tower_ratelimit::rules::{Format, Rules, RulesLayer};
    let layer = |rule: &str| {
        let text = format!("rules: [{{name: a, key: global, {rule}}}]");
        let rules = Rules::builder()
            .accept_in_flight(true)
            .parse(&text, Format::Yaml);
        RulesLayer::new(rules.unwrap())
    };
    assert_released_by_denial(&layer("quota: 1/day"));
    assert_released_by_denial(&layer("quota: 1/day").holding());
    assert_released_by_denial(&layer("in_flight: 1").holding());
}
