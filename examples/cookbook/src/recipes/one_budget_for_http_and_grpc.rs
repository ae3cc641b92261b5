//! HTTP and gRPC on one port share three requests a minute for each address.

use axum::{Router, routing::get};
use tonic::service::Routes;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    let (_, grpc) = tonic_health::server::health_reporter();
    Routes::new(grpc)
        .into_axum_router()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Quota::per_minute(3), PeerIp))
}

// The test, which is not on the page.

use axum::http::Method;

use crate::test_requests::{Ask, field, remaining};

#[tokio::test]
async fn calls_and_requests_are_counted_together() {
    let app = app();
    let call = Ask::get("/grpc.health.v1.Health/Check").method(Method::POST);
    let call = call.field("content-type", "application/grpc");
    let request = Ask::get("/");
    assert_eq!(remaining(&request.of(&app).await), 2);
    assert_eq!(remaining(&call.of(&app).await), 1);
    assert_eq!(remaining(&request.of(&app).await), 0);
    assert_eq!(request.of(&app).await.status(), 429);
    let denied = call.of(&app).await;
    assert_eq!(denied.status(), 200);
    assert_eq!(field(&denied, "grpc-status"), "8");
}
