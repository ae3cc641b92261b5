//! At most so many requests of a key in flight, and every permit comes back.
#![allow(clippy::unwrap_used)]

mod axum_and_tonic;
mod headers_and_denials;
mod release;

use std::{
    panic::catch_unwind,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use testkit::{Probe, get, now, send};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, ConfigErrorKind, Global, Header, Headers, Key, Priority, Quota,
    RateLimitLayer,
    concurrency::{ConcurrencyBody, ConcurrencyLimit, ResponseFuture},
    key::key_fn,
    reject::ProblemJson,
};

fn at_most(limit: u64) -> ConcurrencyLayer {
    ConcurrencyLayer::new(Concurrency::max(limit), Global)
}

fn in_flight<R>(layer: &ConcurrencyLayer<R>) -> u64 {
    layer.in_flight(&Key::global())
}

/// Takes a permit and holds it until the response is dropped.
fn held<S, B>(service: &S) -> Response<B>
where
    S: Service<Request<String>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
{
    let response = send(service, get("/"));
    assert_eq!(response.status(), 200);
    response
}

fn text<B: Body<Data = Bytes, Error: std::fmt::Debug>>(response: Response<B>) -> String {
    let bytes = now(response.into_body().collect()).unwrap().to_bytes();
    String::from_utf8(bytes.into()).unwrap()
}

#[test]
fn one_more_than_the_limit_is_denied_and_never_reaches_the_service() {
    let layer = at_most(3);
    let probe = Probe::default();
    let service = layer.layer(probe.clone());
    let responses: Vec<_> = (0..3).map(|_| held(&service)).collect();
    assert_eq!(in_flight(&layer), 3);
    for _ in 0..5 {
        assert_eq!(send(&service, get("/")).status(), 429);
    }
    assert_eq!(probe.count(), 3);
    assert_eq!(in_flight(&layer), 3);

    drop(responses);
    assert_eq!(in_flight(&layer), 0);
    assert_eq!(send(&service, get("/")).status(), 200);
}

#[test]
fn keys_do_not_disturb_each_other_and_are_forgotten() {
    let by_path = key_fn(|parts| Key::from(parts.uri.path()));
    let layer = ConcurrencyLayer::new(Concurrency::max(1), by_path);
    let service = layer.layer(Probe::default());
    let long = format!("/{}", "x".repeat(200));
    let paths: Vec<_> = (0..1_000).map(|n| format!("{long}{n}")).collect();
    let responses: Vec<_> = paths
        .iter()
        .map(|path| send(&service, get(path)))
        .inspect(|response| assert_eq!(response.status(), 200))
        .collect();
    assert_eq!(layer.tracked_keys(), 1_000);
    assert_eq!(layer.in_flight(&Key::from(&*paths[500])), 1);
    assert_eq!(send(&service, get(&paths[500])).status(), 429);

    drop(responses);
    assert_eq!(layer.tracked_keys(), 0);
}

#[test]
fn services_of_one_layer_share_their_permits_and_two_layers_do_not() {
    let (one, other) = (at_most(2), at_most(2));
    let route_a = one.layer(Probe::default());
    let route_b = one.clone().headers(Headers::none()).layer(Probe::default());
    let elsewhere = other.layer(Probe::default());

    let _first = held(&route_a);
    let _second = held(&route_b.clone());
    assert_eq!(send(&route_a, get("/")).status(), 429);
    assert_eq!(send(&route_b, get("/")).status(), 429);
    assert_eq!(send(&elsewhere, get("/")).status(), 200);
}

#[test]
fn the_instance_that_was_polled_ready_is_the_one_that_is_called() {
    let probe = Probe::default();
    let mut service = at_most(1).layer(probe.clone());
    for _ in 0..3 {
        let ready = now(ServiceExt::<Request<()>>::ready(&mut service)).unwrap();
        assert_eq!(now(ready.call(Request::new(()))).unwrap().status(), 200);
    }
    assert_eq!(probe.count(), 3);
}

#[test]
fn a_service_that_is_not_ready_holds_requests_back_and_takes_no_permit() {
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
    let layer = at_most(1);
    let mut service = layer.layer(NeverReady);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_pending());
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn eight_threads_at_once_get_exactly_the_limit() {
    let layer = at_most(3);
    let service = layer.layer(Probe::default());
    for _ in 0..200 {
        let responses: Vec<_> = thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(|| send(&service, get("/"))));
            threads.map(|each| each.join().unwrap()).into()
        });
        let admitted = responses.iter().filter(|each| each.status() == 200);
        assert_eq!(admitted.count(), 3);
    }
    assert_eq!(layer.tracked_keys(), 0);
}

#[test]
fn eight_threads_that_come_and_go_never_exceed_the_limit() {
    let layer = at_most(3);
    let running = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&running);
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let at_once = seen.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(at_once <= 3, "{at_once} at once");
        std::future::ready(Ok::<_, ()>(Response::new(String::from("x"))))
    }));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let response = send(&service, get("/"));
                    thread::yield_now();
                    if response.status() == 200 {
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(layer.tracked_keys(), 0);
}

