//! Requests beyond the limit get the last prices instead of a 429.

use axum::{Router, routing::get};
use tower_ratelimit::{Decision, Global, Quota, RateLimitLayer};

async fn prices(decision: Option<Decision>) -> String {
    match decision {
        Some(decision) if decision.is_denied() => last_prices(),
        _ => fresh_prices().await,
    }
}

fn app() -> Router {
    let limit = RateLimitLayer::new(Quota::per_minute(50), Global).overflow();
    Router::new().route("/prices", get(prices)).layer(limit)
}

// The test, which is not on the page.

use axum::body::to_bytes;

use crate::test_requests::Ask;

fn last_prices() -> String {
    "last".to_owned()
}

async fn fresh_prices() -> String {
    "fresh".to_owned()
}

#[tokio::test]
async fn requests_beyond_the_limit_get_the_last_prices() {
    let app = app();
    // Some units may come back meanwhile.
    for number in 0..5_000 {
        let answer = Ask::get("/prices").of(&app).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("retry-after"));
        let body = to_bytes(answer.into_body(), 10).await.expect("a body");
        if body == "last" {
            assert!(number >= 50, "{number}");
            return;
        }
        assert_eq!(body, "fresh");
    }
    panic!("no request was beyond the limit");
}
