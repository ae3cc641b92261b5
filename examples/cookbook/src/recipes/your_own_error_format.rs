//! A 429 looks like every other error of the house.

use axum::{Json, Router, response::IntoResponse, routing::get};
use serde_json::json;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    let limit = RateLimitLayer::new(Quota::per_minute(2), PeerIp).rejection_fn(|rejection| {
        let wait = rejection.decision().and_then(|d| d.retry_after_seconds());
        let error = json!({ "error": "slow_down", "retry_after": wait });
        (rejection.status(), Json(error)).into_response()
    });
    let hello = get(|| async { "hello" });
    Router::new().route("/", hello).layer(limit)
}

// The test, which is not on the page.

use crate::test_requests::{Ask, field, text};

#[tokio::test]
async fn a_denial_is_in_the_format_of_the_house_and_has_the_fields() {
    let app = app();
    for _ in 0..2 {
        assert_eq!(Ask::get("/").of(&app).await.status(), 200);
    }
    let denied = Ask::get("/").of(&app).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "content-type"), "application/json");
    assert_eq!(field(&denied, "ratelimit-policy"), "\"default\";q=2;w=60");
    let wait = field(&denied, "retry-after").to_owned();
    let error = format!("{{\"error\":\"slow_down\",\"retry_after\":{wait}}}");
    assert_eq!(text(denied).await, error);
}

#[tokio::test]
async fn a_fault_is_no_429() {
    let without_address = axum::http::Request::new(axum::body::Body::empty());
    let fault = tower::ServiceExt::oneshot(app(), without_address)
        .await
        .unwrap();
    assert_eq!(fault.status(), 500);
    assert_eq!(
        text(fault).await,
        r#"{"error":"slow_down","retry_after":null}"#
    );
}
