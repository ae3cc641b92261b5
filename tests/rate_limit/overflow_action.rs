//! Overflow: denied requests pass to the inner service with their denial, and take nothing.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode, request::Builder};
use testkit::{Lines, Probe, Slow, field, fields, get, limiter, now, send};
use tokio::sync::Semaphore;
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Header, Headers, Key, KeyErrorKind, LimiterError, LocalLimiter,
    LocalStore, MissingKey, Priority, Quota, RateLimitLayer,
    clock::ManualClock,
    decision::{Op, Policy},
    limiter::JointLimiter,
    observe::{Event, TopKeys},
    rate_limit::Decisions,
    reject::{Denial, PlainText},
};

/// Answers 203 to a request with a denial, which the body describes, and otherwise 200.
fn handler()
-> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |request: Request<String>| {
        let denial = request.extensions().get::<Decision>();
        let denial = denial.filter(|decision| decision.is_denied());
        let mut response = Response::new(denial.map_or_else(
            || "inner".to_owned(),
            |denial| format!("by {}", denial.binding().name()),
        ));
        if denial.is_some() {
            *response.status_mut() = StatusCode::NON_AUTHORITATIVE_INFORMATION;
        }
        Ok(response)
    })
}

fn statuses<S>(service: &S, requests: usize, request: impl Fn() -> Builder) -> Vec<u16>
where
    S: Service<Request<String>, Response = Response<String>, Error = Infallible> + Clone,
{
    let sent = (0..requests).map(|_| send(service, request()).status().as_u16());
    sent.collect()
}

