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

use tower_ratelimit::Quota;

use crate::ask::{Ask, field, text};

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
