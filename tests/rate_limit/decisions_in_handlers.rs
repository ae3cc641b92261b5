//! The decisions that handlers read: nothing that is switched off may break them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Request, Response};
use testkit::{fields, get, limiter, send};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Header, Key, KeyErrorKind, LimiterError, LocalLimiter,
    MissingKey, Quota, RateLimitLayer,
    decision::{Op, Policy},
    limiter::Tier,
    rate_limit::Decisions,
};

/// Answers with the decision's content; without one it fails, as axum's extractor does.
fn reporting()
-> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |request: Request<String>| {
        let mut response = Response::new(String::new());
        match request.extensions().get::<Decision>() {
            None => *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR,
            Some(decision) => {
                *response.body_mut() = format!(
                    "{} {} {:?} {}",
                    decision.is_counted(),
                    decision.charged(),
                    decision.remaining(),
                    decision.binding().name(),
                );
            }
        }
        Ok(response)
    })
}

struct Broken;

impl AsyncLimiter for Broken {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        Err(LimiterError::unavailable("connection refused"))
    }

    /// A limiter need not name any policy.
    fn policies(&self) -> &[Policy] {
        &[]
    }
}

fn layer() -> RateLimitLayer {
    let (limiter, _) = limiter(Quota::per_hour(5).named("api"));
    RateLimitLayer::new(limiter, Header::new("x-user")).expose_decision(true)
}

fn assert_uncounted<L: tower_ratelimit::Limiter>(layer: &RateLimitLayer<L>, name: &str) {
    let response = send(&layer.layer(reporting()), get("/"));
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), &format!("false 0 None {name}"));
    assert!(response.headers().is_empty(), "{:?}", response.headers());
}

#[test]
fn what_is_switched_off_still_gives_handlers_a_decision() {
    let counted = send(&layer().layer(reporting()), get("/"));
    assert_eq!(counted.body(), "true 1 Some(4) api");

    assert_uncounted(&layer().enabled(Arc::new(AtomicBool::new(false))), "api");
    assert_uncounted(&layer().skip(|_| true), "api");
    let global = RateLimitLayer::new(Quota::per_hour(5).named("api"), Global);
    assert_uncounted(&global.expose_decision(true).skip_key(|_| true), "api");
    assert_uncounted(&layer().tier(|_| Tier::UNLIMITED), "api");
    assert_uncounted(
        &layer().on_missing_key(KeyErrorKind::Absent, MissingKey::Skip),
        "api",
    );
    // A shadow allows requests that would be denied.
    assert_uncounted(&layer().shadow(true).deny(|_| true), "api");
    let rejecting = layer().on_missing_key(KeyErrorKind::Absent, MissingKey::Reject);
    assert_uncounted(&rejecting.shadow(true), "api");
    let broken = RateLimitLayer::new(Broken, Global)
        .expose_decision(true)
        .shadow(true);
    assert_uncounted(&broken, "default");
}

#[test]
fn nothing_is_exposed_by_default() {
    let layer = layer().expose_decision(false).skip(|_| true);
    assert_eq!(send(&layer.layer(reporting()), get("/")).status(), 500);
}

#[test]
fn the_switch_does_not_change_what_a_handler_can_read() {
    let switch = Arc::new(AtomicBool::new(true));
    let service = layer().enabled(Arc::clone(&switch)).layer(reporting());
    for on in [true, false, true] {
        switch.store(on, Ordering::Relaxed);
        let response = send(&service, get("/"));
        assert_eq!(response.status(), 200);
        assert_eq!(fields(&response, "ratelimit").len(), usize::from(on));
    }
}

#[test]
fn all_layers_decisions_are_there_the_outermost_first() {
    let quota = |name| LocalLimiter::new(Quota::per_hour(5).named(name));
    let inner = RateLimitLayer::new(quota("inner"), Header::new("x-user")).expose_decision(true);
    let hidden = RateLimitLayer::new(quota("hidden"), Global);
    let skipped = RateLimitLayer::new(quota("skipped"), Global)
        .expose_decision(true)
        .skip(|_| true);
    let outer = RateLimitLayer::new(quota("outer"), Global).expose_decision(true);
    let service = service_fn(async |request: Request<String>| {
        let decisions = request.extensions().get::<Decisions>().unwrap();
        let innermost = request.extensions().get::<Decision>().unwrap();
        let mut reported: Vec<_> = decisions
            .iter()
            .map(|exposed| {
                let key = exposed.key().map(|key| key.reveal().to_string());
                format!("{} {key:?}", exposed.decision().binding().name())
            })
            .collect();
        reported.push(innermost.binding().name().to_owned());
        Ok::<_, Infallible>(Response::new(reported.join("; ")))
    });
    let service = outer.layer(skipped.layer(hidden.layer(inner.layer(service))));
    let response = send(&service, get("/").header("x-user", "ann"));
    assert_eq!(
        response.body(),
        r#"outer Some("global"); skipped None; inner Some("\"ann\""); inner"#
    );
}

#[cfg(feature = "axum")]
#[test]
fn handlers_of_axum_take_what_is_exposed() {
    use axum::{Router, body::Body, routing};
    use tower::ServiceExt;

    async fn both(decision: Decision, decisions: Decisions) -> String {
        format!("{} {}", decision.is_counted(), decisions.iter().count())
    }
    async fn maybe(decisions: Option<Decisions>) -> String {
        decisions.is_some().to_string()
    }
    let router = || {
        let router = Router::new().route("/", routing::get(both));
        router.route("/maybe", routing::get(maybe))
    };
    let status = |app: &Router, path| {
        let request = get(path).body(Body::empty()).unwrap();
        testkit::now(app.clone().oneshot(request))
            .unwrap()
            .status()
            .as_u16()
    };
    let exposing = router().layer(layer().enabled(Arc::new(AtomicBool::new(false))));
    assert_eq!(status(&exposing, "/"), 200);
    assert_eq!(status(&exposing, "/maybe"), 200);
    let hiding = router().layer(layer().expose_decision(false));
    assert_eq!(status(&hiding, "/"), 500);
    assert_eq!(status(&hiding, "/maybe"), 200);
}
