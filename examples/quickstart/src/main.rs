use std::net::SocketAddr;

use axum::{Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Quota::per_second(10).burst(20), PeerIp));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