#[test]
fn a_denied_request_goes_on_with_its_denial() {
    let (limiter, clock) = limiter(Quota::per_minute(2));
    let service = RateLimitLayer::new(limiter, Global)
        .overflow()
        .layer(handler());
    assert_eq!(statuses(&service, 4, || get("/")), [200, 200, 203, 203]);
    let overflowed = send(&service, get("/"));
    assert_eq!(overflowed.body(), "by default");
    // Fields of the denial, and no wait: that is for the handler to tell.
    assert_eq!(fields(&overflowed, "ratelimit"), [r#""default";r=0;t=30"#]);
    assert_eq!(
        fields(&overflowed, "ratelimit-policy"),
        [r#""default";q=2;w=60"#]
    );
    assert_eq!(field(&overflowed, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(field(&overflowed, "retry-after"), None);
    // It took nothing: half of the limit is back after half of its time.
    clock.advance(Duration::from_secs(30));
    assert_eq!(statuses(&service, 2, || get("/")), [200, 203]);
}

#[test]
fn fields_of_several_quotas_have_no_wait_either() {
    let (limiter, _) = limiter([
        Quota::per_minute(1).named("minute"),
        Quota::per_day(100).fixed_window().named("day"),
    ]);
    let layer = RateLimitLayer::new(limiter, Global).overflow();
    let layer = layer.headers(Headers::new().x_ratelimit_retry_after(true));
    let service = layer.layer(handler());
    send(&service, get("/"));
    let overflowed = send(&service, get("/"));
    assert_eq!(overflowed.status(), 203);
    assert!(fields(&overflowed, "ratelimit")[0].starts_with(r#""minute";r=0;t=60, "day";r=99;"#));
    assert_eq!(field(&overflowed, "retry-after"), None);
    assert_eq!(field(&overflowed, "x-ratelimit-retry-after"), None);
    assert_eq!(field(&overflowed, "x-ratelimit-remaining"), Some("0"));
}

#[test]
fn retry_after_and_status_are_those_of_the_handler() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let service = RateLimitLayer::new(limiter, Global).overflow();
    let service = service.layer(service_fn(async |request: Request<String>| {
        let response = Response::builder().status(if request.uri().path() == "/moved" {
            307
        } else {
            503
        });
        Ok::<_, Infallible>(
            response
                .header("retry-after", "7")
                .body(String::new())
                .unwrap(),
        )
    }));
    send(&service, get("/"));
    let overflowed = send(&service, get("/"));
    assert_eq!(
        (
            overflowed.status().as_u16(),
            field(&overflowed, "retry-after")
        ),
        (503, Some("7"))
    );
    let moved = send(&service, get("/moved"));
    assert_eq!(
        (moved.status().as_u16(), fields(&moved, "ratelimit").len()),
        (307, 0)
    );
}

#[test]
fn nothing_was_charged_and_nothing_is_refunded() {
    let (limiter, _) = limiter(Quota::per_day(3).fixed_window());
    let settled = Arc::new(Lines::default());
    let lines = Arc::clone(&settled);
    let seen = Arc::new(Lines::default());
    let events = Arc::clone(&seen);
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .overflow()
        .cost(|_| 2)
        .final_cost(move |_, charged| {
            lines.push(format!("charged {charged}"));
            0
        })
        .observer(move |event: &Event<'_>| {
            events.push(match event {
                Event::Decided(decided) => format!("decided {}", decided.decision().is_allowed()),
                Event::Overflowed(decided) => format!(
                    "overflowed, charged {}, provisional {}",
                    decided.decision().charged(),
                    decided.is_provisional()
                ),
                Event::Corrected(corrected) => format!("corrected to {}", corrected.after()),
                other => format!("{other:?}"),
            });
        });
    let service = layer.layer(handler());
    let _ = limiter.hit(&Key::global(), 2);
    // One unit is left, which two do not fit.
    assert_eq!(send(&service, get("/")).status(), 203);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(1));
    assert!(settled.take().is_empty());
    assert_eq!(seen.take(), ["overflowed, charged 0, provisional false"]);
    let _ = limiter.reset(&Key::global());
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(settled.take(), ["charged 2"]);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(3));
}

#[test]
fn requests_that_no_quota_denies_are_rejected_as_ever() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let layer = RateLimitLayer::new(limiter.clone(), Header::new("x-user"))
        .overflow()
        .on_missing_key(KeyErrorKind::Absent, MissingKey::Reject)
        .deny(|parts| parts.uri.path() == "/admin")
        .deny_key(|key| *key == Key::from("mallory"));
    let probe = Probe::default();
    let service = layer.layer(probe.clone());
    let by = |user: &'static str| move || get("/").header("x-user", user);
    assert_eq!(statuses(&service, 2, || get("/")), [400, 400]);
    assert_eq!(statuses(&service, 1, || get("/admin")), [403]);
    assert_eq!(statuses(&service, 1, by("mallory")), [403]);
    let block = limiter.block(&Key::from("eve"), Duration::from_secs(60));
    assert!(block.unwrap().is_blocked());
    let blocked = send(&service, by("eve")());
    assert_eq!(
        (blocked.status().as_u16(), field(&blocked, "retry-after")),
        (429, Some("60"))
    );
    assert_eq!(probe.count(), 0);
    assert_eq!(statuses(&service, 3, by("ann")), [200; 3]);
    assert_eq!(probe.count(), 3);
}

struct Failing;

impl AsyncLimiter for Failing {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        Err(LimiterError::unavailable("down"))
    }

    fn policies(&self) -> &[Policy] {
        &[]
    }
}

#[test]
fn a_failure_of_the_limiter_is_no_overflow() {
    let probe = Probe::default();
    let service = RateLimitLayer::new(Failing, Global)
        .overflow()
        .layer(probe.clone());
    assert_eq!(statuses(&service, 1, || get("/")), [503]);
    assert_eq!(probe.count(), 0);
}

#[test]
fn an_overflowed_request_starts_no_block() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_minute(1))
        .block_for(Duration::from_secs(3_600))
        .clock(clock.clone())
        .build()
        .unwrap();
    let overflowing = RateLimitLayer::new(limiter.clone(), Global)
        .overflow()
        .layer(handler());
    assert_eq!(statuses(&overflowing, 3, || get("/")), [200, 203, 203]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(statuses(&overflowing, 2, || get("/")), [200, 203]);
    // A layer that denies starts one, and a blocked key is rejected by both.
    let denying = RateLimitLayer::new(limiter, Global).layer(handler());
    assert_eq!(statuses(&denying, 1, || get("/")), [429]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(statuses(&overflowing, 1, || get("/")), [429]);
}

#[test]
fn shadow_wins() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let seen = Lines::default();
    let lines = seen.clone();
    let layer = RateLimitLayer::new(limiter, Global).overflow().shadow(true);
    let layer = layer.observer(move |event: &Event<'_>| {
        if let Event::Decided(decided) = event {
            lines.push(format!(
                "denied {}, shadow {}",
                decided.decision().is_denied(),
                decided.is_shadow()
            ));
        }
    });
    let service = layer.layer(handler());
    assert_eq!(statuses(&service, 2, || get("/")), [200, 200]);
    assert_eq!(send(&service, get("/")).headers().len(), 0);
    assert_eq!(
        seen.take(),
        [
            "denied false, shadow true",
            "denied true, shadow true",
            "denied true, shadow true"
        ]
    );
}

