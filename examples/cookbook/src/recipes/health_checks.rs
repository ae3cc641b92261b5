//! The load balancer's probes are not counted, and neither is a path that no route matches.

use axum::{Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        // Around the routes above it, not around those below and not around the 404.
        .route_layer(RateLimitLayer::new(Quota::per_minute(2), PeerIp))
        .route("/health", get(|| async { "ok" }))
}

// The test, which is not on the page.

use crate::test_requests::Ask;

#[tokio::test]
async fn probes_and_404s_are_not_counted() {
    let app = app();
    for _ in 0..50 {
        let probe = Ask::get("/health").of(&app).await;
        assert_eq!(probe.status(), 200);
        assert!(!probe.headers().contains_key("ratelimit"));
        assert_eq!(Ask::get("/nowhere").of(&app).await.status(), 404);
    }
    for status in [200, 200, 429] {
        assert_eq!(Ask::get("/").of(&app).await.status(), status);
    }
    assert_eq!(Ask::get("/health").of(&app).await.status(), 200);
}
