//! Clients that were denied together return over ten seconds, not all at once.

use std::time::Duration;
use tower_ratelimit::{Headers, LocalLimiter, PeerIp, RateLimitLayer};

fn limit(hour: LocalLimiter) -> RateLimitLayer {
    let headers = Headers::new().jitter(Duration::from_secs(10));
    RateLimitLayer::new(hour, PeerIp).headers(headers)
}

// The test, which is not on the page.

use std::collections::BTreeSet;

use axum::{Router, routing::get};
use tower_ratelimit::{Quota, clock::ManualClock};

use crate::test_requests::{Ask, field};

#[tokio::test]
async fn waits_differ_and_none_is_shorter_than_the_window() {
    let hour = LocalLimiter::builder(Quota::per_hour(100).fixed_window());
    let hour = hour.clock(ManualClock::new()).build().unwrap();
    let app = Router::new().route("/", get(|| async { "hello" }));
    let app = app.layer(limit(hour));
    for _ in 0..100 {
        assert_eq!(Ask::get("/").of(&app).await.status(), 200);
    }
    let mut waits = BTreeSet::new();
    for _ in 0..100 {
        let denied = Ask::get("/").of(&app).await;
        waits.insert(field(&denied, "retry-after").parse::<u64>().unwrap());
    }
    assert!(waits.len() > 3, "{waits:?}");
    assert!(waits.iter().all(|wait| (3_600..=3_610).contains(wait)));
}
