//! One program for both: with `REDIS_URL` all nodes share the limit, without it each counts for
//! itself. Layer, handlers and tests see one type.
//!
//! ```sh
//! cargo run -p example-redis --bin local_or_redis
//! curl -s 'http://127.0.0.1:3000/left?[1-3]'
//! REDIS_URL=redis://127.0.0.1 cargo run -p example-redis --bin local_or_redis
//! ```

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, extract::State, routing::get};
use tower_ratelimit::{AnyLimiter, Global, Key, LocalLimiter, Quota, RateLimitLayer, RedisLimiter};

fn limiter(quota: Quota) -> Result<AnyLimiter, Box<dyn Error>> {
    Ok(match env::var("REDIS_URL") {
        Ok(url) => AnyLimiter::new(RedisLimiter::connect(&url, quota)?),
        Err(_) => AnyLimiter::new(LocalLimiter::try_new(quota)?),
    })
}

async fn left(State(limiter): State<AnyLimiter>) -> String {
    match limiter.peek(&Key::global(), 1).await {
        Ok(decision) => format!("{} left\n", decision.remaining().unwrap_or_default()),
        Err(error) => format!("nobody knows: {error}\n"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = limiter(Quota::per_minute(100).named("api"))?;
    let app = Router::new()
        .route("/left", get(left).with_state(limiter.clone()))
        .layer(RateLimitLayer::new(limiter, Global));
    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}
