//! A gateway before a language model: 1,000 tokens an hour for each API key, and what a response has used too much is
//! owed.
//!
//! The model is a second server in this program. It streams a word each 20 ms, and reports its tokens in the last event.
//!
//! ```sh
//! cargo run -p example-axum --bin budgets
//! curl -N -H 'x-api-key: a' -d '{"words": 100}' http://127.0.0.1:3000/v1/chat/completions # a stream
//! curl -H 'x-api-key: a' http://127.0.0.1:3000/left # the tokens that are left
//! curl -i -H 'x-api-key: a' -d '{"words": 1500}' http://127.0.0.1:3000/v1/chat/completions # owes
//! curl -i -H 'x-api-key: a' -d '{"words": 1}' http://127.0.0.1:3000/v1/chat/completions # 429
//! ```

use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tower_ratelimit::{Header, Key, LocalLimiter, Quota, RateLimitLayer, spend::llm::Llm};

#[derive(Deserialize)]
struct Prompt {
    words: u64,
}

/// The model's answer, with its usage at the end as by `stream_options.include_usage`.
async fn complete(Json(prompt): Json<Prompt>) -> impl IntoResponse {
    let words = (0..prompt.words).map(|at| {
        let delta = json!({"content": format!("word{at} ")});
        json!({"model": "mock", "choices": [{"index": 0, "delta": delta}], "usage": null})
            .to_string()
    });
    let usage = json!({"prompt_tokens": 10, "completion_tokens": prompt.words, "total_tokens": 10 + prompt.words});
    let end = json!({"model": "mock", "choices": [], "usage": usage}).to_string();
    let events = words.chain([end, "[DONE]".to_owned()]);
    let events: Vec<_> = events.map(|event| format!("data: {event}\n\n")).collect();
    let pause = Duration::from_millis(if prompt.words > 500 { 0 } else { 20 });
    let events = tokio_stream::iter(events).throttle(pause);
    let body = Body::from_stream(events.map(Ok::<_, std::convert::Infallible>));
    ([("content-type", "text/event-stream")], body)
}

/// Starts the model, and returns its address.
async fn start_model() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/v1/chat/completions", post(complete));
    tokio::spawn(axum::serve(listener, app).into_future());
    Ok(address)
}

#[derive(Clone)]
struct Gateway {
    client: Client<HttpConnector, Body>,
    model: SocketAddr,
    tokens: LocalLimiter,
}

/// Sends the request to the model as it came.
async fn forward(State(gateway): State<Gateway>, mut request: Request) -> Response {
    let uri = format!("http://{}{}", gateway.model, request.uri().path());
    let Ok(uri) = Uri::try_from(uri) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(
        "content-type",
        axum::http::HeaderValue::from_static("application/json"),
    );
    match gateway.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// The tokens that a key has left.
async fn left(State(gateway): State<Gateway>, headers: HeaderMap) -> String {
    let key = headers.get("x-api-key").and_then(|key| key.to_str().ok());
    let decision = gateway.tokens.peek(&Key::from(key.unwrap_or_default()), 1);
    format!("{} tokens left\n", decision.remaining().unwrap_or_default())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let tokens = LocalLimiter::new(Quota::per_hour(1_000).named("tokens").debt(1_000));
    let limit = RateLimitLayer::new(tokens.clone(), Header::new("x-api-key"))
        .spending(Llm::any())
        .reserve(100)
        .step(50);
    let gateway = Gateway {
        client: Client::builder(TokioExecutor::new()).build_http(),
        model: start_model().await?,
        tokens,
    };
    let app = Router::new()
        .route("/v1/chat/completions", post(forward).layer(limit))
        .route("/left", get(left))
        .with_state(gateway);

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await
}
