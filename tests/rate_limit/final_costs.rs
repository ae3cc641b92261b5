//! The final cost of a request: responses that count, requests that an elastic layer allowed, blocks,
//! and corrections that fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use testkit::{Lines, Probe, answering, field, get, limiter, now, send};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, Key, Limiter, LimiterError, LocalLimiter, Quota, RateLimitLayer,
    clock::ManualClock,
    decision::Policy,
    limiter::{Call, Never, OpRef, Pending},
    observe::{Event, Observer},
};

fn is_failed(response: &http::response::Parts) -> bool {
    response.status == StatusCode::UNAUTHORIZED
}

/// Writes what is charged, and what is corrected.
fn writing(lines: &Lines) -> impl Observer {
    let lines = lines.clone();
    move |event: &Event<'_>| {
        lines.push(match event {
            Event::Decided(decided) => format!(
                "charged {}, provisional: {}",
                decided.decision().charged(),
                decided.is_provisional()
            ),
            Event::Corrected(corrected) => format!(
                "corrected {} to {}, error: {}",
                corrected.before(),
                corrected.after(),
                corrected.error().is_some()
            ),
            other => format!("{other:?}"),
        });
    }
}

/// Requests that are under way at the same time.
struct Login(
    std::pin::Pin<Box<dyn Future<Output = Result<Response<String>, std::convert::Infallible>>>>,
);

/// Begins requests that are answered with these statuses once they are polled again.
fn begin<S>(service: &S, statuses: &[u16]) -> Vec<Login>
where
    S: Service<Request<String>, Response = Response<String>, Error = std::convert::Infallible>
        + Clone
        + 'static,
{
    let begun = statuses.iter().map(|status| {
        let request = get(&format!("/{status}")).body(String::new()).unwrap();
        let mut login = Login(Box::pin(service.clone().oneshot(request)));
        let mut cx = Context::from_waker(Waker::noop());
        match login.0.as_mut().poll(&mut cx) {
            Poll::Pending => login,
            Poll::Ready(answer) => Login(Box::pin(std::future::ready(answer))),
        }
    });
    begun.collect()
}

fn statuses(logins: Vec<Login>) -> Vec<u16> {
    let finished = logins.into_iter().map(|login| now(login.0).unwrap());
    finished
        .map(|response| response.status().as_u16())
        .collect()
}

/// Like `answering`, after a wait for everybody.
fn slowly() -> impl Service<
    Request<String>,
    Response = Response<String>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone
+ 'static {
    service_fn(|request: Request<String>| {
        let mut waited = false;
        let mut answer = Box::pin(answering().oneshot(request));
        std::future::poll_fn(move |cx| {
            if !std::mem::replace(&mut waited, true) {
                return Poll::Pending;
            }
            answer.as_mut().poll(cx)
        })
    })
}

/// One request every 59 seconds keeps a bucket of one a minute empty, if what is denied is charged.
#[test]
fn an_elastic_pass_that_does_not_count_takes_nothing() {
    let (limiter, clock) = limiter(Quota::per_minute(1));
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .elastic(|| true)
        .count_if(is_failed);
    let service = layer.layer(answering());
    for _ in 0..61 {
        assert_eq!(send(&service, get("/200")).status(), 200);
        clock.advance(Duration::from_secs(59));
    }
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(1));
}

