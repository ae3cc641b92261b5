//! Treatment of a request by the layer: costs, exceptions, missing keys, shadows, failures.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use testkit::{Lines, Probe, field, fields, get, limiter, now, send};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Header, Headers, Key, KeyError, KeyErrorKind, KeyExtractor,
    LimiterError, LimiterErrorKind, LocalLimiter, LocalStore, MissingKey, PeerIp, Quota,
    RateLimitLayer,
    clock::ManualClock,
    decision::{Op, Policy},
    key::key_fn,
    observe::Event,
};

#[test]
fn a_denial_reports_a_wait_that_is_enough() {
    // A fifth of a second: what is floored elsewhere to `Retry-After: 0`.
    let (limiter, clock) = limiter(Quota::per_second(5));
    let service = RateLimitLayer::new(limiter.clone(), Global).layer(Probe::default());
    for _ in 0..5 {
        assert_eq!(send(&service, get("/")).status(), 200);
    }
    let denied = send(&service, get("/"));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("1"));

    let wait = limiter.peek(&Key::global(), 1).retry_after().unwrap();
    assert_eq!(wait, Duration::from_millis(200));
    clock.advance(wait - Duration::from_micros(1));
    assert_eq!(send(&service, get("/")).status(), 429);
    clock.advance(Duration::from_micros(1));
    assert_eq!(send(&service, get("/")).status(), 200);
}

#[test]
fn responses_show_how_the_quota_stands() {
    let (limiter, _) = limiter(Quota::per_second(10).burst(20));
    let service = RateLimitLayer::new(limiter, Global).layer(Probe::default());
    let response = send(&service, get("/"));
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""default";q=20;w=2"#)
    );
    assert_eq!(field(&response, "ratelimit"), Some(r#""default";r=19;t=2"#));
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("20"));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("19"));
    assert_eq!(field(&response, "x-ratelimit-reset"), Some("2"));
    assert_eq!(field(&response, "retry-after"), None);
}

/// A layer stops to look for a wrong set-up after its first requests, and charges from then on before it takes a request
/// apart, if its limiter can: one in a store does not.
#[test]
fn a_charge_before_the_request_is_taken_apart_changes_no_response() {
    let clock = ManualClock::new();
    let limiter = |stored| {
        let quota = Quota::per_second(5).burst(1_100);
        let builder = LocalLimiter::builder(quota).clock(clock.clone());
        if stored {
            let store = LocalStore::builder().clock(clock.clone()).build();
            LocalLimiter::builder(quota).build_in(&store.expect("a store"))
        } else {
            builder.build()
        }
        .expect("a good quota")
    };
    for headers in [Headers::none(), Headers::default()] {
        for overflows in [false, true] {
            let services = [false, true].map(|stored| {
                let layer = RateLimitLayer::new(limiter(stored), Global).headers(headers.clone());
                let layer = if overflows { layer.overflow() } else { layer };
                layer.layer(Probe::default())
            });
            for request in 0..1_130 {
                let [one, other] = services.each_ref().map(|service| {
                    let response = send(service, get("/"));
                    (response.status(), response.headers().clone())
                });
                assert_eq!(one, other, "{request}");
                let passes = request < 1_100 || overflows || request % 10 == 0;
                assert_eq!(one.0.is_success(), passes, "{request}");
                if request >= 1_099 && request % 10 == 9 {
                    clock.advance(Duration::from_millis(200));
                }
            }
            clock.advance(Duration::from_secs(1_000));
        }
    }
}

#[test]
fn headers_can_be_switched_off() {
    let layer = RateLimitLayer::new(Quota::per_hour(1), Global).headers(Headers::none());
    let service = layer.layer(Probe::default());
    assert!(send(&service, get("/")).headers().is_empty());
    let denied = send(&service, get("/"));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "ratelimit"), None);
    assert_eq!(field(&denied, "retry-after"), None);
}

#[test]
fn a_cost_of_several_takes_several() {
    let (limiter, _) = limiter(Quota::per_hour(10));
    let layer = RateLimitLayer::new(limiter, Global).cost(|parts| {
        if parts.method == http::Method::POST {
            4
        } else {
            1
        }
    });
    let service = layer.layer(Probe::default());
    let left = |request| {
        let response = send(&service, request);
        (
            response.status().as_u16(),
            field(&response, "x-ratelimit-remaining")
                .unwrap()
                .to_owned(),
        )
    };
    assert_eq!(left(Request::post("/")), (200, "6".into()));
    assert_eq!(left(Request::get("/")), (200, "5".into()));
    assert_eq!(left(Request::post("/")), (200, "1".into()));
    assert_eq!(left(Request::post("/")), (429, "1".into()));
    assert_eq!(left(Request::get("/")), (200, "0".into()));
}

