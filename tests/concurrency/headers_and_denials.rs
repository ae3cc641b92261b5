//! Responses to clients (header fields and denials), and events of the observer.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body::Body;
use testkit::{Lines, Probe, field, fields, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, Global, Header, Headers, Key, KeyErrorKind, MissingKey, PeerIp,
    Quota, RateLimitLayer, observe::Event,
};

use super::{at_most, held, in_flight, text};

#[test]
fn responses_have_the_limit_and_what_remains_and_no_time() {
    let layer = ConcurrencyLayer::new(Concurrency::max(8), Global);
    let service = layer.layer(Probe::default());
    let _others: Vec<_> = (0..4).map(|_| held(&service)).collect();
    let response = held(&service);
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""concurrency";q=8;qu="concurrent-requests""#)
    );
    assert_eq!(field(&response, "ratelimit"), Some(r#""concurrency";r=3"#));
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("8"));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("3"));
    assert_eq!(response.headers().len(), 4);
}

#[test]
fn a_denial_lists_the_policy_and_names_no_wait() {
    let named = Concurrency::max(1).named("exports");
    let layer = ConcurrencyLayer::new(named, Global)
        .headers(Headers::new().jitter(Duration::from_secs(60)));
    let service = layer.layer(Probe::default());
    let _held = held(&service);
    let denied = send(&service, get("/"));
    assert_eq!(denied.status(), 429);
    assert_eq!(
        field(&denied, "ratelimit-policy"),
        Some(r#""exports";q=1;qu="concurrent-requests""#)
    );
    assert_eq!(field(&denied, "ratelimit"), Some(r#""exports";r=0"#));
    assert_eq!(field(&denied, "x-ratelimit-limit"), Some("1"));
    assert_eq!(field(&denied, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(
        field(&denied, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(field(&denied, "cache-control"), Some("no-store"));
    assert_eq!(field(&denied, "content-length"), Some("192"));
    assert_eq!(denied.headers().len(), 7);
    assert_eq!(
        text(denied),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"violated-policies\":[\"exports\"]}"
    );
}

#[test]
fn around_a_rate_both_policies_are_listed_and_the_tighter_set_stays() {
    let (rate, _) = limiter(Quota::per_second(10));
    let rate = RateLimitLayer::new(rate, Global);
    let tighter = at_most(5).layer(rate.clone().layer(Probe::default()));
    let response = held(&tighter);
    assert_eq!(
        fields(&response, "ratelimit-policy"),
        [
            r#""default";q=10;w=1"#,
            r#""concurrency";q=5;qu="concurrent-requests""#
        ]
    );
    assert_eq!(
        fields(&response, "ratelimit"),
        [r#""default";r=9;t=1"#, r#""concurrency";r=4"#]
    );
    assert_eq!(fields(&response, "x-ratelimit-limit"), ["5"]);
    assert_eq!(fields(&response, "x-ratelimit-remaining"), ["4"]);
    assert_eq!(field(&response, "x-ratelimit-reset"), None);

    let looser = at_most(50).layer(rate.layer(Probe::default()));
    let response = held(&looser);
    assert_eq!(fields(&response, "x-ratelimit-limit"), ["10"]);
    assert_eq!(fields(&response, "x-ratelimit-reset"), ["1"]);
}

#[test]
fn head_gets_no_body() {
    let layer = at_most(1);
    let service = layer.layer(Probe::default());
    let _held = held(&service);
    let denied = send(&service, Request::head("/"));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "ratelimit"), Some(r#""concurrency";r=0"#));
    assert_eq!(text(denied), "");
}

#[test]
fn a_grpc_call_gets_resource_exhausted_and_neither_a_wait_nor_never() {
    let layer = at_most(1);
    let service = layer.layer(Probe::default());
    let call = || Request::post("/").header("content-type", "application/grpc+proto");
    let allowed = send(&service, call());
    assert_eq!(field(&allowed, "ratelimit"), Some(r#""concurrency";r=0"#));

    let denied = send(&service, call());
    assert_eq!(denied.status(), 200);
    assert_eq!(field(&denied, "content-type"), Some("application/grpc"));
    assert_eq!(field(&denied, "grpc-status"), Some("8"));
    assert_eq!(
        field(&denied, "grpc-message"),
        Some("rate%20limit%20exceeded")
    );
    assert_eq!(denied.headers().len(), 3);
    assert!(denied.body().is_end_stream());
}

#[test]
fn a_shadow_counts_what_it_would_allow_and_changes_no_response() {
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = at_most(1).shadow(true).observer(move |event: &Event<'_>| {
        let Event::Decided(decided) = event else {
            panic!("{event:?}")
        };
        assert!(decided.is_shadow());
        seen.push(format!("{:?}", decided.decision().outcome()));
    });
    let service = layer.layer(Probe::default());
    let responses: Vec<_> = (0..3).map(|_| held(&service)).collect();
    assert!(responses.iter().all(|each| each.headers().is_empty()));
    assert_eq!(lines.take(), ["Allowed", "Denied", "Denied"]);
    assert_eq!(in_flight(&layer), 1);
    drop(responses);
    assert_eq!(in_flight(&layer), 0);

    let keyless = ConcurrencyLayer::new(Concurrency::max(1), PeerIp).shadow(true);
    held(&keyless.layer(Probe::default()));
}

#[test]
fn skipped_requests_pass_uncounted_and_untouched() {
    let layer = at_most(1).skip(|parts| parts.uri.path() == "/health");
    let service = layer.layer(Probe::default());
    let _held = held(&service);
    let response = send(&service, get("/health"));
    assert_eq!(response.status(), 200);
    assert!(response.headers().is_empty());
    assert_eq!(in_flight(&layer), 1);
}

#[test]
fn requests_without_a_key_are_treated_as_by_the_rate_layer() {
    let limit = Concurrency::max(1);
    let sharing = ConcurrencyLayer::new(limit, Header::new("x-api-key"));
    let service = sharing.layer(Probe::default());
    let _held = held(&service);
    assert_eq!(send(&service, get("/")).status(), 429);
    assert_eq!(
        send(&service, get("/").header("x-api-key", "k")).status(),
        200
    );
    assert_eq!(sharing.in_flight(&Key::anonymous()), 1);

    let rejecting = ConcurrencyLayer::new(limit, Header::new("x-api-key"))
        .on_missing_key(KeyErrorKind::Absent, MissingKey::Reject)
        .layer(Probe::default());
    assert_eq!(send(&rejecting, get("/")).status(), 400);

    let set_up_wrong = ConcurrencyLayer::new(limit, PeerIp).layer(Probe::default());
    let response = send(&set_up_wrong, get("/"));
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(field(&response, "ratelimit"), None);
}

#[test]
fn the_observer_gets_an_event_for_each_outcome() {
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = at_most(5)
        .skip(|parts| parts.uri.path() == "/free")
        .observer(move |event: &Event<'_>| {
            seen.push(match event {
                Event::Decided(decided) => {
                    let quota = decided.decision().binding();
                    format!(
                        "{} {:?} cost {} charged {} left {:?} near {}",
                        quota.name(),
                        decided.decision().outcome(),
                        decided.cost(),
                        decided.decision().charged(),
                        quota.remaining(),
                        decided.is_near_limit(),
                    )
                }
                Event::Bypassed { policies } => format!("{} bypassed", policies[0].name()),
                other => format!("{other:?}"),
            });
        });
    let service = layer.layer(Probe::default());
    let _held: Vec<_> = (0..3).map(|_| held(&service)).collect();
    lines.take();
    let _held: Vec<_> = (0..2).map(|_| held(&service)).collect();
    send(&service, get("/"));
    send(&service, get("/free"));
    assert_eq!(
        lines.take(),
        [
            "concurrency Allowed cost 1 charged 1 left Some(1) near true",
            "concurrency Allowed cost 1 charged 1 left Some(0) near true",
            "concurrency Denied cost 1 charged 0 left Some(0) near true",
            "concurrency bypassed",
        ]
    );
}
