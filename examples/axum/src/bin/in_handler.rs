//! A cost that only the body tells: charged through the limiter's handle, refunded on failure.
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
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
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
) -> Response {
    let key = Key::from(peer.ip());
    let decision = pages.acquire(&key, job.pages);
    if decision.is_denied() {
        // No wait is known for a job that is larger than the quota.
        let wait = decision.retry_after_seconds();
        return match wait {
            Some(wait) => (
                StatusCode::TOO_MANY_REQUESTS,
                [(RETRY_AFTER, wait.to_string())],
            )
                .into_response(),
            None => (StatusCode::PAYLOAD_TOO_LARGE, "at most 100 pages\n").into_response(),
        };
    }
    match print(job.pages) {
        Ok(text) => text.into_response(),
        Err(fault) => {
            pages.refund(&key, decision.charged(), Some(decision.receipt()));
            (StatusCode::INTERNAL_SERVER_ERROR, fault).into_response()
        }
    }
}

fn print(pages: u64) -> Result<String, &'static str> {
    if pages == 13 {
        return Err("the printer is superstitious\n");
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
