//! Five reports a minute are made afresh. A second server, which has those of yesterday, answers all further
//! requests and counts its answers.
//!
//! The layer passes what it denies, with the denial, to the service inside. That service sends it to the other
//! server, or denies it after all if that one is down.
//!
//! ```sh
//! cargo run -p example-axum --bin overflow_to_backup
//! curl -s 'http://127.0.0.1:3000/report?[1-7]' # five fresh ones, then two of the second server
//! curl -i http://127.0.0.1:3000/report # 200, RateLimit with r=0, and no Retry-After
//! ```

use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::net::TcpListener;
use tower_ratelimit::{Decision, Global, Quota, RateLimitLayer};

/// The way to the second server.
#[derive(Clone)]
struct Second {
    client: Client<HttpConnector, Body>,
    address: SocketAddr,
}

impl Second {
    /// Starts the server, and returns the way to it.
    async fn start() -> std::io::Result<Self> {
        static ANSWERS: AtomicU64 = AtomicU64::new(0);

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let report = async || {
            let answers = ANSWERS.fetch_add(1, Ordering::Relaxed) + 1;
            format!("the report of yesterday, answer {answers} of the second server\n")
        };
        let app = Router::new().route("/report", get(report));
        tokio::spawn(axum::serve(listener, app).into_future());
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            address,
        })
    }

    async fn answer(&self, denial: Decision, mut request: Request) -> Response {
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str());
        let Ok(uri) = Uri::try_from(format!("http://{}{path}", self.address)) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        *request.uri_mut() = uri;
        match self.client.request(request).await {
            Ok(response) => response.map(Body::new),
            // As the layer would have answered.
            Err(_) => denial.into_result().map(drop).into_response(),
        }
    }
}

/// Sends a request that the limit denied to the second server.
async fn steer(
    State(second): State<Second>,
    decision: Option<Decision>,
    request: Request,
    next: Next,
) -> Response {
    match decision {
        Some(denial) if denial.is_denied() => second.answer(denial, request).await,
        _ => next.run(request).await,
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let second = Second::start().await?;
    println!("the second server is http://{}", second.address);
    let app = Router::new()
        .route("/report", get(async || "a fresh report\n"))
        .layer(from_fn_with_state(second, steer))
        // Outside, so that the steering sees what it denied.
        .layer(RateLimitLayer::new(Quota::per_minute(5), Global).overflow());

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await
}
