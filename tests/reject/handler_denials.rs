//! Handlers that call a limiter themselves respond as a layer does, field by field.

use std::{
    convert::Infallible,
    error::Error,
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    request::{Builder, Parts},
};
use proptest::prelude::*;
use testkit::{Probe, field, limiter, send};
use tower::{Layer, service_fn};
use tower_ratelimit::{
    AnyLimiter, AsyncLimiter, Decision, Global, Headers, Key, LimiterError, LocalLimiter, Quota,
    RateLimitLayer,
    clock::Timestamp,
    decision::{Op, Policy, QuotaStatus},
    headers::{IetfDraft, ResetFormat},
    limiter::IntoLimiter,
    reject::{Denial, Empty, PlainText, ProblemJson, Reject, Rejection},
};

/// A response as a client sees it; the order of its fields counts.
type Seen = (StatusCode, Vec<(HeaderName, HeaderValue)>, String);

fn seen(response: &Response<String>) -> Seen {
    let fields = response.headers().iter();
    let fields = fields.map(|(name, value)| (name.clone(), value.clone()));
    (response.status(), fields.collect(), response.body().clone())
}

/// A limiter that always answers the same.
struct Fixed {
    decision: Decision,
    policies: Vec<Policy>,
}

impl Fixed {
    /// Its layer renders the policies before the first decision, unless it does not know them.
    fn new(decision: &Decision, lists_policies: bool) -> Self {
        let policies = decision.quotas().map(|quota| quota.policy());
        Self {
            decision: decision.clone(),
            policies: policies.filter(|_| lists_policies).collect(),
        }
    }
}

impl AsyncLimiter for Fixed {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        Ok(self.decision.clone())
    }

    fn policies(&self) -> &[Policy] {
        &self.policies
    }
}

/// A rejection, in the words of the test.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Problem,
    Text,
    Nothing,
    /// One with fields about limits of its own.
    Own,
    Redirect,
    Grpc,
}

impl Reject<String> for Choice {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<String> {
        match self {
            Self::Problem => ProblemJson.reject(rejection),
            Self::Text => PlainText.reject(rejection),
            Self::Nothing => Empty.reject(rejection),
            Self::Own => {
                let mut response = Response::new(format!("{rejection:?}"));
                *response.status_mut() = rejection.status();
                *response.headers_mut() = present();
                response
            }
            Self::Redirect => {
                let mut response = Response::new(rejection.parts().uri.to_string());
                *response.status_mut() = StatusCode::SEE_OTHER;
                response
            }
            Self::Grpc if rejection.is_grpc() => rejection.grpc_response_with("own words"),
            Self::Grpc => Response::new(String::new()),
        }
    }
}

/// Fields that a handler or a layer further in has written.
fn present() -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in [
        ("x-own", "1"),
        ("ratelimit-policy", r#""inner";q=5;w=60"#),
        ("ratelimit", r#""inner";r=4;t=30"#),
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "4"),
        ("x-ratelimit-reset", "30"),
        ("retry-after", "7"),
    ] {
        fields.append(name, HeaderValue::from_static(value));
    }
    fields
}

/// A decision about one quota.
fn a_lone_one() -> impl Strategy<Value = Decision> {
    let duration = || (0..400_000_000_u64).prop_map(Duration::from_micros);
    let maybe = || prop::option::of(duration());
    (
        prop::sample::select(vec!["default", "login", "a\"b"]),
        prop_oneof![0..2_000_u64, any::<u64>()],
        prop::option::of(prop_oneof![0..2_000_u64, any::<u64>()]),
        (maybe(), maybe(), maybe(), prop::option::of(maybe())),
    )
        .prop_map(
            |(name, limit, remaining, (window, reset, effective, denial))| {
                let mut policy = Policy::new(name, limit);
                if let Some(window) = window {
                    policy = policy.with_window(window);
                }
                let mut status = QuotaStatus::new(&policy);
                if let Some(remaining) = remaining {
                    status = status.with_remaining(remaining);
                }
                if let Some(reset) = reset {
                    status = status.with_reset_after(reset);
                }
                if let Some(effective) = effective {
                    status = status.with_effective_window(effective);
                }
                if let Some(wait) = denial {
                    status = status.with_denial(wait);
                }
                Decision::allowed(1, Timestamp::default(), status)
            },
        )
}

