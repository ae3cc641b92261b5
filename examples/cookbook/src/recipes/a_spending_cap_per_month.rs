//! Each team may spend 50 dollars a month on a language model, and is denied for the rest of the month afterwards.

use axum::{Router, routing::post};
use tower_ratelimit::spend::{Price, Prices, llm::Llm};
use tower_ratelimit::{Header, Quota, RateLimitLayer};

fn app() -> Router {
    // Per million tokens 10 dollars of input and 30 of output.
    let prices = Prices::new(Price::new(10_000, 30_000));
    // Millionths of a dollar. A team may owe 5 dollars.
    let cap = Quota::per_month(50_000_000).named("micro-usd");
    let limit = RateLimitLayer::new(cap.debt(5_000_000), Header::new("x-team"))
        .spending(Llm::any())
        .spends(prices.units());
    Router::new().route("/v1/chat/completions", post(forward).layer(limit))
}

// The test, which is not on the page.

use axum::{Json, response::IntoResponse};
use serde_json::json;

use crate::test_requests::{Ask, remaining, text};

async fn forward() -> impl IntoResponse {
    let usage = json!({ "prompt_tokens": 1_000_000, "completion_tokens": 1_000_000 });
    Json(json!({ "object": "chat.completion", "usage": usage }))
}

#[tokio::test]
async fn a_team_is_denied_when_its_month_is_spent() {
    let app = app();
    let red = Ask::post("/v1/chat/completions", &json!({})).field("x-team", "red");
    // 40 dollars, then 80.
    for _ in 0..2 {
        let answer = red.of(&app).await;
        assert_eq!(answer.status(), 200);
        text(answer).await;
    }
    let denied = red.of(&app).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(remaining(&denied), 0);
    let blue = Ask::post("/v1/chat/completions", &json!({})).field("x-team", "blue");
    assert_eq!(blue.of(&app).await.status(), 200);
}