#[test]
fn a_cost_of_0_is_a_look() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::new(limiter.clone(), Global).cost(|_| 0);
    let service = layer.layer(Probe::default());
    assert!(limiter.acquire(&Key::global(), 1).is_allowed());
    let response = send(&service, get("/"));
    assert_eq!(response.status(), 200);
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("0"));
}

#[test]
fn a_cost_above_the_burst_is_denied_without_a_wait() {
    let (limiter, _) = limiter(Quota::per_hour(10));
    let layer = RateLimitLayer::new(limiter, Global).cost(|_| 11);
    let service = layer.layer(Probe::default());
    let response = send(&service, get("/"));
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("10"));
}

#[test]
fn skipped_requests_pass_uncounted_and_untouched() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let layer =
        RateLimitLayer::new(limiter.clone(), Global).skip(|parts| parts.uri.path() == "/health");
    let service = layer.layer(Probe::default());
    for _ in 0..5 {
        let response = send(&service, get("/health"));
        assert_eq!(response.status(), 200);
        assert!(response.headers().is_empty());
    }
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(send(&service, get("/")).status(), 429);
    assert_eq!(send(&service, get("/health")).status(), 200);
}

#[test]
fn clients_without_a_key_share_one_bucket_by_default() {
    let layer = RateLimitLayer::new(Quota::per_hour(1), Header::new("x-api-key"));
    let service = layer.layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(
        send(&service, get("/").header("x-api-key", "")).status(),
        429
    );
    assert_eq!(send(&service, get("/")).status(), 429);
    assert_eq!(
        send(&service, get("/").header("x-api-key", "k")).status(),
        200
    );
    assert_eq!(
        send(&service, get("/").header("x-api-key", "k")).status(),
        429
    );
}

#[test]
fn clients_without_a_key_can_be_rejected_or_allowed() {
    let with = |action| {
        RateLimitLayer::new(Quota::per_hour(1), Header::new("x-api-key"))
            .on_missing_key(KeyErrorKind::Absent, action)
            .layer(Probe::default())
    };
    let rejecting = with(MissingKey::Reject);
    assert_eq!(send(&rejecting, get("/")).status(), 400);
    assert_eq!(
        send(&rejecting, get("/").header("x-api-key", "k")).status(),
        200
    );
    let skipping = with(MissingKey::Skip);
    for _ in 0..3 {
        assert_eq!(send(&skipping, get("/")).status(), 200);
    }
}

#[test]
fn a_server_that_is_set_up_wrong_answers_500_and_is_never_unlimited() {
    let probe = Probe::default();
    let service = RateLimitLayer::new(Quota::per_hour(1), PeerIp).layer(probe.clone());
    for _ in 0..3 {
        let response = send(&service, get("/"));
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(field(&response, "ratelimit"), None);
        assert!(
            !response.body().contains("connect_info"),
            "{}",
            response.body()
        );
    }
    assert_eq!(probe.count(), 0);

    let sharing = RateLimitLayer::new(Quota::per_hour(1), PeerIp)
        .on_missing_key(KeyErrorKind::Unavailable, MissingKey::Share)
        .layer(Probe::default());
    assert_eq!(send(&sharing, get("/")).status(), 200);
    assert_eq!(send(&sharing, get("/")).status(), 429);
}

#[test]
fn an_unavailable_key_is_not_papered_over_by_another_extractor() {
    let service =
        RateLimitLayer::new(Quota::per_hour(1), PeerIp.or(Global)).layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 500);
}

#[test]
fn a_shadow_counts_and_reports_and_touches_nothing() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .shadow(true)
        .observer(move |event: &Event<'_>| {
            let Event::Decided(decided) = event else {
                panic!("{event:?}")
            };
            assert!(decided.is_shadow());
            seen.push(format!("{:?}", decided.decision().outcome()));
        });
    let service = layer.layer(Probe::default());
    for _ in 0..3 {
        let response = send(&service, get("/"));
        assert_eq!(response.status(), 200);
        assert!(response.headers().is_empty());
    }
    assert_eq!(lines.take(), ["Allowed", "Denied", "Denied"]);
    assert!(limiter.peek(&Key::global(), 1).is_denied());
}

#[test]
fn a_shadow_allows_requests_without_a_key_and_failed_decisions() {
    let keyless = RateLimitLayer::new(Quota::per_hour(1), PeerIp).shadow(true);
    assert_eq!(
        send(&keyless.layer(Probe::default()), get("/")).status(),
        200
    );
    let failing = RateLimitLayer::new(Broken, Global).shadow(true);
    assert_eq!(
        send(&failing.layer(Probe::default()), get("/")).status(),
        200
    );
}

