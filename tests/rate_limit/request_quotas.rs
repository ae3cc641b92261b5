//! Quotas that come with requests, from a customer's row, and tiers by names from data.

use http::request::Parts;
use testkit::{Probe, field, fields, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{
    Global, Header, Key, Limiter, LocalLimiter, Quota, RateLimitLayer,
    clock::ManualClock,
    decision::Op,
    limiter::{IntoLimiter, Pending, RequestQuota, Tier},
};

/// The request's own fields, where an application would read a row of a database.
fn row(parts: &Parts) -> Option<RequestQuota> {
    let number = |name: &str| parts.headers.get(name)?.to_str().ok()?.parse().ok();
    let quota = RequestQuota::limit(number("x-limit")?);
    let quota = number("x-burst").map_or(quota, |burst| quota.burst(burst));
    Some(number("x-queue").map_or(quota, |queue| quota.queue(queue)))
}

fn with_rows<I: IntoLimiter<Via>, Via>(limiter: I) -> RateLimitLayer<I::Limiter> {
    RateLimitLayer::new(limiter, Header::new("x-user")).quota(row)
}

fn by(user: &str, fields: &[(&str, u64)]) -> http::request::Builder {
    let request = get("/").header("x-user", user);
    (fields.iter()).fold(request, |request, (name, value)| {
        request.header(*name, *value)
    })
}

fn acquire<L: Limiter>(limiter: &L, quota: RequestQuota) -> bool {
    let Pending::Ready(decision) =
        testkit::apply_in(limiter, &quota.into(), &Key::from("alice"), Op::Acquire(1))
    else {
        panic!("it is local");
    };
    decision.unwrap().is_allowed()
}

#[test]
fn unit_is_a_parameter_of_the_policy_also_for_a_row_and_a_tier() {
    let quota = |limit| Quota::per_minute(limit).named("llm").unit("tokens");
    let limiter = LocalLimiter::builder(quota(60)).tier("small", quota(6));
    let limiter = limiter.clock(ManualClock::new()).build().unwrap();
    let layer = with_rows(limiter.clone());
    let service = layer.layer(Probe::default());
    let policy = |request| {
        let response = send(&service, request);
        fields(&response, "ratelimit-policy").join(", ")
    };
    assert_eq!(policy(by("ann", &[])), r#""llm";q=60;w=60;qu="tokens""#);
    let row = by("bob", &[("x-limit", 600)]);
    assert_eq!(policy(row), r#""llm";q=600;w=60;qu="tokens""#);
    let tiers = RateLimitLayer::new(limiter, Global).tier(|_| Tier::named("small"));
    let response = send(&tiers.layer(Probe::default()), get("/"));
    assert_eq!(
        fields(&response, "ratelimit-policy"),
        [r#""llm";q=6;w=60;qu="tokens""#]
    );
    let without = RateLimitLayer::new(Quota::per_minute(60), Global);
    let response = send(&without.layer(Probe::default()), get("/"));
    assert_eq!(
        fields(&response, "ratelimit-policy"),
        [r#""default";q=60;w=60"#]
    );
}

#[test]
fn each_request_has_its_rows_numbers_in_every_field() {
    let (limiter, _) = limiter(Quota::per_minute(60).named("api"));
    let service = with_rows(limiter).layer(Probe::default());
    let own = send(&service, by("ann", &[]));
    assert_eq!(fields(&own, "ratelimit-policy"), [r#""api";q=60;w=60"#]);
    assert_eq!(field(&own, "x-ratelimit-remaining"), Some("59"));

    let larger = send(&service, by("bob", &[("x-limit", 600)]));
    assert_eq!(fields(&larger, "ratelimit-policy"), [r#""api";q=600;w=60"#]);
    assert_eq!(fields(&larger, "ratelimit"), [r#""api";r=599;t=60"#]);
    assert_eq!(field(&larger, "x-ratelimit-limit"), Some("600"));

    let small = [("x-limit", 6), ("x-burst", 2)];
    let first = send(&service, by("cat", &small));
    assert_eq!(fields(&first, "ratelimit-policy"), [r#""api";q=2;w=20"#]);
    assert_eq!(send(&service, by("cat", &small)).status(), 200);
    let denied = send(&service, by("cat", &small));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("10"));
    assert_eq!(field(&denied, "x-ratelimit-limit"), Some("2"));
    assert!(denied.body().contains(r#""violated-policies":["api"]"#));

    // A limit of 0 denies everything, and reports no time of a retry.
    let closed = send(&service, by("dan", &[("x-limit", 0)]));
    assert_eq!(closed.status(), 429);
    assert_eq!(field(&closed, "retry-after"), None);
    assert_eq!(field(&closed, "x-ratelimit-limit"), Some("0"));
    assert_eq!(fields(&closed, "ratelimit-policy"), [r#""api";q=0;w=60"#]);
}

#[test]
fn grpc_denials_report_the_wait_of_the_row() {
    let (limiter, _) = limiter(Quota::per_minute(60));
    let service = with_rows(limiter).layer(Probe::default());
    let call = || {
        let call = by("ann", &[("x-limit", 1)]).method("POST");
        call.header("content-type", "application/grpc")
    };
    assert_eq!(send(&service, call()).status(), 200);
    let denied = send(&service, call());
    assert_eq!(field(&denied, "grpc-status"), Some("8"));
    assert_eq!(field(&denied, "grpc-retry-pushback-ms"), Some("60000"));
}

#[test]
fn without_a_row_the_tier_counts() {
    let limiter = LocalLimiter::builder(Quota::per_hour(2))
        .tier(String::from("pro"), Quota::per_hour(4))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let layer = with_rows(limiter).tier(|parts| match parts.headers.get("x-plan") {
        Some(plan) => Tier::named_owned(plan.to_str().unwrap()),
        None => Tier::DEFAULT,
    });
    let service = layer.layer(Probe::default());
    let limit = |request| {
        let response = send(&service, request);
        field(&response, "x-ratelimit-limit").map(str::to_owned)
    };
    assert_eq!(limit(by("ann", &[])).unwrap(), "2");
    assert_eq!(limit(by("ann", &[]).header("x-plan", "pro")).unwrap(), "4");
    let both = by("ann", &[("x-limit", 3)]).header("x-plan", "pro");
    assert_eq!(limit(both).unwrap(), "3");
    let unknown = by("ann", &[]).header("x-plan", "gold");
    assert_eq!(send(&service, unknown).status(), 503);
}

#[test]
fn owned_name_is_the_same_tier_and_freed_with_its_last_clone() {
    let name: std::sync::Arc<str> = "pro".into();
    let owned = Tier::named_owned(std::sync::Arc::clone(&name));
    assert_eq!(owned, Tier::named("pro"));
    assert_eq!(Tier::named_owned(""), Tier::DEFAULT);
    let builder = LocalLimiter::builder(Quota::per_hour(2));
    let limiter = builder.tier(name.to_string(), Quota::per_hour(4)).build();
    drop((owned.clone(), owned, limiter));
    assert_eq!(std::sync::Arc::strong_count(&name), 1);
}

#[test]
fn alternating_between_rows_gives_nothing_back() {
    for own in [
        Quota::per_minute(60),
        Quota::per_minute(60).leaky_bucket(59),
        Quota::per_minute(60).fixed_window(),
        Quota::per_minute(60).sliding_window(),
        Quota::per_minute(60).sliding_log(),
    ] {
        let (limiter, _) = limiter(own);
        // Beside the lock-free one, one whose keys have more to remember.
        let locked = LocalLimiter::builder(own).block_for(std::time::Duration::from_secs(1));
        let locked = locked.clock(ManualClock::new()).build().unwrap();
        for limiter in [limiter, locked] {
            assert!(limiter.hit(&Key::from("alice"), 60).charged() == 60);
            for limit in [1, 59, 60, 7, 60, 999] {
                let rows = [RequestQuota::limit(limit), RequestQuota::limit(60)];
                assert!(rows.iter().all(|row| !acquire(&limiter, *row)), "{own:?}");
            }
            limiter.reset(&Key::from("alice"));
            let mut passed = 0;
            for step in 0..400 {
                let row = RequestQuota::limit([60, 3, 60, 20][step % 4]);
                passed += usize::from(acquire(&limiter, row));
            }
            // A unit of a smaller row takes more of the time that a bucket's rows share.
            assert!((1..=60).contains(&passed), "{passed} of {own:?}");
            assert!(!acquire(&limiter, RequestQuota::limit(60)), "{own:?}");
        }
    }
}

#[test]
fn no_row_holds_more_than_the_limiters_own_quota() {
    let held = |own: Quota, row: RequestQuota| {
        let (limiter, clock) = limiter(own);
        let (tier, key) = (row.into(), Key::from("alice"));
        let Pending::Ready(all) =
            testkit::apply_in(&limiter, &tier, &key, Op::AcquireUpTo(u64::MAX));
        let at_once = all.unwrap().charged();
        clock.advance(std::time::Duration::from_secs(1));
        let Pending::Ready(more) =
            testkit::apply_in(&limiter, &tier, &key, Op::AcquireUpTo(u64::MAX));
        (at_once, more.unwrap().charged())
    };
    let own = Quota::per_second(10).burst(20);
    // Two seconds' worth, whatever the burst; a burst that fits; and none means two seconds' worth.
    assert_eq!(held(own, RequestQuota::limit(50).burst(500)), (100, 50));
    assert_eq!(held(own, RequestQuota::limit(50).burst(60)), (60, 50));
    assert_eq!(held(own, RequestQuota::limit(50)), (100, 50));
    // A microsecond a unit.
    let fastest = held(own, RequestQuota::limit(u64::MAX).burst(u64::MAX));
    assert_eq!(fastest, (2_000_000, 1_000_000));
    // One unit always fits, in the time of the limiter's own.
    let hourly = Quota::per(3_600, std::time::Duration::from_secs(3_600)).burst(1);
    assert_eq!(held(hourly, RequestQuota::limit(1)), (1, 1));
    let window = Quota::per_day(60).fixed_window();
    assert_eq!(held(window, RequestQuota::limit(600)), (60, 0));
    assert_eq!(held(window, RequestQuota::limit(6)), (6, 0));
}

#[test]
fn a_tier_makes_room_for_larger_rows() {
    let limiter = LocalLimiter::builder(Quota::per_day(60).sliding_log())
        .tier("largest", Quota::per_day(600).sliding_log())
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let tier = RequestQuota::limit(900).into();
    let Pending::Ready(taken) =
        testkit::apply_in(&limiter, &tier, &"alice".into(), Op::AcquireUpTo(1_000));
    assert_eq!(taken.unwrap().charged(), 600);
}

#[test]
fn receipts_give_back_to_the_row_that_was_charged() {
    let (limiter, _) = limiter(Quota::per_minute(60));
    let service = with_rows(limiter.clone())
        .count_if(|_| false)
        .layer(Probe::default());
    for _ in 0..20 {
        let spared = send(&service, by("ann", &[("x-limit", 3)]));
        assert_eq!(spared.status(), 200);
    }
    // The handle gives it back to the row, though it does not name it.
    let key = Key::from("alice");
    let tier = RequestQuota::limit(3).into();
    let Pending::Ready(taken) = testkit::apply_in(&limiter, &tier, &key, Op::Acquire(3));
    let taken = taken.unwrap();
    assert_eq!(limiter.peek(&key, 1).remaining(), Some(0));
    let back = limiter.refund(&key, 3, Some(taken.receipt()));
    assert_eq!(back.binding().limit(), 3);
    assert_eq!(limiter.peek(&key, 1).remaining(), Some(60));
}

#[test]
fn limiter_without_rows_is_an_error_that_names_the_cause() {
    let text =
        |limiter: &dyn Fn(
            &Tier,
        )
            -> Result<tower_ratelimit::Decision, tower_ratelimit::LimiterError>| {
            limiter(&RequestQuota::limit(5).into())
                .unwrap_err()
                .to_string()
        };
    let several = LocalLimiter::new([Quota::per_second(1), Quota::per_day(9)]);
    let key = Key::global();
    let error = text(&|tier| {
        let Pending::Ready(answer) = testkit::apply_in(&several, tier, &key, Op::Peek(1));
        answer
    });
    assert!(error.contains("this limiter has several"), "{error}");
    // Requests without a row are not limited.
    let service = RateLimitLayer::new(several, Global)
        .quota(row)
        .layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(send(&service, get("/").header("x-limit", 5)).status(), 503);
}

#[cfg(feature = "tracing")]
#[test]
fn each_fault_is_one_line() {
    let sent = |own: Quota, fields: &[(&str, u64)]| {
        let (limiter, _) = limiter(own);
        let service = with_rows(limiter).layer(Probe::default());
        testkit::logged(|| {
            for _ in 0..3 {
                assert_eq!(send(&service, by("ann", fields)).status(), 200);
            }
        })
    };
    let own = Quota::per_minute(60);
    let burst = sent(own, &[("x-limit", 60), ("x-burst", 90)]);
    assert_eq!(burst.len(), 1, "{burst:?}");
    assert!(burst[0].contains("was cut to 60 at once"), "{burst:?}");
    assert_eq!(sent(own, &[("x-limit", u64::MAX)]).len(), 1);
    let window = sent(own.fixed_window(), &[("x-limit", 60), ("x-burst", 5)]);
    assert!(window[0].contains("means nothing"), "{window:?}");
    assert_eq!(window.len(), 1);
    // A number that fits after rounding logs no line, and neither does a limit of 0.
    for (limit, own) in [(60, 7), (7, 60), (59, 61), (1, 999)] {
        let lines = testkit::logged(|| {
            let (limiter, _) = limiter(Quota::per_minute(own));
            acquire(&limiter, RequestQuota::limit(limit));
            acquire(&limiter, RequestQuota::limit(0));
        });
        assert_eq!(lines, [""; 0]);
    }
    // A layer whose limiter has several quotas logs it when it is built, once.
    let several = LocalLimiter::new([Quota::per_second(1), Quota::per_day(9)]);
    let lines = testkit::logged(|| {
        let service = with_rows(several).layer(Probe::default());
        for _ in 0..3 {
            assert_eq!(send(&service, by("ann", &[("x-limit", 5)])).status(), 503);
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
}
