//! Two limits at once: three a second for bursts, eight a minute for the long run. They are charged
//! together or not at all, so what one denies costs nothing of the other.
//!
//! ```sh
//! cargo run -p example-axum --bin two_quotas
//! ```

use std::time::Duration;

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_ratelimit::{Global, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = RateLimitLayer::new(
        [
            Quota::per_second(3),
            Quota::per_minute(8).sliding_log().named("per-minute"),
        ],
        Global,
    );
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit);

    for second in 0..4 {
        println!("second {second}");
        for _ in 0..4 {
            let response = app.clone().oneshot(Request::new(Body::empty())).await?;
            let field = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
            println!(
                "  {}  {}  retry-after: {}",
                response.status().as_u16(),
                field("ratelimit").unwrap_or("?"),
                field("retry-after").unwrap_or("-"),
            );
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