/// Denials and others.
fn a_decision() -> impl Strategy<Value = Decision> {
    let ones = prop::collection::vec(a_lone_one(), 1..4);
    (ones, 0..2_000_000_000_u64).prop_map(|(ones, seconds)| {
        let statuses: Vec<_> = ones.iter().map(Decision::binding).collect();
        let at = Timestamp::from_secs(seconds);
        if statuses.iter().any(QuotaStatus::is_denied) {
            Decision::denied(at, statuses)
        } else {
            Decision::allowed(1, at, statuses)
        }
    })
}

fn some_headers() -> impl Strategy<Value = Headers> {
    (
        prop::option::of(Just(IetfDraft::Draft11)),
        prop::option::of(prop::sample::select(vec![
            ResetFormat::DeltaSeconds,
            ResetFormat::EpochSeconds,
        ])),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(ietf, x_ratelimit, retry_after, x_retry_after)| {
            Headers::none()
                .ietf(ietf)
                .x_ratelimit(x_ratelimit)
                .retry_after(retry_after)
                .x_ratelimit_retry_after(x_retry_after)
        })
}

fn a_choice() -> impl Strategy<Value = Choice> {
    prop::sample::select(vec![
        Choice::Problem,
        Choice::Text,
        Choice::Nothing,
        Choice::Own,
        Choice::Redirect,
        Choice::Grpc,
    ])
}

/// Requests that are answered in different ways.
const REQUESTS: [(&str, &str); 4] = [
    ("GET", "application/json"),
    ("HEAD", "text/plain"),
    ("POST", "application/grpc+proto"),
    ("POST", "application/json"),
];

fn request(which: usize) -> Builder {
    let (method, content_type) = REQUESTS[which];
    Request::builder()
        .method(method)
        .uri("/login")
        .header("content-type", content_type)
}

fn parts(request: Builder) -> Parts {
    request.body(()).unwrap().into_parts().0
}

fn denial(decision: Decision) -> Denial {
    decision.into_result().unwrap_err()
}

