//! One limit for all processes, counted in Postgres: a hundred requests of an address in any minute.
//!
//! ```sh
//! export DATABASE_URL='postgres://postgres@127.0.0.1/postgres'
//! PORT=3000 cargo run -p example-postgres &
//! PORT=3001 cargo run -p example-postgres &
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:300[0-1]/?[1-60]' | sort | uniq -c
//! ```
//!
//! prints 100 times 200 and 20 times 429, whichever process a request met.

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, shared::SharedLimiter};
use tower_ratelimit_postgres::PostgresStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL");
    let url = url.unwrap_or_else(|_| "postgres://postgres@127.0.0.1/postgres".into());
    let store = PostgresStore::connect(&url)?;
    store.create_table().await?;
    // Each request is a call, so that no process reserves a part of this small limit. One of thousands a
    // second is cheaper with leases: `PostgresStore::limiter`.
    let limiter = SharedLimiter::builder(Quota::per_minute(100).sliding_log());
    let limiter = limiter.name("api").build_on(store)?;

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter, PeerIp));
    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