#[test]
fn services_and_bodies_need_not_be_send() {
    let local = service_fn(async |request: Request<Rc<str>>| {
        Ok::<_, Rc<str>>(Response::new(request.body().to_string()))
    });
    let service = at_most(1).layer(local);
    let response = now(service.oneshot(Request::new(Rc::from("body")))).unwrap();
    assert_eq!(text(response), "body");
}

#[test]
fn public_types_have_the_auto_traits_that_servers_need() {
    fn send_sync_clone<T: Send + Sync + Clone + 'static>() {}
    fn send<T: Send>() {}
    send_sync_clone::<ConcurrencyLayer>();
    send_sync_clone::<ConcurrencyLimit<Probe>>();
    send::<ConcurrencyBody<String>>();
    send::<ResponseFuture<Probe, String, ProblemJson>>();
}

#[test]
fn layers_can_stand_around_it() {
    // Per client inside, for the whole service outside, and a rate around both.
    let per_client = ConcurrencyLayer::new(Concurrency::max(1), Header::new("x-api-key"));
    let service = RateLimitLayer::new(Quota::per_hour(100), Global)
        .layer(at_most(2).layer(per_client.layer(Probe::default())));
    let from = |client| send(&service, get("/").header("x-api-key", client));
    let _held: Vec<_> = ["a", "b"].map(from).into();
    let denied = from("c");
    assert_eq!(denied.status(), 429);
    assert!(text(denied).contains(r#"["concurrency"]"#));
}

#[test]
fn lists_and_the_switch_work_as_around_a_rate() {
    let switch = Arc::new(AtomicBool::new(true));
    let by_name = Header::new("x-name");
    let layer = ConcurrencyLayer::new(Concurrency::max(1), by_name)
        .skip(|parts| parts.uri.path() == "/health")
        .deny(|parts| parts.uri.path() == "/admin")
        .skip_key(|key| *key == Key::from("monitor"))
        .deny_key(|key| *key == Key::from("mallory"))
        .enabled(Arc::clone(&switch));
    let service = layer.layer(Probe::default());
    let get_as = |path, name| send(&service, get(path).header("x-name", name));
    let _held = get_as("/", "alice");
    let statuses = |path, name| get_as(path, name).status().as_u16();
    assert_eq!(statuses("/", "alice"), 429);
    assert_eq!(statuses("/health", "alice"), 200);
    assert_eq!(statuses("/admin", "alice"), 403);
    assert_eq!(statuses("/", "mallory"), 403);
    let _monitors = [get_as("/", "monitor"), get_as("/", "monitor")];
    assert_eq!(layer.tracked_keys(), 1);

    switch.store(false, Ordering::Relaxed);
    assert_eq!(statuses("/", "alice"), 200);
    assert_eq!(statuses("/admin", "mallory"), 200);
}

#[test]
fn a_limit_that_makes_no_sense_panics_at_start_up_or_is_returned() {
    let refused = |limit| ConcurrencyLayer::try_new(limit, Global).unwrap_err();
    let zero = refused(Concurrency::max(0));
    assert_eq!(zero.kind(), ConfigErrorKind::Limit);
    assert_eq!(
        refused(Concurrency::max(1).named("ö")).kind(),
        ConfigErrorKind::Name
    );
    let panic = catch_unwind(|| {
        let _ = at_most(0);
    });
    assert_eq!(
        *panic.unwrap_err().downcast::<String>().unwrap(),
        zero.to_string()
    );
    assert!(zero.to_string().contains("concurrency of 0"), "{zero}");
}

/// With shares of 100, 95, 80 and 60 of ten: 10, 9, 8 and 6 in flight.
#[test]
fn classes_are_shed_one_after_another() {
    let shares = [
        ("/critical", 100),
        ("/writes", 95),
        ("/reads", 80),
        ("/test", 60),
    ];
    let layer = at_most(10).priority(move |parts| {
        let share = shares.iter().find(|(path, _)| *path == parts.uri.path());
        share.map_or(Priority::CRITICAL, |(_, share)| {
            Priority::share(*share).unwrap()
        })
    });
    let service = layer.layer(Probe::default());
    let mut running = Vec::new();
    let mut passed = Vec::new();
    for (path, _) in shares.iter().rev() {
        loop {
            let response = send(&service, get(path));
            if response.status() != 200 {
                let is_full = running.len() == 10;
                assert_eq!(response.status(), if is_full { 429 } else { 503 });
                assert!(response.headers().get("retry-after").is_none());
                break;
            }
            running.push(response);
        }
        passed.push(running.len());
    }
    assert_eq!(passed, [6, 8, 9, 10]);
    // All classes share one count: a single end lets only the highest class in.
    running.pop();
    for path in ["/test", "/reads", "/writes"] {
        assert_eq!(send(&service, get(path)).status(), 503, "{path}");
    }
    assert_eq!(send(&service, get("/critical")).status(), 200);
}

#[test]
fn smallest_share_is_one_request() {
    let layer = at_most(3).priority(|_| Priority::share(1).unwrap());
    let service = layer.layer(Probe::default());
    let first = held(&service);
    assert_eq!(send(&service, get("/")).status(), 503);
    drop(first);
    assert_eq!(send(&service, get("/")).status(), 200);
}
