//! Ten requests a second for every address, twenty at once after a pause.
//!
//! ```sh
//! cargo run --example axum_quickstart
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/?[1-30]'
//! ```

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(Quota::per_second(10).burst(20), PeerIp));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
