//! A gateway before a language model: each key has 100,000 tokens a minute, which stand at the end of each response.

use axum::{Router, routing::post};
use tower_ratelimit::{Header, Quota, RateLimitLayer, spend::llm::Llm};

fn app() -> Router {
    let tokens = Quota::per_minute(100_000).named("tokens").debt(100_000);
    let key = Header::new("x-api-key").secret();
    let limit = RateLimitLayer::new(tokens, key).spending(Llm::any());
    let forward = post(forward);
    Router::new().route("/v1/chat/completions", forward.layer(limit))
}

// The test, which is not on the page.

use axum::{Json, body::to_bytes};
use serde_json::{Value, json};

use crate::test_requests::Ask;

/// The model's answer, of as many tokens as were asked.
async fn forward(Json(request): Json<Value>) -> Json<Value> {
    let tokens = &request["max_tokens"];
    Json(json!({"usage": {"prompt_tokens": 10, "completion_tokens": tokens}}))
}

#[tokio::test]
async fn tokens_that_were_used_beyond_the_limit_are_owed() {
    let app = app();
    let ask = |tokens: u64, key: &str| {
        let ask = Ask::post("/v1/chat/completions", &json!({"max_tokens": tokens}));
        ask.field("x-api-key", key)
    };
    for (tokens, key, status) in [
        (20, "a", 200),
        (190_000, "a", 200),
        (20, "a", 429),
        (20, "b", 200),
    ] {
        let answer = ask(tokens, key).of(&app).await;
        assert_eq!(answer.status(), status, "{tokens} of {key}");
        // The end of the body is the end of the charge.
        to_bytes(answer.into_body(), 1_000).await.expect("a body");
    }
}
