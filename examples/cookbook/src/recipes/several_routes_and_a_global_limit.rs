//! Two routes have limits of their own for each address, and one limit is for everybody and both.

use axum::{Router, routing::get};
use tower_ratelimit::{Global, PeerIp, Quota, RateLimitLayer};

fn app() -> Router {
    let searches = RateLimitLayer::new(Quota::per_minute(10).named("search"), PeerIp);
    let exports = RateLimitLayer::new(Quota::per_minute(2).named("export"), PeerIp);
    let everybody = RateLimitLayer::new(Quota::per_minute(1_000).named("everybody"), Global);
    Router::new()
        // The first of two layers decides first. Clones of one share its budget.
        .route("/search", get(search).layer((searches, everybody.clone())))
        .route("/export", get(export).layer((exports, everybody)))
}

// The test, which is not on the page.

use crate::test_requests::{Ask, field};

async fn search() -> &'static str {
    "found"
}

async fn export() -> &'static str {
    "exported"
}

#[tokio::test]
async fn a_client_that_is_denied_takes_nothing_from_everybody() {
    let app = app();
    let denied = async |path, times: usize| {
        let mut denied = 0;
        for _ in 0..times {
            denied += usize::from(Ask::get(path).of(&app).await.status() == 429);
        }
        denied
    };
    assert!(denied("/search", 100).await >= 80);
    assert!(denied("/export", 50).await >= 40);
    let other = Ask::get("/export").from([192, 0, 2, 2]).of(&app).await;
    assert_eq!(other.status(), 200);
    let quotas = field(&other, "ratelimit");
    let left = quotas.split("\"everybody\";r=").nth(1).unwrap();
    let left: u32 = left.split(';').next().unwrap().parse().unwrap();
    // Twelve passed the limits for each, and this one.
    assert!((950..1_000).contains(&left), "{quotas}");
}
