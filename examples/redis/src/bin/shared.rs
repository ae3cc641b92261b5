//! One limit for all processes: a hundred requests of an address in any minute, counted in Redis.
//!
//! ```sh
//! redis-server --port 6379 &
//! PORT=3000 cargo run -p example-redis --bin shared &
//! PORT=3001 cargo run -p example-redis --bin shared &
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:300[0-1]/?[1-60]' | sort | uniq -c
//! ```
//!
//! prints 100 times 200 and 20 times 429, whichever process a request met. `REDIS_URL` leads to
//! another server, a cluster (`redis-cluster://10.0.0.1:7000,10.0.0.2:7000`) or sentinels
//! (`redis-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster`). Without Redis each process counts
//! for itself until it is back; `REDIS_DEADLINE` sets how many milliseconds a request waits for it,
//! 50 by default.

use std::{env, error::Error, net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, RedisLimiter, RedisStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let deadline = env::var("REDIS_DEADLINE").map_or(Ok(50), |text| text.parse())?;
    let store = RedisStore::builder()
        .deadline(Duration::from_millis(deadline))
        .connect(&url)?;
    let limiter = RedisLimiter::builder(Quota::per_minute(100).sliding_log()).build(&store)?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter, PeerIp));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
