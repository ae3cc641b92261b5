//! A test of a whole router has a peer's address and a minute that passes at once.

use axum::{body::Body, extract::Request, extract::connect_info::MockConnectInfo};
use std::{net::SocketAddr, time::Duration};
use tower::ServiceExt;

#[tokio::test(start_paused = true)]
async fn a_limit_ends() {
    let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
    let app = app().layer(MockConnectInfo(peer)); // Last, so outermost.
    for (seconds, status) in [(0, 200), (0, 200), (0, 429), (60, 200)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let answer = app.clone().oneshot(Request::new(Body::empty())).await;
        assert_eq!(answer.unwrap().status(), status);
    }
}

// The test, which is not on the page.

use axum::{Router, routing::get};
use tower_ratelimit::{LocalLimiter, PeerIp, Quota, RateLimitLayer, clock::TokioClock};

fn app() -> Router {
    let limiter = LocalLimiter::builder(Quota::per_minute(2)).clock(TokioClock::new());
    let limit = RateLimitLayer::new(limiter.build().unwrap(), PeerIp);
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit)
}
