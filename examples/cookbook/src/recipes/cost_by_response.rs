//! A query costs as much as it returns rows, which only its response shows.

use axum::{Extension, Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

#[derive(Clone)]
struct Rows(u64);

fn app() -> Router {
    let limit = RateLimitLayer::new(Quota::per_hour(1_000).named("rows"), PeerIp);
    let limit = limit.final_cost(|response, charged| {
        let rows = response.extensions.get::<Rows>();
        rows.map_or(charged, |rows| rows.0)
    });
    let query = get(|| async { (Extension(Rows(300)), "300 rows") });
    Router::new().route("/query", query).layer(limit)
}

// The test, which is not on the page.

use crate::test_requests::{Ask, remaining};

#[tokio::test]
async fn rows_are_charged_when_they_are_known() {
    let app = app();
    for left in [700, 400, 100, 0] {
        let answer = Ask::get("/query").of(&app).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(remaining(&answer), left);
    }
    assert_eq!(Ask::get("/query").of(&app).await.status(), 429);
    // A response without a cost leaves the unit that was charged.
    let other = Ask::get("/nowhere").from([192, 0, 2, 2]);
    assert_eq!(remaining(&other.of(&app).await), 999);
}
