//! Every address may send ten requests a second, and twenty at once after a pause.

use axum::{Router, routing::get};
use std::net::SocketAddr;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Quota::per_second(10).burst(20), PeerIp));
    // Gives `PeerIp` the address.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}

// The test, which is not on the page.

use crate::test_requests::{exchange, listen};

#[tokio::test]
async fn an_address_has_twenty_requests_at_once() {
    let (listener, address) = listen().await;
    tokio::spawn(serve(listener));
    let first = exchange(address, "/").await;
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    assert!(
        first.contains("ratelimit-policy: \"default\";q=20;w=2"),
        "{first}"
    );
    assert!(first.contains("x-ratelimit-remaining: 19"), "{first}");
    let mut allowed = 1;
    while exchange(address, "/").await.starts_with("HTTP/1.1 200") {
        allowed += 1;
        assert!(allowed < 1_000, "there is no limit");
    }
    assert!(allowed >= 20, "{allowed}");
}