#[test]
fn an_elastic_layer_allows_first() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let spare = Arc::new(AtomicBool::new(true));
    let has_spare = Arc::clone(&spare);
    let layer = RateLimitLayer::new(limiter, Global).overflow();
    let service = layer
        .elastic(move || has_spare.load(Ordering::Relaxed))
        .layer(handler());
    assert_eq!(statuses(&service, 3, || get("/")), [200; 3]);
    spare.store(false, Ordering::Relaxed);
    assert_eq!(statuses(&service, 2, || get("/")), [203; 2]);
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_request_waits_first() {
    use crate::waiting_lines::TokioClock;
    use tower::ServiceExt;

    let limiter = LocalLimiter::builder(Quota::per_second(1))
        .clock(TokioClock(tokio::time::Instant::now()))
        .build()
        .unwrap();
    let layer = RateLimitLayer::new(limiter, Global).overflow();
    let service = layer.wait(Duration::from_secs(2)).layer(handler());
    let answers = (0..5).map(|_| {
        let began = tokio::time::Instant::now();
        let answer = service.clone().oneshot(Request::new(String::new()));
        async move {
            (
                answer.await.unwrap().status().as_u16(),
                began.elapsed().as_secs(),
            )
        }
    });
    let mut set = tokio::task::JoinSet::new();
    answers.for_each(|answer| drop(set.spawn(answer)));
    let mut answers = set.join_all().await;
    answers.sort_unstable();
    // Two wait for their turn; those whose turn cannot come in time overflow at once.
    assert_eq!(answers, [(200, 0), (200, 1), (200, 2), (203, 0), (203, 0)]);
}

#[test]
fn a_shed_request_overflows() {
    const HALF: Priority = Priority::share(50).expect("a share");
    let (limiter, _) = limiter(Quota::per_day(4));
    let layer = RateLimitLayer::new(limiter, Global).overflow();
    let service = layer
        .priority(|_| HALF)
        .layer(service_fn(async |request: Request<String>| {
            let denial = request.extensions().get::<Decision>();
            let shed = denial.is_some_and(Decision::is_shed);
            Ok::<_, Infallible>(Response::new(format!("shed {shed}")))
        }));
    let bodies = (0..3).map(|_| send(&service, get("/")).into_body());
    assert_eq!(
        bodies.collect::<Vec<_>>(),
        ["shed false", "shed false", "shed true"]
    );
}

#[test]
fn limits_that_decide_together_charge_none() {
    let store = LocalStore::builder()
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let limits = [(1, "each"), (3, "all")].map(|(limit, name)| {
        let quota = Quota::per_day(limit).named(name);
        LocalLimiter::builder(quota).build_in(&store).unwrap()
    });
    let [each, all] = limits.clone();
    let layer: RateLimitLayer<JointLimiter> =
        RateLimitLayer::all([each.by(Header::new("x-user")), all.by(Global)]);
    let service = layer.overflow().layer(handler());
    let by = |user: &'static str| move || get("/").header("x-user", user);
    assert_eq!(statuses(&service, 3, by("ann")), [200, 203, 203]);
    let [each, all] = limits;
    assert_eq!(all.peek(&Key::global(), 1).remaining(), Some(2));
    assert_eq!(statuses(&service, 1, by("bob")), [200]);
    assert_eq!(statuses(&service, 1, by("cid")), [200]);
    assert_eq!(send(&service, by("dan")()).body(), "by all");
    assert_eq!(each.peek(&Key::from("dan"), 1).remaining(), Some(1));
}

