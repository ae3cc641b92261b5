//! A switch turns a limit that only watches into one that denies, at run time and with its counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

fn limits(enforce: Arc<AtomicBool>) -> (RateLimitLayer, RateLimitLayer) {
    let limit = RateLimitLayer::new(Quota::per_hour(600), PeerIp);
    let enforced = enforce.clone();
    let shadow = limit.clone().shadow(true);
    let shadow = shadow.skip(move |_| enforced.load(Relaxed));
    (shadow, limit.enabled(enforce))
}

// The test, which is not on the page.

use axum::{Router, routing::get};

use crate::test_requests::{Ask, remaining};

#[tokio::test]
async fn the_counts_of_the_shadow_are_those_of_the_limit() {
    let enforce = Arc::new(AtomicBool::new(false));
    let hello = get(|| async { "hello" }).layer(limits(enforce.clone()));
    let app = Router::new().route("/", hello);
    for _ in 0..599 {
        let answer = Ask::get("/").of(&app).await;
        assert!(!answer.headers().contains_key("ratelimit"));
    }
    enforce.store(true, Relaxed);
    assert_eq!(remaining(&Ask::get("/").of(&app).await), 0);
    assert_eq!(Ask::get("/").of(&app).await.status(), 429);
    enforce.store(false, Relaxed);
    assert_eq!(Ask::get("/").of(&app).await.status(), 200);
}
