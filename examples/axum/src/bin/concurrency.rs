//! At most two slow requests of an address at the same time, and ten a minute.
//!
//! A report takes two seconds to compute and is then sent in three parts, half a second apart. It
//! counts as in flight until the last part is sent, or the client has gone.
//!
//! ```sh
//! cargo run -p example-axum --bin concurrency
//! curl -Z --no-progress-meter --parallel-immediate -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/?[1-5]' # 429 three times, then 200 twice
//! curl -i http://127.0.0.1:3000/ # 200: the permits are back
//! ```

use std::{convert::Infallible, env, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, routing::get};
use tokio::time::sleep;
use tokio_stream::{StreamExt, iter};
use tower_ratelimit::{Concurrency, ConcurrencyLayer, PeerIp, Quota, RateLimitLayer};

async fn report() -> Body {
    sleep(Duration::from_secs(2)).await;
    let parts = iter(["one\n", "two\n", "three\n"]).then(async |part| {
        sleep(Duration::from_millis(500)).await;
        Ok::<_, Infallible>(part)
    });
    Body::from_stream(parts)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    // The layer that is added last is the outermost: what it denies is not charged inside.
    let app = Router::new()
        .route("/", get(report))
        .layer(RateLimitLayer::new(Quota::per_minute(10), PeerIp))
        .layer(ConcurrencyLayer::new(Concurrency::max(2), PeerIp));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
