//! Scripts of another origin see the 429 and its fields, and preflight requests cost nothing.

use axum::{Router, http::HeaderName, http::HeaderValue, routing::get};
use tower_http::cors::CorsLayer;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    let fields = ["retry-after", "ratelimit", "ratelimit-policy"];
    let cors = CorsLayer::new()
        .allow_origin(HeaderValue::from_static("https://app.example"))
        .expose_headers(fields.map(HeaderName::from_static));
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Quota::per_minute(2), PeerIp))
        .layer(cors) // Added last, so outermost.
}

// The test, which is not on the page.

use axum::http::Method;

use crate::test_requests::{Ask, field};

#[tokio::test]
async fn preflights_cost_nothing_and_a_script_sees_the_denial() {
    let app = app();
    let script = Ask::get("/").field("origin", "https://app.example");
    let preflight = script.clone().method(Method::OPTIONS);
    let preflight = preflight.field("access-control-request-method", "GET");
    for _ in 0..50 {
        let answer = preflight.of(&app).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("ratelimit"));
    }
    for status in [200, 200, 429] {
        let answer = script.of(&app).await;
        assert_eq!(answer.status(), status);
        let origin = field(&answer, "access-control-allow-origin");
        assert_eq!(origin, "https://app.example");
        let exposed = field(&answer, "access-control-expose-headers");
        assert_eq!(exposed, "retry-after,ratelimit,ratelimit-policy");
    }
}
