//! Every API key has a limit of its own, and a request without one counts for its address.

use axum::{Router, routing::get};
use tower_ratelimit::{Header, KeyExtractor, PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    // Only a digest of the API key is kept.
    let key = Header::new("x-api-key").secret().or(PeerIp);
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Quota::per_hour(1_000), key))
}

// The test, which is not on the page.

use crate::test_requests::{Ask, remaining};

#[tokio::test]
async fn keys_and_addresses_count_for_themselves() {
    let app = app();
    let ann = Ask::get("/").field("x-api-key", "ann");
    let elsewhere = ann.clone().from([192, 0, 2, 2]);
    assert_eq!(remaining(&ann.of(&app).await), 999);
    assert_eq!(remaining(&elsewhere.of(&app).await), 998);
    let bob = Ask::get("/").field("x-api-key", "bob");
    assert_eq!(remaining(&bob.of(&app).await), 999);
    for left in [999, 998] {
        assert_eq!(remaining(&Ask::get("/").of(&app).await), left);
    }
    let other = Ask::get("/").from([192, 0, 2, 2]);
    assert_eq!(remaining(&other.of(&app).await), 999);
}