#[test]
fn an_elastic_pass_is_charged_if_its_response_counts() {
    let (limiter, _) = limiter(Quota::per_hour(4));
    let lines = Lines::default();
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .elastic(|| true)
        .cost(|_| 3)
        .count_if(is_failed)
        .observer(writing(&lines));
    let service = layer.layer(answering());
    assert_eq!(send(&service, get("/401")).status(), 401);
    // Three do not fit any more: nothing is reserved, and what does not count shows the denial.
    let free = send(&service, get("/200"));
    assert_eq!(free.status(), 200);
    assert_eq!(field(&free, "x-ratelimit-remaining"), Some("1"));
    assert_eq!(field(&free, "retry-after"), None);
    assert_eq!(limiter.peek(&Key::global(), 1).remaining(), Some(1));
    let counted = send(&service, get("/401"));
    assert_eq!(field(&counted, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(field(&counted, "retry-after"), None);
    assert_eq!(
        lines.take(),
        [
            "charged 3, provisional: true",
            "corrected 3 to 3, error: false",
            "charged 0, provisional: true",
            "corrected 0 to 0, error: false",
            "charged 0, provisional: true",
            "corrected 0 to 1, error: false",
        ]
    );
}

fn blocking(quota: Quota) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let builder = LocalLimiter::builder(quota).block_for(Duration::from_secs(3_600));
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

/// Reservations that are denied are no fault of the client.
#[test]
fn parallel_logins_of_which_few_fail_block_nobody() {
    for logins in [[200; 6], [200, 200, 401, 200, 200, 200]] {
        let (limiter, clock) = blocking(Quota::per_minute(5));
        let layer = RateLimitLayer::new(limiter.clone(), Global).count_if(is_failed);
        let service = layer.layer(slowly());
        let answers = statuses(begin(&service, &logins));
        assert_eq!(answers[5], 429);
        assert_eq!(answers[..5], logins[..5]);
        clock.advance(Duration::from_secs(12));
        assert!(!limiter.peek(&Key::global(), 1).is_blocked());
        assert_eq!(statuses(begin(&service, &[200])), [200]);
    }
}

#[test]
fn as_many_failures_as_the_limit_allows_block_whenever_they_come() {
    let (limiter, clock) = blocking(Quota::per_minute(5));
    let layer = RateLimitLayer::new(limiter.clone(), Global).count_if(is_failed);
    let service = layer.layer(answering());
    for failure in 0..5 {
        assert!(!limiter.peek(&Key::global(), 1).is_blocked(), "{failure}");
        assert_eq!(send(&service, get("/200")).status(), 200);
        assert_eq!(send(&service, get("/401")).status(), 401);
    }
    let denied = send(&service, get("/200"));
    assert_eq!(field(&denied, "retry-after"), Some("3600"));
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(send(&service, get("/200")).status(), 200);
}

#[test]
fn the_probe_runs_before_a_block_begins_and_not_while_it_lasts() {
    let (limiter, clock) = blocking(Quota::per_minute(1));
    let idle = Arc::new(AtomicBool::new(true));
    let probe = Arc::clone(&idle);
    let layer = RateLimitLayer::new(limiter, Global).elastic(move || probe.load(Ordering::Relaxed));
    let service = layer.layer(Probe::default());
    for _ in 0..5 {
        assert_eq!(send(&service, get("/")).status(), 200);
    }
    idle.store(false, Ordering::Relaxed);
    let denied = send(&service, get("/"));
    assert_eq!(field(&denied, "retry-after"), Some("3600"));
    idle.store(true, Ordering::Relaxed);
    assert_eq!(send(&service, get("/")).status(), 429);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(send(&service, get("/")).status(), 200);
}

#[test]
fn each_provisional_charge_is_corrected_once_also_if_nothing_comes_of_the_request() {
    let (limiter, _) = limiter(Quota::per_hour(10));
    let lines = Lines::default();
    let layer = RateLimitLayer::new(limiter, Global)
        .count_if(is_failed)
        .observer(writing(&lines));
    let failing = service_fn(async |_: Request<String>| Err::<Response<String>, _>("broken"));
    let request = || Request::new(String::new());
    assert!(now(layer.clone().layer(failing).oneshot(request())).is_err());
    let service = layer.layer(slowly());
    drop(begin(&service, &[200]));
    assert_eq!(statuses(begin(&service, &[200])), [200]);
    assert_eq!(statuses(begin(&service, &[401])), [401]);
    let charged = "charged 1, provisional: true";
    assert_eq!(
        lines.take(),
        [
            charged,
            "corrected 1 to 1, error: false",
            charged,
            "corrected 1 to 1, error: false",
            charged,
            "corrected 1 to 0, error: false",
            charged,
            "corrected 1 to 1, error: false",
        ]
    );
}

/// Decides, but its store is gone when it is to correct.
#[derive(Clone)]
struct Forgetful(LocalLimiter);

impl Limiter for Forgetful {
    type Future = Never;

    fn call(&self, call: &Call<'_>) -> Pending<Never> {
        match call.one().unwrap().op {
            OpRef::Hit(_) | OpRef::Settle(..) => {
                Pending::Ready(Err(LimiterError::unavailable("connection refused")))
            }
            _ => self.0.call(call),
        }
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(&self.0)
    }
}

#[test]
fn a_failed_correction_is_reported_and_leaves_the_response_unchanged() {
    let (limiter, _) = limiter(Quota::per_hour(10));
    let lines = Lines::default();
    let layer = RateLimitLayer::new(Forgetful(limiter), Global)
        .count_if(is_failed)
        .observer(writing(&lines));
    let response = send(&layer.layer(answering()), get("/200"));
    assert_eq!(response.status(), 200);
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("9"));
    let expected = [
        "charged 1, provisional: true",
        "corrected 1 to 1, error: true",
    ];
    assert_eq!(lines.take(), expected);
}

#[test]
fn an_elastic_pass_that_cannot_be_charged_is_no_outage() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let lines = Lines::default();
    let layer = RateLimitLayer::new(Forgetful(limiter), Global)
        .elastic(|| true)
        .observer(writing(&lines));
    let service = layer.layer(answering());
    assert_eq!(send(&service, get("/200")).status(), 200);
    assert_eq!(send(&service, get("/200")).status(), 200);
    assert_eq!(
        lines.take(),
        [
            "charged 1, provisional: false",
            "corrected 0 to 0, error: true",
            "charged 0, provisional: false",
        ]
    );
}

