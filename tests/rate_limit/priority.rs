//! Layers with priorities: shares of one limit, shed requests and their responses.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, request::Parts};
use testkit::{Probe, field, fields, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{
    AsyncLimiter, ConfigErrorKind, Decision, Global, Header, Key, Limiter, LimiterError,
    LocalLimiter, Priority, Quota, RateLimitLayer,
    clock::ManualClock,
    decision::{Op, Policy},
    limiter::{Call, Pending, Tier},
    observe::Event,
};

const HALF: Priority = Priority::share(50).expect("a share");
const READS: Priority = Priority::share(80).expect("a share");

/// The class that the path names.
fn by_path(parts: &Parts) -> Priority {
    match parts.uri.path() {
        "/half" => HALF,
        "/reads" => READS,
        _ => Priority::CRITICAL,
    }
}

fn seen<B>(response: &Response<B>) -> (u16, Option<&str>) {
    (
        response.status().as_u16(),
        field(response, "x-ratelimit-remaining"),
    )
}

#[test]
fn classes_share_one_limit_and_leave_the_rest_to_critical_requests() {
    let (limiter, clock) = limiter(Quota::per_second(10));
    let service = RateLimitLayer::new(limiter, Global)
        .priority(by_path)
        .layer(Probe::default());
    for left in ["4", "3", "2", "1", "0"] {
        assert_eq!(seen(&send(&service, get("/half"))), (200, Some(left)));
    }
    assert_eq!(seen(&send(&service, get("/half"))), (503, Some("0")));
    for left in ["2", "1", "0"] {
        assert_eq!(seen(&send(&service, get("/reads"))), (200, Some(left)));
    }
    assert_eq!(seen(&send(&service, get("/reads"))), (503, Some("0")));
    // The limit of the fields stays that of all.
    let last = send(&service, get("/"));
    assert_eq!(field(&last, "x-ratelimit-limit"), Some("10"));
    assert_eq!(fields(&last, "ratelimit"), [r#""default";r=1;t=1"#]);
    assert_eq!(seen(&send(&service, get("/"))), (200, Some("0")));
    // Nothing is left for anybody: no class is shed.
    for path in ["/", "/reads", "/half"] {
        assert_eq!(seen(&send(&service, get(path))), (429, Some("0")));
    }
    clock.advance(Duration::from_millis(500));
    assert_eq!(seen(&send(&service, get("/half"))), (503, Some("0")));
    assert_eq!(seen(&send(&service, get("/"))), (200, Some("4")));
}

#[test]
fn shed_request_is_a_problem_of_reduced_capacity() {
    let (limiter, _) = limiter(Quota::per_second(2));
    let layer = RateLimitLayer::new(limiter, Global).priority(by_path);
    let service = layer.clone().layer(Probe::default());
    assert_eq!(send(&service, get("/half")).status(), 200);
    let shed = send(&service, get("/half"));
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&shed, "retry-after"), Some("1"));
    assert_eq!(
        field(&shed, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(field(&shed, "cache-control"), Some("no-store"));
    assert_eq!(
        shed.body(),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
         \"title\":\"Request cannot be satisfied due to temporary server capacity constraints\",\
         \"status\":503,\"violated-policies\":[\"default\"]}"
    );
    let other = layer
        .shed_status(StatusCode::TOO_MANY_REQUESTS)
        .layer(Probe::default());
    let shed = send(&other, get("/half"));
    assert_eq!(shed.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(shed.body().contains("\"status\":429"), "{}", shed.body());
}

#[test]
fn shed_call_of_grpc_is_unavailable_and_has_the_wait() {
    let (limiter, _) = limiter(Quota::per_second(2));
    let layer = RateLimitLayer::new(limiter, Global).priority(by_path);
    let service = layer.clone().layer(Probe::default());
    let call = || {
        let call = Request::builder().method(Method::POST).uri("/half");
        let call = call.header("content-type", "application/grpc");
        call.header("te", "trailers")
    };
    assert_eq!(send(&service, call()).status(), 200);
    let shed = send(&service, call());
    assert_eq!(shed.status(), 200);
    assert_eq!(field(&shed, "grpc-status"), Some("14"));
    assert_eq!(field(&shed, "grpc-retry-pushback-ms"), Some("500"));
    assert!(field(&shed, "grpc-status-details-bin").is_some());
    let exhausted = layer
        .shed_status(StatusCode::TOO_MANY_REQUESTS)
        .layer(Probe::default());
    let shed = send(&exhausted, call());
    assert_eq!(field(&shed, "grpc-status"), Some("8"));
}

#[test]
fn rejections_and_observers_know_shed_requests() {
    let (limiter, _) = limiter(Quota::per_second(2));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&heard);
    let layer = RateLimitLayer::new(limiter, Global)
        .priority(by_path)
        .observer(move |event: &Event<'_>| {
            if let Event::Decided(decided) = event {
                let decision = decided.decision();
                let outcome = (decision.is_denied(), decision.is_shed());
                events.lock().unwrap().push(outcome);
            }
        })
        .rejection_fn(|rejection| {
            let mut response = Response::new(format!("shed: {}", rejection.is_shed()));
            *response.status_mut() = rejection.status();
            response
        });
    let service = layer.layer(Probe::default());
    send(&service, get("/half"));
    let shed = send(&service, get("/half"));
    assert_eq!(
        (shed.status().as_u16(), &**shed.body()),
        (503, "shed: true")
    );
    send(&service, get("/"));
    let denied = send(&service, get("/half"));
    assert_eq!(
        (denied.status().as_u16(), &**denied.body()),
        (429, "shed: false")
    );
    let all = [(false, false), (true, true), (false, false), (true, false)];
    assert_eq!(*heard.lock().unwrap(), all);
}

#[test]
fn settings_besides_the_class_still_apply() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_day(10).fixed_window())
        .tier("small", Quota::per_day(4).fixed_window())
        .clock(clock)
        .build()
        .unwrap();
    let handle = limiter.clone();
    let service = RateLimitLayer::new(limiter, Header::new("x-key"))
        .priority(by_path)
        .tier(|parts| {
            if parts.headers.contains_key("x-small") {
                Tier::named("small")
            } else {
                Tier::DEFAULT
            }
        })
        .cost(|parts| u64::from(parts.uri.query().is_some()) + 1)
        .count_if(|response| response.status != StatusCode::NOT_FOUND)
        .layer(Probe::default());
    let small = |path: &str| {
        Request::get(path)
            .header("x-key", "a")
            .header("x-small", "1")
    };
    // Half of four is two.
    assert_eq!(seen(&send(&service, small("/half?two"))), (200, Some("0")));
    assert_eq!(seen(&send(&service, small("/half"))), (503, Some("0")));
    assert_eq!(seen(&send(&service, small("/?two"))), (200, Some("0")));
    let left = handle.peek(&Key::from("a"), 0).remaining();
    assert_eq!(left, Some(6), "one counter for both tiers and both classes");
}

