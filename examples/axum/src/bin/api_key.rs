//! A limit per API key; requests without one are counted by their address.
//!
//! The key is counted before anybody checks that it is valid. That is safe here because an unknown
//! key is answered 401; a service that accepts any value would let clients choose their own bucket.
//!
//! ```sh
//! cargo run -p example-axum --bin api_key
//! curl -i -H 'x-api-key: alice' http://127.0.0.1:3000/
//! curl -i http://127.0.0.1:3000/
//! ```

use std::{env, net::SocketAddr};

use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    routing::get,
};
use tower_ratelimit::{Header, KeyExtractor, PeerIp, Quota, RateLimitLayer};

async fn hello(headers: HeaderMap) -> Result<String, StatusCode> {
    let Some(key) = headers.get("x-api-key") else {
        return Ok("hello, stranger\n".into());
    };
    match key.to_str() {
        Ok(name @ ("alice" | "bob")) => Ok(format!("hello, {name}\n")),
        _ => Err(StatusCode::UNAUTHORIZED),
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let limit = RateLimitLayer::new(
        Quota::per_minute(5).named("per-key"),
        // Only a digest of the API key is kept.
        Header::new("x-api-key").secret().or(PeerIp),
    );
    let app = Router::new().route("/", get(hello)).layer(limit);

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
