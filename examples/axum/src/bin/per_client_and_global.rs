//! A limit for each client and one for everybody, in the order that matters: the one for each stands
//! outside, so that what it denies takes nothing from the others. Alice sends far too much, and Bob
//! notices nothing.
//!
//! ```sh
//! cargo run -p example-axum --bin per_client_and_global
//! ```

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_ratelimit::{Global, Header, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let each = Quota::per_minute(3).named("each");
    let everybody = Quota::per_minute(8).named("everybody");
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        // Added first, so inside: it gets what the other one allowed.
        .layer(RateLimitLayer::new(everybody, Global))
        // Added last, so outside. In `ServiceBuilder` it would come first.
        .layer(RateLimitLayer::new(each, Header::new("x-user")));

    for (user, requests) in [("alice", 20), ("bob", 3)] {
        let mut allowed = 0;
        for _ in 0..requests {
            let request = Request::builder().header("x-user", user);
            let response = app.clone().oneshot(request.body(Body::empty())?).await?;
            allowed += u32::from(response.status().is_success());
        }
        println!("{user}: {allowed} of {requests} allowed");
    }
    Ok(())
}
