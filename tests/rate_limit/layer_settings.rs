//! Settings of the layer: tiers, lists, the switch, what counts, elastic and soft limits, blocks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use testkit::{Lines, Probe, Slow, answering, field, fields, get, limiter, now, send};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Decision, Global, Header, Key, LocalLimiter, Quota, RateLimitLayer, clock::ManualClock,
    limiter::Tier, observe::Event,
};

fn remaining<B>(response: &Response<B>) -> (u16, Option<&str>) {
    (
        response.status().as_u16(),
        field(response, "x-ratelimit-remaining"),
    )
}

#[test]
fn several_quotas_are_charged_together_or_not_at_all() {
    let (limiter, clock) = limiter([
        Quota::per_second(2),
        Quota::per_day(3).fixed_window().named("daily"),
    ]);
    let service = RateLimitLayer::new(limiter, Global).layer(Probe::default());
    let first = send(&service, get("/"));
    assert_eq!(
        fields(&first, "ratelimit-policy"),
        [r#""2-per-1s";q=2;w=1, "daily";q=3;w=86400"#]
    );
    assert_eq!(
        fields(&first, "ratelimit"),
        [r#""2-per-1s";r=1;t=1, "daily";r=2;t=86400"#]
    );
    // The binding policy: half of two is less than two thirds of three.
    assert_eq!(field(&first, "x-ratelimit-limit"), Some("2"));
    send(&service, get("/"));
    for _ in 0..5 {
        let denied = send(&service, get("/"));
        assert_eq!(
            fields(&denied, "ratelimit"),
            [r#""2-per-1s";r=0;t=1, "daily";r=1;t=86400"#]
        );
        assert_eq!(field(&denied, "retry-after"), Some("1"));
        assert!(
            denied
                .body()
                .contains(r#""violated-policies":["2-per-1s"]"#)
        );
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(send(&service, get("/")).status(), 200);
    let denied = send(&service, get("/"));
    assert_eq!(field(&denied, "retry-after"), Some("86399"));
    assert!(
        denied.body().contains(r#""violated-policies":["daily"]"#),
        "{}",
        denied.body()
    );
}

#[test]
fn tiers_have_quotas_of_their_own_and_share_the_key_s_count() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_hour(2).fixed_window().named("free"))
        .tier("pro", Quota::per_hour(4).fixed_window().named("pro"))
        .clock(clock)
        .build()
        .unwrap();
    let layer = RateLimitLayer::new(limiter, Header::new("x-user")).tier(|parts| {
        match parts.headers.get("x-plan").map(|plan| plan.as_bytes()) {
            Some(b"pro") => Tier::named("pro"),
            Some(b"unlimited") => Tier::UNLIMITED,
            Some(_) => Tier::named("unheard of"),
            None => Tier::DEFAULT,
        }
    });
    let service = layer.layer(Probe::default());
    let sent = |user, plan: Option<&str>| {
        let mut request = get("/").header("x-user", user);
        if let Some(plan) = plan {
            request = request.header("x-plan", plan);
        }
        send(&service, request)
    };
    assert_eq!(remaining(&sent("ann", None)), (200, Some("1")));
    assert_eq!(remaining(&sent("ann", None)), (200, Some("0")));
    assert_eq!(remaining(&sent("ann", None)), (429, Some("0")));
    let upgraded = sent("ann", Some("pro"));
    assert_eq!(remaining(&upgraded), (200, Some("1")));
    // Names and numbers are those of the tier.
    assert_eq!(
        fields(&upgraded, "ratelimit-policy"),
        [r#""pro";q=4;w=3600"#]
    );
    assert_eq!(fields(&upgraded, "ratelimit"), [r#""pro";r=1;t=3600"#]);
    assert_eq!(field(&upgraded, "x-ratelimit-limit"), Some("4"));
    assert_eq!(remaining(&sent("bob", Some("pro"))), (200, Some("3")));
    for _ in 0..10 {
        let free = sent("ann", Some("unlimited"));
        assert_eq!((free.status().as_u16(), free.headers().len()), (200, 0));
    }
    assert_eq!(sent("ann", Some("platinum")).status(), 503);
}

#[test]
fn a_quota_can_be_changed_while_it_is_in_force_and_headers_follow() {
    let (limiter, _) = limiter(Quota::per_hour(10));
    let service = RateLimitLayer::new(limiter.clone(), Global).layer(Probe::default());
    assert_eq!(remaining(&send(&service, get("/"))), (200, Some("9")));
    limiter
        .set_quota("default", Quota::per_hour(10).burst(3))
        .unwrap();
    let changed = send(&service, get("/"));
    assert_eq!(
        fields(&changed, "ratelimit-policy"),
        [r#""default";q=3;w=1080"#]
    );
    assert_eq!(remaining(&changed), (200, Some("1")));
    assert_eq!(field(&changed, "x-ratelimit-limit"), Some("3"));

    limiter
        .set_quota("default", Quota::per_minute(5).sliding_log())
        .unwrap();
    let changed = send(&service, get("/"));
    assert_eq!(
        fields(&changed, "ratelimit-policy"),
        [r#""default";q=5;w=60"#]
    );
    assert_eq!(remaining(&changed), (200, Some("4")));
}

#[test]
fn deny_lists_are_403_and_cost_nothing() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = RateLimitLayer::new(limiter, Header::new("x-user"))
        .deny(|parts| parts.uri.path() == "/admin")
        .deny_key(|key| *key == Key::from("mallory"))
        .skip_key(|key| *key == Key::from("monitor"))
        .observer(move |event: &Event<'_>| {
            seen.push(match event {
                Event::Banned { .. } => "banned".into(),
                Event::Bypassed { .. } => "bypassed".into(),
                Event::Decided(_) => "decided".into(),
                other => format!("{other:?}"),
            });
        });
    let service = layer.layer(Probe::default());
    let status = |path, user| {
        send(&service, get(path).header("x-user", user))
            .status()
            .as_u16()
    };
    assert_eq!(status("/admin", "ann"), 403);
    assert_eq!(status("/", "mallory"), 403);
    assert_eq!(status("/", "monitor"), 200);
    assert_eq!(status("/", "monitor"), 200);
    assert_eq!(status("/", "ann"), 200);
    assert_eq!(
        lines.take(),
        ["banned", "banned", "bypassed", "bypassed", "decided"]
    );
}

#[test]
fn who_has_no_key_is_on_no_list() {
    let layer = || RateLimitLayer::new(Quota::per_hour(1), Header::new("x-user"));
    let skipping = layer().skip_key(|_| true).layer(Probe::default());
    let denying = layer().deny_key(|_| true).layer(Probe::default());
    for service in [skipping, denying] {
        assert_eq!(send(&service, get("/")).status(), 200);
        assert_eq!(send(&service, get("/")).status(), 429);
    }
}

#[test]
fn the_switch_turns_the_layer_off_and_on() {
    let switch = Arc::new(AtomicBool::new(false));
    let layer = RateLimitLayer::new(Quota::per_hour(1), Global).enabled(Arc::clone(&switch));
    let service = layer.layer(Probe::default());
    for _ in 0..3 {
        assert!(send(&service, get("/")).headers().is_empty());
    }
    switch.store(true, Ordering::Relaxed);
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(send(&service, get("/")).status(), 429);
    switch.store(false, Ordering::Relaxed);
    assert_eq!(send(&service, get("/")).status(), 200);
}

#[test]
fn only_failed_logins_count() {
    let (limiter, _) = limiter(Quota::per_minute(5));
    let layer = RateLimitLayer::new(limiter, Global)
        .count_if(|response| response.status == StatusCode::UNAUTHORIZED);
    let service = layer.layer(answering());
    for _ in 0..20 {
        // The response shows the quota after the refund.
        assert_eq!(remaining(&send(&service, get("/200"))), (200, Some("5")));
    }
    for left in ["4", "3", "2", "1", "0"] {
        assert_eq!(remaining(&send(&service, get("/401"))), (401, Some(left)));
    }
    assert_eq!(send(&service, get("/200")).status(), 429);
}

#[test]
fn attempts_at_the_same_time_cannot_slip_through() {
    let (limiter, _) = limiter(Quota::per_minute(5));
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .count_if(|response| response.status == StatusCode::UNAUTHORIZED);
    let stuck =
        service_fn(|_: Request<String>| std::future::pending::<Result<Response<String>, ()>>());
    let service = layer.layer(stuck);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut pending = Vec::new();
    for _ in 0..20 {
        let mut attempt = Box::pin(service.clone().oneshot(Request::new(String::new())));
        match attempt.as_mut().poll(&mut cx) {
            std::task::Poll::Pending => pending.push(attempt),
            std::task::Poll::Ready(response) => assert_eq!(response.unwrap().status(), 429),
        }
    }
    assert_eq!(pending.len(), 5);
    // Those that are dropped stay counted.
    drop(pending);
    assert!(limiter.peek(&Key::global(), 1).is_denied());
}

#[test]
fn an_estimate_is_settled_by_the_response() {
    let (limiter, _) = limiter(Quota::per_hour(100));
    let layer = RateLimitLayer::new(limiter, Global)
        .cost(|_| 10)
        .final_cost(|response, charged| {
            assert_eq!(charged, 10);
            u64::from(response.status.as_u16()) - 200
        });
    let service = layer.layer(answering());
    assert_eq!(remaining(&send(&service, get("/210"))), (210, Some("90")));
    assert_eq!(remaining(&send(&service, get("/203"))), (203, Some("87")));
    assert_eq!(remaining(&send(&service, get("/250"))), (250, Some("37")));
    // More than is left: exhausted, and no further.
    assert_eq!(remaining(&send(&service, get("/299"))), (299, Some("0")));
}

#[test]
fn a_refund_through_a_limiter_that_waits_is_awaited() {
    let (local, _) = limiter(Quota::per_hour(5));
    let gate = Arc::new(tokio::sync::Semaphore::new(1));
    let slow = Slow {
        limiter: local.clone(),
        gate: Arc::clone(&gate),
    };
    let layer = RateLimitLayer::new(slow, Global).count_if(|_| false);
    let mut response = Box::pin(
        layer
            .layer(answering())
            .oneshot(Request::new(String::new())),
    );
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(response.as_mut().poll(&mut cx).is_pending());
    assert_eq!(local.peek(&Key::global(), 1).remaining(), Some(4));
    gate.add_permits(1);
    assert_eq!(remaining(&now(response).unwrap()), (200, Some("5")));
}

#[test]
fn an_elastic_layer_allows_while_there_is_room() {
    let (limiter, _) = limiter(Quota::per_hour(2));
    let idle = Arc::new(AtomicBool::new(true));
    let requested = Arc::new(AtomicU64::new(0));
    let layer = RateLimitLayer::new(limiter, Global)
        .expose_decision(true)
        .elastic({
            let (idle, requested) = (Arc::clone(&idle), Arc::clone(&requested));
            move || {
                requested.fetch_add(1, Ordering::Relaxed);
                idle.load(Ordering::Relaxed)
            }
        });
    let service = layer.layer(service_fn(async |request: Request<String>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        Ok::<_, std::io::Error>(Response::new(decision.is_excess().to_string()))
    }));
    assert_eq!(send(&service, get("/")).body(), "false");
    assert_eq!(send(&service, get("/")).body(), "false");
    assert_eq!(requested.load(Ordering::Relaxed), 0);
    let excess = send(&service, get("/"));
    assert_eq!(excess.body(), "true");
    assert_eq!(remaining(&excess), (200, Some("0")));
    assert_eq!(field(&excess, "retry-after"), None);
    idle.store(false, Ordering::Relaxed);
    assert_eq!(send(&service, get("/")).status(), 429);
    assert_eq!(requested.load(Ordering::Relaxed), 2);
}

#[test]
fn a_soft_limit_reports_0_remaining_in_its_extra_share() {
    let (limiter, _) = limiter(Quota::per_hour(2).soft(50));
    let service = RateLimitLayer::new(limiter, Global).layer(Probe::default());
    let first = send(&service, get("/"));
    assert_eq!(field(&first, "x-ratelimit-limit"), Some("2"));
    assert_eq!(remaining(&first), (200, Some("1")));
    assert_eq!(remaining(&send(&service, get("/"))), (200, Some("0")));
    assert_eq!(remaining(&send(&service, get("/"))), (200, Some("0")));
    assert_eq!(remaining(&send(&service, get("/"))), (429, Some("0")));
}

#[test]
fn who_breaks_the_limit_stays_out() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_minute(1))
        .block_for(Duration::from_secs(600))
        .clock(clock.clone())
        .build()
        .unwrap();
    let service = RateLimitLayer::new(limiter, Global).layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 200);
    let denied = send(&service, get("/"));
    assert_eq!(field(&denied, "retry-after"), Some("600"));
    assert_eq!(field(&denied, "ratelimit"), Some(r#""default";r=0;t=600"#));
    clock.advance(Duration::from_secs(599));
    assert_eq!(field(&send(&service, get("/")), "retry-after"), Some("1"));
    clock.advance(Duration::from_secs(1));
    assert_eq!(send(&service, get("/")).status(), 200);
}

#[test]
fn a_layer_tracks_at_most_max_keys() {
    let layer = RateLimitLayer::new(Quota::per_hour(1), Header::new("x-user")).max_keys(8);
    let service = layer.layer(Probe::default());
    for user in 0..200 {
        let request = get("/").header("x-user", user.to_string());
        assert_eq!(send(&service, request).status(), 200);
    }
    assert!(layer.limiter().tracked_keys() <= 16);
    assert!(layer.limiter().evictions() > 180);
    let none =
        std::panic::catch_unwind(|| RateLimitLayer::new(Quota::per_hour(1), Global).max_keys(0));
    let text = *none.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(text, "max_keys is 0; accepted are 1 to 4294967296");
}