#[test]
fn members_of_a_joint_limit_have_the_class_of_the_layer_or_their_own() {
    let limits = |own: bool| {
        let address = Quota::per_day(4).named("address").by(Header::new("x-key"));
        let everybody = Quota::per_day(4).named("everybody").by(Global);
        let everybody = if own {
            everybody.priority(by_path)
        } else {
            everybody
        };
        RateLimitLayer::all([address, everybody])
    };
    let request = |path: &str, key: &str| Request::get(path).header("x-key", key);
    let all = limits(false).priority(by_path).layer(Probe::default());
    for _ in 0..2 {
        assert_eq!(send(&all, request("/half", "a")).status(), 200);
    }
    let shed = send(&all, request("/half", "a"));
    assert_eq!(shed.status(), 503);
    assert!(
        shed.body().contains(r#"["address","everybody"]"#),
        "{}",
        shed.body()
    );
    let shed = send(&all, request("/half", "b"));
    assert_eq!(shed.status(), 503);
    assert!(shed.body().contains(r#"["everybody"]"#), "{}", shed.body());

    // Only the common limit has classes.
    let one = limits(true).layer(Probe::default());
    for _ in 0..2 {
        assert_eq!(send(&one, request("/half", "a")).status(), 200);
    }
    let shed = send(&one, request("/half", "a"));
    assert!(
        shed.body().contains(r#"policies":["everybody"]"#),
        "{}",
        shed.body()
    );
    for _ in 0..2 {
        assert_eq!(send(&one, request("/", "a")).status(), 200);
    }
    // Both deny: the address for reasons of its own.
    assert_eq!(send(&one, request("/half", "a")).status(), 429);
}

/// A limiter of a user's that knows no classes.
struct Own;

impl AsyncLimiter for Own {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        unreachable!("no layer is made")
    }

    fn policies(&self) -> &[Policy] {
        &[]
    }
}

#[test]
fn limits_that_cannot_be_shared_are_errors_when_the_layer_is_made() {
    let error = |layer: Result<_, tower_ratelimit::ConfigError>| -> String {
        let Err(error) = layer else {
            panic!("no error");
        };
        assert_eq!(error.kind(), ConfigErrorKind::Priority);
        error.to_string()
    };
    let of = |quota: Quota| {
        error(
            RateLimitLayer::new(quota, Global)
                .try_priority(by_path)
                .map(drop),
        )
    };
    let uncapped = of(Quota::per_day(9).fixed_window().uncapped().named("count"));
    assert!(
        uncapped.contains(r#""count""#) && uncapped.contains("beyond its limit"),
        "{uncapped}"
    );
    let one = of(Quota::per_day(1));
    assert!(
        one.contains("it holds 1") && one.contains("at least 2 units"),
        "{one}"
    );
    let queue = of(Quota::per_second(1).leaky_bucket(0));
    assert!(queue.contains("its queue is 0"), "{queue}");
    let own = error(
        RateLimitLayer::new(Own, Global)
            .try_priority(by_path)
            .map(drop),
    );
    assert!(own.contains("does not support priorities"), "{own}");
    let member = Quota::per_day(1).named("one").by(Global).priority(by_path);
    error(RateLimitLayer::try_all([member]).map(drop));
}

#[test]
fn a_limiter_without_classes_refuses_to_decide_for_one() {
    struct Plain(LocalLimiter);
    impl Limiter for Plain {
        type Future = <LocalLimiter as Limiter>::Future;

        fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
            match call.alone() {
                Ok(_) => self.0.call(call),
                Err(error) => Pending::Ready(Err(error)),
            }
        }

        fn policies(&self) -> &[Policy] {
            self.0.policies()
        }
    }
    let plain = Plain(LocalLimiter::new(Quota::per_day(4)));
    let class = (&Tier::DEFAULT, HALF);
    let decided = testkit::apply_in_class(&plain, class, &Key::global(), Op::Acquire(1));
    let decided = testkit::now(decided.into_future());
    let error = decided.unwrap_err().to_string();
    assert!(error.contains("no priorities"), "{error}");
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn shed_request_that_waits_is_in_the_queue_of_its_class() {
    use tower::ServiceExt;

    let (limiter, clock) = limiter(Quota::per_second(2));
    let layer = RateLimitLayer::new(limiter, Global)
        .priority(by_path)
        .wait(Duration::from_secs(2));
    let service = layer.layer(Probe::default());
    assert_eq!(send(&service, get("/half")).status(), 200);
    let waits = get("/half").body(String::new()).unwrap();
    let waiting = tokio::spawn(service.clone().oneshot(waits));
    tokio::task::yield_now().await;
    // It stands in no critical request's way.
    assert_eq!(send(&service, get("/")).status(), 200);
    clock.advance(Duration::from_secs(1));
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
}

/// One member has classes and the other has none: requests of the higher class do not stand behind those
/// of the lower one.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn members_of_a_joint_limit_have_queues_by_their_own_classes() {
    use tower::ServiceExt;

    let store = tower_ratelimit::LocalStore::builder()
        .clock(ManualClock::new())
        .build();
    let store = store.unwrap();
    let limiter = |quota: Quota| LocalLimiter::builder(quota).build_in(&store).unwrap();
    let address = limiter(Quota::per_day(4).named("address"));
    let everybody = limiter(Quota::per_second(2).named("everybody"));
    let layer = RateLimitLayer::all([
        address.by(Header::new("x-key")),
        everybody.by(Global).priority(by_path),
    ]);
    let service = layer.wait(Duration::from_secs(2)).layer(Probe::default());
    let request = |path: &str| Request::get(path).header("x-key", "a");
    assert_eq!(send(&service, request("/half")).status(), 200);
    let waits = request("/half").body(String::new()).unwrap();
    let waiting = tokio::spawn(service.clone().oneshot(waits));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    assert_eq!(send(&service, request("/")).status(), 200);
    waiting.abort();
}
