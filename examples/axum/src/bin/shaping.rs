//! A leaky bucket: requests that come all at once leave one after another, so that what stands
//! behind sees an even load. What does not fit the queue is denied.
//!
//! ```sh
//! cargo run -p example-axum --bin shaping
//! ```

use std::time::Instant;

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_ratelimit::{Decision, Global, Quota, RateLimitLayer};

async fn work(decision: Decision) -> String {
    format!("was kept for {} ms", decision.delay().as_millis())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Five a second, and up to seven that wait.
    let limit = RateLimitLayer::new(Quota::per_second(5).leaky_bucket(7), Global);
    let app = Router::new()
        .route("/", get(work))
        .layer(limit.expose_decision(true));

    println!("ten requests at once, five a second may pass:");
    let start = Instant::now();
    let mut requests = tokio::task::JoinSet::new();
    for number in 1..=10 {
        let app = app.clone();
        requests.spawn(async move {
            let response = app.oneshot(Request::new(Body::empty())).await;
            (number, response)
        });
    }
    while let Some(done) = requests.join_next().await {
        let (number, response) = done?;
        let (parts, body) = response?.into_parts();
        let at = start.elapsed().as_millis();
        if parts.status.is_success() {
            let message = axum::body::to_bytes(body, 1_000).await?;
            let message = String::from_utf8_lossy(&message);
            println!("{at:5} ms: request {number:2} {message}");
        } else {
            let wait = &parts.headers["retry-after"];
            println!("{at:5} ms: request {number:2} denied, retry after {wait:?} s");
        }
    }
    Ok(())
}
