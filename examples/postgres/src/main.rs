//! One limit for all processes, counted in Postgres: a hundred requests of an address in any minute.
//!
//! ```sh
//! export DATABASE_URL='host=127.0.0.1 user=postgres'
//! PORT=3000 cargo run -p example-postgres &
//! PORT=3001 cargo run -p example-postgres &
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:300[0-1]/?[1-60]' | sort | uniq -c
//! ```
//!
//! prints 100 times 200 and 20 times 429, whichever process a request met.

use std::{env, error::Error, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use example_postgres::PostgresStore;
use tower_ratelimit::{
    PeerIp, Quota, RateLimitLayer,
    shared::{Cas, SharedLimiter},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL").unwrap_or_else(|_| "host=127.0.0.1 user=postgres".into());
    let store = PostgresStore::new(url.parse()?);
    store.create_table().await?;
    let store = Arc::new(Cas::new(store));
    let limiter = SharedLimiter::builder(Quota::per_minute(100).sliding_log());
    let limiter = limiter.build_on(Arc::clone(&store))?;

    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(60)).await;
            if let Err(error) = store.get_ref().remove_expired().await {
                eprintln!("rows that are over were not removed: {error}");
            }
        }
    });

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter, PeerIp));
    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
