//! A function makes the layer, so its type has to be written.

use axum::{body::Body, response::IntoResponse};
use tower_ratelimit::{AnyLimiter, LocalLimiter, PeerIp, Quota, RateLimitLayer, reject::Reject};

fn local(quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(quota, PeerIp)
}

fn local_or_redis(limiter: AnyLimiter) -> RateLimitLayer<AnyLimiter> {
    RateLimitLayer::new(limiter, PeerIp)
}

fn in_other_words(quota: Quota) -> RateLimitLayer<LocalLimiter, impl Reject<Body>> {
    let limit = RateLimitLayer::new(quota, PeerIp);
    limit.rejection_fn(|rejection| (rejection.status(), "slow down").into_response())
}

// The test, which is not on the page.

use axum::{Router, routing::get};

use crate::test_requests::{Ask, text};

#[tokio::test]
async fn all_three_are_layers_of_a_router() {
    let quota = Quota::per_minute(1);
    let any = AnyLimiter::new(LocalLimiter::new(quota));
    let hello = || Router::new().route("/", get(|| async { "hello" }));
    let apps = [
        (hello().layer(local(quota)), "{"),
        (hello().layer(local_or_redis(any)), "{"),
        (hello().layer(in_other_words(quota)), "slow down"),
    ];
    for (app, words) in apps {
        assert_eq!(Ask::get("/").of(&app).await.status(), 200);
        let denied = Ask::get("/").of(&app).await;
        assert_eq!(denied.status(), 429);
        let body = text(denied).await;
        assert!(body.starts_with(words), "{body}");
    }
}