/// The answer of a handler behind this layer, before the layer adds its own fields.
fn behind<R: Reject<String>>(
    layer: &RateLimitLayer<LocalLimiter, R>,
    request: Builder,
    deny: impl Fn(&Parts) -> Response<String> + Sync,
) -> Response<String> {
    let answer = Mutex::new(None);
    let handler = service_fn(|request: Request<String>| {
        let (parts, _) = request.into_parts();
        *answer.lock().unwrap() = Some(deny(&parts));
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    send(&layer.layer(handler), request);
    answer.into_inner().unwrap().unwrap()
}

proptest! {
    #[test]
    fn a_denial_is_answered_as_a_layer_answers_it(
        decision in a_decision().prop_filter("a denial", Decision::is_denied),
        headers in some_headers(),
        choice in a_choice(),
        which in 0..REQUESTS.len(),
        grpc in any::<bool>(),
        (lists_policies, shadow) in (any::<bool>(), any::<bool>()),
    ) {
        let layer = RateLimitLayer::new(Fixed::new(&decision, lists_policies), Global)
            .headers(headers.clone())
            .rejection(choice)
            .grpc(grpc);
        let layers = seen(&send(&layer.layer(Probe::default()), request(which)));

        // By the settings of a layer around the handler, also of one that only watches.
        let around = RateLimitLayer::new(Quota::per_second(5), Global)
            .headers(headers.clone())
            .rejection(choice)
            .grpc(grpc)
            .shadow(shadow)
            .expose_decision(true);
        let handlers = behind(&around, request(which), |parts| {
            denial(decision.clone()).for_request(parts).response()
        });
        prop_assert_eq!(&seen(&handlers), &layers);

        // By settings of its own, against those of a layer and without one.
        let contrary = RateLimitLayer::new(Quota::per_second(5), Global)
            .headers(Headers::none().x_ratelimit_retry_after(true))
            .rejection(Choice::Own)
            .grpc(grpc)
            .expose_decision(true);
        let own = || denial(decision.clone()).headers(headers.clone());
        let against = behind(&contrary, request(which), |parts| {
            own().for_request(parts).response_by(&choice)
        });
        prop_assert_eq!(&seen(&against), &layers);
        if grpc {
            let alone = own().for_request(&parts(request(which))).response_by(&choice);
            prop_assert_eq!(&seen(&alone), &layers);
        }
    }

    #[test]
    fn fields_are_added_as_a_layer_adds_them(
        decision in a_decision().prop_filter("passes", Decision::is_allowed),
        headers in some_headers(),
        lists_policies in any::<bool>(),
        is_present in any::<bool>(),
    ) {
        let inner = if is_present { present() } else { HeaderMap::new() };
        let answer = |fields: HeaderMap| {
            let mut response = Response::new(String::new());
            *response.headers_mut() = fields;
            response
        };
        let service = service_fn(|_: Request<String>| {
            ready(Ok::<_, Infallible>(answer(inner.clone())))
        });
        let layer = RateLimitLayer::new(Fixed::new(&decision, lists_policies), Global)
            .headers(headers.clone());
        let layers = send(&layer.layer(service), testkit::get("/"));

        let mut fields = inner.clone();
        headers.apply(&decision, &mut fields);
        prop_assert_eq!(seen(&answer(fields)), seen(&layers));
    }
}

/// Decisions that no setter makes: of soft and blocked quotas, several together, and costs that
/// never fit.
#[test]
fn real_decisions_are_answered_alike() {
    let soft = Quota::per_minute(4).soft(50).named("soft");
    let quotas = [
        vec![Quota::per_minute(4)],
        vec![soft],
        vec![soft, Quota::per_hour(7).fixed_window().named("hour")],
        vec![Quota::per_minute(3).sliding_window()],
        vec![Quota::per_minute(3).sliding_log()],
    ];
    let mut denied = 0;
    for quotas in quotas {
        for block in [None, Some(Duration::from_secs(600))] {
            let (of_layer, clock) = twin(&quotas, block);
            let (of_handler, its_clock) = twin(&quotas, block);
            let layer = RateLimitLayer::new(of_layer, Global).cost(cost);
            let service = layer.layer(service_fn(|_: Request<String>| {
                let mut response = Response::new(String::new());
                *response.headers_mut() = present();
                ready(Ok::<_, Infallible>(response))
            }));
            for (step, cost) in [1, 3, 1, 9, 0, 2, 1, 1].into_iter().enumerate() {
                let seconds = Duration::from_secs(step as u64 * 3);
                clock.advance(seconds);
                its_clock.advance(seconds);
                let request = || request(step % REQUESTS.len()).header("x-cost", cost);
                let layers = send(&service, request());

                let parts = parts(request());
                let handlers = match of_handler.acquire(&Key::global(), cost).into_result() {
                    Ok(decision) => {
                        let mut response = Response::new(String::new());
                        *response.headers_mut() = present();
                        Headers::new().apply(&decision, response.headers_mut());
                        response
                    }
                    Err(denial) => {
                        denied += 1;
                        denial.for_request(&parts).response()
                    }
                };
                assert_eq!(seen(&handlers), seen(&layers), "{quotas:?}, step {step}");
            }
        }
    }
    assert!(denied > 20, "{denied}");
}

fn twin(
    quotas: &[Quota],
    block: Option<Duration>,
) -> (LocalLimiter, tower_ratelimit::clock::ManualClock) {
    let clock = tower_ratelimit::clock::ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let builder = LocalLimiter::builder(quotas.to_vec()).clock(clock.clone());
    let builder = match block {
        Some(block) => builder.block_for(block),
        None => builder,
    };
    (builder.max_keys(100).build().unwrap(), clock)
}

fn cost(parts: &Parts) -> u64 {
    parts.headers["x-cost"].to_str().unwrap().parse().unwrap()
}

/// The fallback responds like Redis.
#[cfg(feature = "redis")]
#[tokio::test]
async fn degraded_decisions_are_answered_alike() {
    use tower_ratelimit::{RedisLimiter, RedisStore};

    // Nobody listens on port 1.
    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    let builder = RedisLimiter::builder(Quota::per_day(1)).name("denials");
    let limiter = builder.build(&store).unwrap();
    let decision = limiter.acquire(&Key::global(), 2).await.unwrap();
    assert!(decision.is_denied() && decision.is_degraded());
    let layer = RateLimitLayer::new(Fixed::new(&decision, true), Global);
    let layers = send(&layer.layer(Probe::default()), testkit::get("/"));
    assert_eq!(seen(&denial(decision).response()), seen(&layers));
}

struct Broken;

impl AsyncLimiter for Broken {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        Err(LimiterError::unavailable("connection refused"))
    }

    fn policies(&self) -> &[Policy] {
        &[]
    }
}

#[test]
fn a_limiter_that_fails_is_answered_as_a_layer_answers_it() {
    for which in 0..REQUESTS.len() {
        let layer = RateLimitLayer::new(Broken, Global);
        let layers = send(&layer.layer(Probe::default()), request(which));
        let failed = Denial::from(LimiterError::unavailable("connection refused"));
        assert_eq!(failed.decision(), None);
        assert!(failed.source().is_some());
        let failed = failed.for_request(&parts(request(which)));
        assert_eq!(seen(&failed.response()), seen(&layers));
    }
}

/// Both ways in which a shared limiter does not let a request pass are one error.
#[test]
fn a_fallible_limiter_is_called_in_one_line() {
    async fn acquire(limiter: &AnyLimiter, cost: u64) -> Result<u64, Denial> {
        let decision = limiter.acquire(&Key::global(), cost).await?.into_result()?;
        Ok(decision.charged())
    }
    let status = |limiter: &AnyLimiter, cost| {
        let answer = testkit::now(acquire(limiter, cost));
        answer.map_err(|denial| denial.response::<String>().status().as_u16())
    };
    let (local, _) = limiter(Quota::per_hour(5));
    let local = AnyLimiter::new(local);
    assert_eq!(status(&local, 5), Ok(5));
    assert_eq!(status(&local, 1), Err(429));
    assert_eq!(
        status(&AnyLimiter::new(Broken.into_limiter().unwrap()), 1),
        Err(503)
    );
}

fn never() -> Denial {
    let (limiter, _) = limiter(Quota::per_hour(5).named("api"));
    denial(limiter.acquire(&Key::global(), 6))
}

#[test]
fn the_innermost_layer_that_exposes_decides() {
    let layer = |rejection: Choice| {
        let layer = RateLimitLayer::new(Quota::per_hour(5), Global).rejection(rejection);
        layer.expose_decision(true)
    };
    let body = |response: Response<String>| response.into_body();
    let text = "Too Many Requests\n";
    let problem = body(never().response());
    assert!(problem.contains("quota-exceeded"));

    let reported = |layer, deny: fn(Denial, &Parts) -> Response<String>| {
        body(behind(&layer, request(0), |parts| deny(never(), parts)))
    };
    let here: fn(Denial, &Parts) -> Response<String> =
        |denial, parts| denial.for_request(parts).response();
    assert_eq!(reported(layer(Choice::Text), here), text);
    assert_eq!(reported(layer(Choice::Text).skip(|_| true), here), text);
    assert_eq!(
        reported(layer(Choice::Text).expose_decision(false), here),
        problem
    );
    assert_eq!(
        reported(layer(Choice::Text), |denial, _| denial.response()),
        problem
    );
    let by_own: fn(Denial, &Parts) -> Response<String> =
        |denial, parts| denial.for_request(parts).response_by(&Empty);
    assert_eq!(reported(layer(Choice::Text), by_own), "");

    let answer = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&answer);
    let handler = service_fn(move |request: Request<String>| {
        let parts = request.into_parts().0;
        *kept.lock().unwrap() = never().for_request(&parts).response::<String>().into_body();
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    let service = layer(Choice::Nothing).layer(layer(Choice::Text).layer(handler));
    send(&service, request(0));
    assert_eq!(*answer.lock().unwrap(), text);
}

/// A layer's rejection makes one kind of body; its other settings serve them all.
#[test]
fn for_another_body_the_layer_s_headers_still_hold() {
    let layer = RateLimitLayer::new(Quota::per_hour(5), Global)
        .rejection(PlainText)
        .headers(Headers::none().x_ratelimit_retry_after(true))
        .grpc(false)
        .expose_decision(true);
    let (limiter, _) = limiter(Quota::per_hour(1));
    let _ = limiter.acquire(&Key::global(), 1);
    let response = behind(&layer, request(2), |parts| {
        let denial = denial(limiter.acquire(&Key::global(), 1)).for_request(parts);
        denial
            .response::<Vec<u8>>()
            .map(|body| String::from_utf8(body).unwrap())
    });
    assert_eq!(response.status(), 429);
    assert_eq!(
        field(&response, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(field(&response, "x-ratelimit-retry-after"), Some("3600"));
    assert_eq!(field(&response, "ratelimit"), None);
}

#[test]
fn jitter_lengthens_every_wait_alike() {
    let headers = Headers::new()
        .x_ratelimit_retry_after(true)
        .jitter(Duration::from_secs(100));
    let (limiter, _) = limiter(Quota::per_hour(60).burst(1));
    let _ = limiter.acquire(&Key::global(), 1);
    let decision = limiter.acquire(&Key::global(), 1);
    let answered = || {
        let denial = denial(decision.clone()).headers(headers.clone());
        denial.response::<String>().into_parts().0.headers
    };
    let applied = || {
        let mut fields = HeaderMap::new();
        headers.apply(&decision, &mut fields);
        fields
    };
    let makers: [&dyn Fn() -> HeaderMap; 2] = [&answered, &applied];
    for fields in makers {
        let waits = (0..20).map(|_| {
            let fields = fields();
            let wait = fields["retry-after"].to_str().unwrap().to_owned();
            assert_eq!(fields["x-ratelimit-reset"], wait);
            assert_eq!(fields["x-ratelimit-retry-after"], wait);
            assert_eq!(fields["ratelimit"], format!("\"default\";r=0;t={wait}"));
            wait.parse().unwrap()
        });
        let waits: Vec<u64> = waits.collect();
        assert!(
            waits.iter().all(|wait| (60..=160).contains(wait)),
            "{waits:?}"
        );
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }
}

#[test]
fn what_was_not_counted_adds_no_fields() {
    let layer = RateLimitLayer::new(Quota::per_hour(5), Global)
        .skip(|_| true)
        .expose_decision(true);
    let response = behind(&layer, request(0), |parts| {
        let mut response = Response::new(String::new());
        let decision = parts.extensions.get().unwrap();
        Headers::new().apply(decision, response.headers_mut());
        response
    });
    assert!(response.headers().is_empty());
}

#[test]
fn a_denial_is_an_error_that_keeps_the_request_to_itself() {
    let (limiter, _) = limiter(Quota::per_hour(60).burst(5).named("login"));
    let fail = |cost| -> Result<u64, Box<dyn Error + Send + Sync>> {
        Ok(limiter
            .acquire(&Key::global(), cost)
            .into_result()?
            .charged())
    };
    assert_eq!(fail(5).unwrap(), 5);
    assert_eq!(
        fail(2).unwrap_err().to_string(),
        r#"rate limit "login" exceeded, retry after 120 s"#
    );
    assert_eq!(
        fail(6).unwrap_err().to_string(),
        r#"rate limit "login" exceeded"#
    );
    let secret = parts(request(0).header("authorization", "Bearer hunter2"));
    let denial = never().for_request(&secret);
    assert!(!format!("{denial:?}").contains("hunter2"));
    assert_eq!(denial.decision().unwrap().retry_after(), None);
    assert!(size_of::<Denial>() <= size_of::<usize>());
}

#[cfg(feature = "axum")]
mod axum_handlers {
    use axum::{Router, body::Body, extract::State, http::StatusCode, routing};
    use tower::ServiceExt;

    use super::*;

    async fn by_question_mark(State(limiter): State<LocalLimiter>) -> Result<String, Denial> {
        let decision = limiter.acquire(&Key::global(), 6).into_result()?;
        Ok(format!("{:?}", decision.remaining()))
    }

    async fn among_others(State(limiter): State<LocalLimiter>) -> axum::response::Result<String> {
        limiter.acquire(&Key::global(), 6).into_result()?;
        Err(StatusCode::IM_A_TEAPOT)?
    }

    async fn as_the_layer(
        State(limiter): State<LocalLimiter>,
        parts: Parts,
    ) -> Result<String, Denial> {
        let decision = limiter.acquire(&Key::global(), 6).into_result();
        decision.map_err(|denial| denial.for_request(&parts))?;
        Ok(String::new())
    }

    async fn otherwise(
        State(limiter): State<LocalLimiter>,
        parts: Parts,
    ) -> Result<String, Denial> {
        let denial = limiter.acquire(&Key::global(), 6).into_result();
        denial.map_err(|denial| denial.rejection(Empty).for_request(&parts))?;
        Ok(String::new())
    }

    fn app() -> Router {
        let (limiter, _) = limiter(Quota::per_hour(5).named("job"));
        let layer = RateLimitLayer::new(Quota::per_hour(99).named("all"), Global)
            .rejection_fn(|rejection| {
                let mut response = Response::new(Body::from("busy"));
                *response.status_mut() = rejection.status();
                response
            })
            .expose_decision(true);
        Router::new()
            .route("/plain", routing::get(by_question_mark))
            .route("/others", routing::get(among_others))
            .route("/layer", routing::get(as_the_layer))
            .route("/own", routing::get(otherwise))
            .layer(layer)
            .with_state(limiter)
    }

    fn exchange(path: &str) -> (u16, Vec<String>, String) {
        let request = testkit::get(path).body(Body::empty()).unwrap();
        let response = testkit::now(app().oneshot(request)).unwrap();
        let (parts, body) = response.into_parts();
        let policies = parts.headers.get_all("ratelimit-policy").iter();
        let policies = policies.map(|line| line.to_str().unwrap().to_owned());
        let body = testkit::now(axum::body::to_bytes(body, 1_000)).unwrap();
        let body = String::from_utf8(body.into()).unwrap();
        (parts.status.as_u16(), policies.collect(), body)
    }

    #[test]
    fn handlers_of_axum_return_denials() {
        let policies = [r#""job";q=5;w=3600"#, r#""all";q=99;w=3600"#];
        let problem = r#""status":429,"violated-policies":["job"]}"#;
        for (path, expected) in [
            ("/plain", problem),
            ("/others", problem),
            ("/layer", "busy"),
            ("/own", ""),
        ] {
            let (status, reported, body) = exchange(path);
            assert_eq!(status, 429, "{path}");
            // First the handler's, then the layer's.
            assert_eq!(reported, policies, "{path}");
            assert!(body.ends_with(expected), "{path}: {body}");
            assert_eq!(body.is_empty(), expected.is_empty(), "{path}: {body}");
        }
    }
}
