//! Layers stand in a `ServiceBuilder`, and a handler reads their limit from its state.

use axum::{Json, Router, extract::State, routing::get};
use tower::ServiceBuilder;
use tower_ratelimit::{Concurrency, ConcurrencyLayer, Global, Key, LocalLimiter, RateLimitLayer};

async fn left(State(limiter): State<LocalLimiter>) -> Json<Option<u64>> {
    Json(limiter.peek(&Key::global(), 1).remaining())
}

fn app(limiter: LocalLimiter) -> Router {
    let layers = ServiceBuilder::new() // The first one is the outermost.
        .layer(ConcurrencyLayer::new(Concurrency::max(100), Global))
        .layer(RateLimitLayer::new(limiter.clone(), Global));
    let app = Router::new().route("/", get(left)).layer(layers);
    app.with_state(limiter)
}

// The test, which is not on the page.

use axum::{body::Body, extract::Request, http::Response};
use tower::ServiceExt;
use tower_http::trace::TraceLayer;
use tower_ratelimit::Quota;

use crate::test_requests::{Ask, field, text};

#[tokio::test]
async fn the_handler_sees_the_layers_count() {
    let app = app(LocalLimiter::new(Quota::per_hour(10)));
    for left in ["9", "8"] {
        let answer = Ask::get("/").of(&app).await;
        let policies = field(&answer, "ratelimit-policy");
        assert!(policies.contains("concurrent-requests"), "{policies}");
        assert_eq!(text(answer).await, left);
    }
}

/// The two ways of the page on troubleshooting, and axum's own.
#[tokio::test]
async fn a_limit_and_a_layer_with_a_body_of_its_own_stand_in_one_servicebuilder() {
    let routes = || Router::<()>::new().route("/", get(async || "hello"));
    let limit = || RateLimitLayer::new(Quota::per_hour(1), Global);
    let statuses = |answers: [Response<Body>; 2]| answers.map(|answer| answer.status().as_u16());
    let request = || Request::new(Body::empty());

    let inside = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(limit())
        .service(routes());
    let first = inside.clone().oneshot(request()).await.unwrap();
    let second = inside.oneshot(request()).await.unwrap();
    let inside = [first, second].map(|answer| answer.map(Body::new));
    assert_eq!(statuses(inside), [200, 429]);

    let outside = ServiceBuilder::new()
        .layer(limit())
        .map_response(|response: axum::http::Response<_>| response.map(axum::body::Body::new))
        .layer(TraceLayer::new_for_http())
        .service(routes());
    let first = outside.clone().oneshot(request()).await.unwrap();
    let second = outside.oneshot(request()).await.unwrap();
    assert_eq!(statuses([first, second]), [200, 429]);

    let one_by_one = routes().layer(TraceLayer::new_for_http()).layer(limit());
    let first = one_by_one.clone().oneshot(request()).await.unwrap();
    let second = one_by_one.oneshot(request()).await.unwrap();
    assert_eq!(statuses([first, second]), [200, 429]);
}