struct Broken;

impl AsyncLimiter for Broken {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        Err(LimiterError::unavailable("the store is gone"))
    }

    fn policies(&self) -> &[Policy] {
        const { &[Policy::new("broken", 1)] }
    }
}

#[test]
fn a_limiter_that_fails_is_503_and_never_429() {
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = RateLimitLayer::new(Broken, Global).observer(move |event: &Event<'_>| {
        if let Event::Failed { policies, error } = event {
            assert_eq!(error.kind(), LimiterErrorKind::Unavailable);
            seen.push(policies[0].name().to_owned());
        }
    });
    let probe = Probe::default();
    let response = send(&layer.layer(probe.clone()), get("/"));
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&response, "ratelimit"), None);
    assert_eq!(field(&response, "retry-after"), Some("1"));
    assert!(!response.body().contains("store"), "{}", response.body());
    assert_eq!(probe.count(), 0);
    assert_eq!(lines.take(), ["broken"]);
}

#[test]
fn handlers_see_the_decision_when_it_is_exposed() {
    let reads = service_fn(async |request: Request<String>| {
        let decision = request.extensions().get::<Decision>();
        let left = decision.map(|decision| decision.remaining());
        Ok::<_, std::io::Error>(Response::new(format!("{left:?}")))
    });
    let layer = RateLimitLayer::new(Quota::per_hour(3), Global);
    let hidden = layer.clone().layer(reads);
    assert_eq!(send(&hidden, get("/")).body(), "None");
    let exposed = layer.expose_decision(true).layer(reads);
    assert_eq!(send(&exposed, get("/")).body(), "Some(Some(1))");
}

#[test]
fn the_observer_gets_an_event_for_each_outcome() {
    let lines = Lines::default();
    let seen = lines.clone();
    let (limiter, _) = limiter(Quota::per_hour(10).named("api"));
    let key = key_fn(|parts| match parts.uri.path() {
        "/absent" => Err(KeyError::absent()),
        path => Ok(Key::from(path)),
    });
    let layer = RateLimitLayer::new(limiter, key)
        .cost(|_| 4)
        .skip(|parts| parts.uri.path() == "/free")
        .on_missing_key(KeyErrorKind::Absent, MissingKey::Reject)
        .observer(move |event: &Event<'_>| {
            seen.push(match event {
                Event::Decided(decided) => {
                    let quota = decided.decision().binding();
                    format!(
                        "{} {:?} cost {} near {} key {:?}",
                        quota.name(),
                        decided.decision().outcome(),
                        decided.cost(),
                        decided.is_near_limit(),
                        decided.key(),
                    )
                }
                Event::Bypassed { policies } => format!("{} bypassed", policies[0].name()),
                Event::KeyMissing { error, .. } => format!("no key: {:?}", error.kind()),
                other => format!("{other:?}"),
            });
        });
    let service = layer.layer(Probe::default());
    for path in ["/secret", "/secret", "/secret", "/free", "/absent"] {
        send(&service, get(path));
    }
    assert_eq!(
        lines.take(),
        [
            "api Allowed cost 4 near false key Key(str, 7 bytes)",
            "api Allowed cost 4 near true key Key(str, 7 bytes)",
            "api Denied cost 4 near true key Key(str, 7 bytes)",
            "api bypassed",
            "no key: Absent",
        ]
    );
}

