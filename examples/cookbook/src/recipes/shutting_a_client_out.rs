//! A client that is denied stays out for a minute, and an operator shuts an address out for a day.

use axum::extract::{Path, State};
use std::{net::IpAddr, time::Duration};
use tower_ratelimit::{ConfigError, Key, LocalLimiter, Quota};

fn limiter() -> Result<LocalLimiter, ConfigError> {
    LocalLimiter::builder(Quota::per_minute(60))
        .block_for(Duration::from_secs(60))
        .build()
}

async fn shut_out(State(limiter): State<LocalLimiter>, Path(address): Path<IpAddr>) {
    let day = Duration::from_secs(24 * 60 * 60);
    let blocked = limiter.block(&Key::from(address), day);
    blocked.expect("a block may last 18 years");
}

// The test, which is not on the page.

use axum::{
    Router,
    routing::{get, put},
};
use tower_ratelimit::{PeerIp, RateLimitLayer};

use crate::test_requests::{Ask, field};

fn app(limiter: LocalLimiter) -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter.clone(), PeerIp))
        .route("/shut-out/{address}", put(shut_out))
        .with_state(limiter)
}

fn wait(response: &axum::response::Response) -> u64 {
    field(response, "retry-after").parse().unwrap()
}

#[tokio::test]
async fn an_address_that_is_shut_out_is_denied_until_a_reset() {
    let limiter = limiter().unwrap();
    let app = app(limiter.clone());
    let client = Ask::get("/").from([192, 0, 2, 7]);
    assert_eq!(client.of(&app).await.status(), 200);
    let operator = Ask::get("/shut-out/192.0.2.7").method(axum::http::Method::PUT);
    assert_eq!(operator.of(&app).await.status(), 200);
    let denied = client.of(&app).await;
    assert_eq!(denied.status(), 429);
    assert!(wait(&denied) > 86_000, "{denied:?}");
    assert_eq!(Ask::get("/").of(&app).await.status(), 200);
    limiter.reset(&Key::from(IpAddr::from([192, 0, 2, 7])));
    assert_eq!(client.of(&app).await.status(), 200);
}

#[tokio::test]
async fn a_denial_lasts_a_minute() {
    let app = app(limiter().unwrap());
    let mut answer = Ask::get("/").of(&app).await;
    for _ in 0..10_000 {
        if answer.status() == 429 {
            break;
        }
        answer = Ask::get("/").of(&app).await;
    }
    assert_eq!(wait(&answer), 60);
}