#[test]
fn a_call_of_grpc_is_answered_by_the_inner_service() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let service = RateLimitLayer::new(limiter, Global)
        .overflow()
        .layer(handler());
    let call = || {
        let call = Request::builder().method("POST").uri("/greeter");
        call.header("content-type", "application/grpc")
            .header("te", "trailers")
    };
    assert_eq!(statuses(&service, 2, call), [200, 203]);
    let overflowed = send(&service, call());
    assert_eq!(field(&overflowed, "grpc-status"), None);
    assert_eq!(fields(&overflowed, "ratelimit").len(), 1);
}

#[tokio::test]
async fn limiters_that_answer_later_overflow_as_well() {
    use tower::ServiceExt;

    let (limiter, _) = limiter(Quota::per_day(1));
    let gate = Arc::new(Semaphore::new(3));
    let layer = RateLimitLayer::new(Slow { limiter, gate }, Global).overflow();
    let service = layer.layer(handler());
    for expected in [200, 203, 203] {
        let response = service.clone().oneshot(Request::new(String::new())).await;
        assert_eq!(response.unwrap().status(), expected);
    }
}

#[test]
fn a_handler_can_deny_as_the_layer_would() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    let layer = RateLimitLayer::new(limiter, Global)
        .overflow()
        .rejection(PlainText);
    let service = layer.layer(service_fn(async |request: Request<String>| {
        let (parts, _) = request.into_parts();
        let decision = parts.extensions.get::<Decision>().cloned();
        let passed = decision.map_or(Ok(()), |decision| decision.into_result().map(drop));
        Ok::<_, Infallible>(match passed {
            Ok(()) => Response::new("inner".to_owned()),
            Err(denial) => Denial::for_request(denial, &parts).response_by(&PlainText),
        })
    }));
    assert_eq!(send(&service, get("/")).status(), 200);
    let denied = send(&service, get("/"));
    assert_eq!(
        (denied.status().as_u16(), field(&denied, "retry-after")),
        (429, Some("60"))
    );
    // The layer and the handler add each field once together.
    assert_eq!(fields(&denied, "ratelimit"), [r#""default";r=0;t=60"#]);
    assert_eq!(fields(&denied, "ratelimit-policy").len(), 1);
    assert_eq!(fields(&denied, "x-ratelimit-limit"), ["1"]);
}

#[test]
fn decisions_of_layers_around_it_stay() {
    let [(outer, _), (inner, _)] = [
        limiter(Quota::per_day(1).named("outer")),
        limiter(Quota::per_day(9).named("inner")),
    ];
    let inner = RateLimitLayer::new(inner, Global).expose_decision(true);
    let outer = RateLimitLayer::new(outer, Global).overflow();
    let service = outer.layer(inner.layer(service_fn(async |request: Request<String>| {
        let decisions = request.extensions().get::<Decisions>();
        let decisions = decisions.into_iter().flatten();
        let names = decisions.map(|exposed| {
            let decision = exposed.decision();
            format!(
                "{}{} ",
                decision.binding().name(),
                if decision.is_denied() { " denied" } else { "" }
            )
        });
        Ok::<_, Infallible>(Response::new(names.collect::<String>()))
    })));
    assert_eq!(send(&service, get("/")).body(), "inner ");
    assert_eq!(send(&service, get("/")).body(), "outer denied inner ");
}

#[test]
fn overflowed_requests_are_among_the_top_keys() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let top = Arc::new(TopKeys::new());
    let layer = RateLimitLayer::new(limiter, Header::new("x-user")).overflow();
    let service = layer.observer(Arc::clone(&top)).layer(handler());
    assert_eq!(
        statuses(&service, 4, || get("/").header("x-user", "ann")),
        [200, 203, 203, 203]
    );
    let report = top.report(5);
    assert_eq!(report.denials(), 3);
    assert_eq!(report.keys()[0].count(), 3);
}

#[test]
fn a_decision_that_is_ready_waits_for_nothing() {
    let (limiter, _) = limiter(Quota::per_day(1));
    let mut service = RateLimitLayer::new(limiter, Global)
        .overflow()
        .layer(handler());
    for expected in [200, 203] {
        now(std::future::poll_fn(|cx| service.poll_ready(cx))).unwrap();
        let response = now(service.call(Request::new(String::new()))).unwrap();
        assert_eq!(response.status(), expected);
    }
}