#[cfg(feature = "governor")]
mod over_governor {
    use std::num::NonZeroU32;

    use ::governor::{Quota, RateLimiter};
    use tower_ratelimit::limiter::GovernorLimiter;

    use super::*;

    fn one_an_hour() -> GovernorLimiter {
        let quota = Quota::per_hour(NonZeroU32::MIN);
        GovernorLimiter::keyed(RateLimiter::hashmap(quota), quota)
    }

    #[test]
    fn an_elastic_layer_over_governor_passes_uncharged() {
        let idle = Arc::new(AtomicBool::new(true));
        let probe = Arc::clone(&idle);
        let layer = RateLimitLayer::new(one_an_hour(), Global)
            .elastic(move || probe.load(Ordering::Relaxed));
        let service = layer.layer(Probe::default());
        for _ in 0..3 {
            assert_eq!(send(&service, get("/")).status(), 200);
        }
        idle.store(false, Ordering::Relaxed);
        assert_eq!(send(&service, get("/")).status(), 429);
    }

    #[test]
    fn governor_cannot_correct_and_every_failure_is_reported() {
        let lines = Lines::default();
        let layer = RateLimitLayer::new(one_an_hour(), Global)
            .count_if(is_failed)
            .observer(writing(&lines));
        assert_eq!(send(&layer.layer(answering()), get("/200")).status(), 200);
        let expected = [
            "charged 1, provisional: true",
            "corrected 1 to 1, error: true",
        ];
        assert_eq!(lines.take(), expected);
    }

    #[cfg(feature = "tracing")]
    #[test]
    fn what_governor_cannot_do_is_logged_when_the_layer_is_built() {
        let lines = testkit::logged(|| {
            let layer = RateLimitLayer::new(one_an_hour(), Global)
                .count_if(is_failed)
                .elastic(|| true);
            let service = layer.layer(answering());
            for _ in 0..3 {
                send(&service, get("/200"));
            }
            drop(layer.layer(answering()));
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("count_if") && lines[0].contains("LocalLimiter"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("elastic") && lines[1].contains("LocalLimiter"),
            "{lines:?}"
        );
    }

    /// That it cannot correct is another fault than a tier that it does not have.
    #[cfg(feature = "tracing")]
    #[test]
    fn an_unknown_tier_is_logged_also_where_corrections_are_impossible() {
        let lines = testkit::logged(|| {
            let layer = RateLimitLayer::new(one_an_hour(), Global)
                .count_if(is_failed)
                .tier(|_| tower_ratelimit::limiter::Tier::named("por"));
            let service = layer.layer(answering());
            for _ in 0..3 {
                assert_eq!(send(&service, get("/200")).status(), 503);
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains(r#"tier "por""#), "{lines:?}");
    }
}

#[cfg(feature = "tracing")]
#[test]
fn the_first_correction_that_fails_is_logged() {
    let lines = testkit::logged(|| {
        let (limiter, _) = limiter(Quota::per_hour(10));
        let layer = RateLimitLayer::new(Forgetful(limiter), Global).count_if(is_failed);
        let service = layer.layer(answering());
        for _ in 0..3 {
            send(&service, get("/200"));
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("could not be corrected"), "{lines:?}");
}
