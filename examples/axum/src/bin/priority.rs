//! Ten requests for everybody together: batch jobs may use half of them, other reads eight. The rest is
//! kept for payments.
//!
//! A request that is denied for its class alone is shed: 503 with `Retry-After`. A payment is denied, with
//! 429, only if all ten are used.
//!
//! ```sh
//! cargo run -p example-axum --bin priority
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/batch?[1-7]' # 200 five times, then 503 twice
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/orders?[1-4]' # 200 three times, then 503
//! curl -i -X POST http://127.0.0.1:3000/payments # 200: two are left for payments
//! curl -i http://127.0.0.1:3000/batch # 503: temporary reduced capacity
//! ```

use std::env;

use axum::{
    Router,
    routing::{get, post},
};
use tower_ratelimit::{Global, Priority, Quota, RateLimitLayer};

const BATCH: Priority = Priority::share(50).expect("a share from 1 to 100");
const READS: Priority = Priority::share(80).expect("a share from 1 to 100");

#[tokio::main]
async fn main() -> std::io::Result<()> {
    // The class follows from the route and the method, which the server knows, and from nothing that a
    // client could set to get a better one.
    let layer = RateLimitLayer::new(Quota::per_minute(10), Global).priority(|parts| {
        match parts.uri.path() {
            "/batch" => BATCH,
            _ if parts.method.is_safe() => READS,
            _ => Priority::CRITICAL,
        }
    });
    let app = Router::new()
        .route("/batch", get("a page of the export\n"))
        .route("/orders", get("your orders\n"))
        .route("/payments", post(async || "paid\n"))
        .layer(layer);

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await
}
