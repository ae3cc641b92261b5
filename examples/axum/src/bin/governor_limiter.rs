//! A `governor::RateLimiter` that the rest of the program uses already, behind this layer.
//!
//! governor's own quota, clock and store stay; the layer adds key, headers, rejection and observer.
//!
//! ```sh
//! cargo run -p example-axum --bin governor_limiter
//! curl -i 'http://127.0.0.1:3000/?[1-7]'
//! ```

use std::{env, net::SocketAddr, num::NonZeroU32, sync::Arc};

use axum::{Router, routing::get};
use governor::{RateLimiter, middleware::StateInformationMiddleware};
use tower_ratelimit::{PeerIp, RateLimitLayer, limiter::GovernorLimiter};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let quota = governor::Quota::per_minute(NonZeroU32::new(5).expect("5 is not 0"));
    // With this middleware governor reports what remains; without it, only the wait.
    let governor =
        Arc::new(RateLimiter::hashmap(quota).with_middleware::<StateInformationMiddleware>());

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(
            GovernorLimiter::keyed(governor, quota).named("governor"),
            PeerIp,
        ));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
