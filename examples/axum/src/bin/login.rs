//! Five failed logins a minute; logins that succeed cost nothing. Who fails five times stays out
//! for ten minutes.
//!
//! ```sh
//! cargo run -p example-axum --bin login
//! ```

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    routing::post,
};
use tower::ServiceExt;
use tower_ratelimit::{LocalLimiter, PeerIp, Quota, RateLimitLayer};

async fn login(password: String) -> StatusCode {
    if password == "correct horse" {
        StatusCode::OK
    } else {
        StatusCode::UNAUTHORIZED
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = LocalLimiter::builder(Quota::per_minute(5).named("failed-logins"))
        .block_for(Duration::from_secs(600))
        .build()?;
    // A login is charged when it comes, so that many at the same time cannot slip through, and
    // refunded when its response shows that it succeeded.
    let limit = RateLimitLayer::new(limiter, PeerIp)
        .count_if(|response| response.status == StatusCode::UNAUTHORIZED);
    let app = Router::new().route("/login", post(login)).layer(limit);

    for _ in 0..3 {
        attempt(&app, "correct horse").await?;
    }
    for guess in [
        "123456", "password", "qwerty", "letmein", "dragon", "monkey",
    ] {
        attempt(&app, guess).await?;
    }
    attempt(&app, "correct horse").await
}

async fn attempt(app: &Router, password: &'static str) -> Result<(), Box<dyn std::error::Error>> {
    let request = Request::post("/login")
        .extension(ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 4_711))))
        .body(Body::from(password))?;
    let response = app.clone().oneshot(request).await?;
    let field = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
    println!(
        "{password:>13} → {}, {} failures left, retry after {} s",
        response.status(),
        field("x-ratelimit-remaining").unwrap_or("?"),
        field("retry-after").unwrap_or("0"),
    );
    Ok(())
}