#[test]
fn a_handler_s_own_fields_survive() {
    let own = service_fn(async |_: Request<String>| {
        Response::builder()
            .header("ratelimit", r#""mine";r=1;t=1"#)
            .header("x-ratelimit-remaining", "1")
            .header("x-ratelimit-limit", "2")
            .header("x-ratelimit-reset", "3")
            .header("retry-after", "9")
            .body(String::new())
    });
    let (limiter, _) = limiter(Quota::per_hour(10));
    let response = send(&RateLimitLayer::new(limiter, Global).layer(own), get("/"));
    assert_eq!(
        fields(&response, "ratelimit"),
        [r#""mine";r=1;t=1"#, r#""default";r=9;t=3240"#]
    );
    // One left is less than nine: the handler's set stays whole.
    assert_eq!(fields(&response, "x-ratelimit-limit"), ["2"]);
    assert_eq!(fields(&response, "x-ratelimit-remaining"), ["1"]);
    assert_eq!(fields(&response, "x-ratelimit-reset"), ["3"]);
    assert_eq!(fields(&response, "retry-after"), ["9"]);
}

#[test]
fn nested_layers_show_both_policies_and_the_tighter_set() {
    let (inner, _) = limiter(Quota::per_second(10).named("inner"));
    let (outer, _) = limiter(Quota::per_minute(5).named("outer"));
    let service = RateLimitLayer::new(outer, Global)
        .layer(RateLimitLayer::new(inner, Global).layer(Probe::default()));
    let response = send(&service, get("/"));
    assert_eq!(
        fields(&response, "ratelimit-policy"),
        [r#""inner";q=10;w=1"#, r#""outer";q=5;w=60"#]
    );
    assert_eq!(
        fields(&response, "ratelimit"),
        [r#""inner";r=9;t=1"#, r#""outer";r=4;t=48"#]
    );
    assert_eq!(fields(&response, "x-ratelimit-remaining"), ["4"]);
    assert_eq!(fields(&response, "x-ratelimit-limit"), ["5"]);
}

#[test]
fn redirects_carry_no_fields() {
    let redirect = service_fn(async |_: Request<String>| {
        Response::builder()
            .status(302)
            .header("location", "/login")
            .body(String::new())
    });
    let response = send(
        &RateLimitLayer::new(Quota::per_hour(1), Global).layer(redirect),
        get("/"),
    );
    assert_eq!(response.headers().len(), 1);
}

#[test]
fn jitter_lengthens_every_number_of_a_denial_alike() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    let layer = RateLimitLayer::new(limiter, Global)
        .headers(Headers::new().jitter(Duration::from_secs(1_000)));
    let service = layer.layer(Probe::default());
    send(&service, get("/"));
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let denied = send(&service, get("/"));
        let wait = field(&denied, "retry-after").unwrap().to_owned();
        assert_eq!(
            field(&denied, "ratelimit"),
            Some(&*format!(r#""default";r=0;t={wait}"#))
        );
        assert_eq!(field(&denied, "x-ratelimit-reset"), Some(&*wait));
        waits.insert(wait.parse::<u64>().unwrap());
    }
    assert!(
        waits.first() >= Some(&60) && waits.last() <= Some(&1_060),
        "{waits:?}"
    );
    assert!(waits.len() > 20, "all the same: {waits:?}");
}

#[test]
fn a_bad_quota_panics_at_start_up_or_is_returned() {
    let error = RateLimitLayer::try_new(Quota::per_second(0), Global).unwrap_err();
    let panic = std::panic::catch_unwind(|| {
        let _ = RateLimitLayer::new(Quota::per_second(0), Global);
    });
    let message = panic.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*message, error.to_string());
}

#[test]
fn a_body_without_a_built_in_rejection_uses_a_closure() {
    #[derive(Debug, PartialEq)]
    struct Odd(u16);
    let odd = service_fn(async |_: Request<String>| Ok::<_, std::io::Error>(Response::new(Odd(0))));
    let layer = RateLimitLayer::new(Quota::per_hour(1), Global).rejection_fn(|rejection| {
        let mut response = Response::new(Odd(rejection.status().as_u16()));
        *response.status_mut() = rejection.status();
        response
    });
    let service = layer.layer(odd);
    let sent = || now(service.clone().oneshot(Request::new(String::new()))).unwrap();
    assert_eq!(sent().body(), &Odd(0));
    let denied = sent();
    assert_eq!(denied.body(), &Odd(429));
    assert!(field(&denied, "retry-after").is_some());
}

/// A gRPC client reads gRPC's own fields; whoever else gets such an answer does not.
#[test]
fn only_grpc_calls_are_spared_the_fields_of_a_denial() {
    let layer = RateLimitLayer::new(Quota::per_hour(1), Global)
        .rejection_fn(|rejection| rejection.grpc_response());
    let service = layer.layer(Probe::default());
    send(&service, get("/"));
    assert!(field(&send(&service, get("/")), "retry-after").is_some());
    let call = || {
        get("/")
            .method("POST")
            .header("content-type", "application/grpc")
    };
    let denied = send(&service, call());
    assert_eq!(field(&denied, "grpc-status"), Some("8"));
    assert_eq!(field(&denied, "retry-after"), None);
}

#[test]
fn handlers_and_clients_see_each_of_several_quotas() {
    let left = service_fn(async |request: Request<String>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        let left: Vec<_> = decision.quotas().map(|quota| quota.remaining()).collect();
        Ok::<_, std::io::Error>(Response::new(format!("{left:?}")))
    });
    let quotas = [Quota::per_hour(3), Quota::per_day(5)];
    let layer = RateLimitLayer::new(quotas, Global).expose_decision(true);
    let response = send(&layer.layer(left), get("/"));
    assert_eq!(response.body(), "[Some(2), Some(4)]");
    let list = field(&response, "ratelimit").unwrap();
    assert!(list.contains(";r=2;") && list.contains(";r=4;"), "{list}");
}
