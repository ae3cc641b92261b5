//! A 429 in the service's own words: JSON for programs, a page for browsers.
//!
//! ```sh
//! cargo run -p example-axum --bin custom_rejection
//! curl -i 'http://127.0.0.1:3000/?[1-3]'
//! curl -i -H 'accept: text/html' 'http://127.0.0.1:3000/'
//! ```

use std::{env, net::SocketAddr};

use axum::{
    Json, Router,
    http::header::ACCEPT,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, reject::Rejection};

fn too_many(rejection: &Rejection<'_>) -> Response {
    // A denial comes with a decision; a missing key or a limiter that fails does not.
    let wait = rejection.decision().and_then(|d| d.retry_after_seconds());
    let accept = rejection.parts().headers.get(ACCEPT);
    let browser = accept.is_some_and(|value| value.as_bytes().starts_with(b"text/html"));
    let status = rejection.status();
    if browser {
        let when = wait.map_or("later".into(), |wait| format!("in {wait} seconds"));
        let page = format!("<h1>{status}</h1><p>Please come back {when}.</p>\n");
        (status, Html(page)).into_response()
    } else {
        let problem = json!({ "error": "slow_down", "retry_after": wait });
        (status, Json(problem)).into_response()
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let limit = RateLimitLayer::new(Quota::per_minute(2), PeerIp).rejection_fn(too_many);
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit);

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
