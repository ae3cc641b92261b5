//! Two routes with a limit of their own, and two that share one.
//!
//! ```sh
//! cargo run -p example-axum --bin routes
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/search?[1-4]'  # 2 pass
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/login?[1-4]'   # 3 pass
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/{a,b,a,b,a,b}' # 4 pass
//! ```

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let search = RateLimitLayer::new(Quota::per_minute(2).named("search"), PeerIp);
    let login = RateLimitLayer::new(Quota::per_minute(3).named("login"), PeerIp);
    // A policy per configured route has a name that is no constant: `quota.named_owned(route)`.
    // Every use of one layer draws on one budget.
    let shared = RateLimitLayer::new(Quota::per_minute(4).named("shared"), PeerIp);

    let app = Router::new()
        .route("/search", get(|| async { "found\n" }).layer(search))
        .route("/login", get(|| async { "welcome\n" }).layer(login))
        .route("/a", get(|| async { "a\n" }).layer(shared.clone()))
        .route("/b", get(|| async { "b\n" }).layer(shared))
        .route("/health", get(|| async { "ok\n" }));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
