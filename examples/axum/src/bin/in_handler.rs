//! A cost that only the body contains: charged through the limiter's handle, refunded on failure. The
//! handler's denial has the same fields and problem document as the layer's.
//!
//! Every address may render 100 pages a minute. A cheap layer in front keeps the number of
//! requests, and so of bodies that are parsed, in bounds.
//!
//! ```sh
//! cargo run -p example-axum --bin in_handler
//! curl -i -d '{"pages":60}' -H 'content-type: application/json' http://127.0.0.1:3000/render
//! curl -i -d '{"pages":60}' -H 'content-type: application/json' http://127.0.0.1:3000/render # 429
//! curl -i -d '{"pages":13}' -H 'content-type: application/json' http://127.0.0.1:3000/render # 500, refunded
//! ```

use std::{env, net::SocketAddr};

use axum::{
    Json, Router,
    extract::{ConnectInfo, State},
    http::StatusCode,
    response::Result,
    routing::post,
};
use serde::Deserialize;
use tower_ratelimit::{Key, LocalLimiter, PeerIp, Quota, RateLimitLayer};

#[derive(Deserialize)]
struct Job {
    pages: u64,
}

async fn render(
    State(pages): State<LocalLimiter>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Json(job): Json<Job>,
) -> Result<String> {
    let key = Key::from(peer.ip());
    // A denial is answered like one of the layer.
    let decision = pages.acquire(&key, job.pages).into_result()?;
    let printed = print(job.pages).inspect_err(|_| {
        pages.refund(&key, decision.charged(), Some(decision.receipt()));
    })?;
    Ok(printed)
}

fn print(pages: u64) -> Result<String, (StatusCode, &'static str)> {
    if pages == 13 {
        let fault = "the printer is superstitious\n";
        return Err((StatusCode::INTERNAL_SERVER_ERROR, fault));
    }
    Ok(format!("printed {pages} pages\n"))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let pages = LocalLimiter::new(Quota::per_minute(100).named("pages"));
    let app = Router::new()
        .route("/render", post(render))
        .layer(RateLimitLayer::new(Quota::per_second(5), PeerIp))
        .with_state(pages);

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
