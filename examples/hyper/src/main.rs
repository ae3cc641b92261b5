//! Plain hyper, without axum: the server leaves the peer's address where `PeerIp` finds it.
//!
//! ```sh
//! cargo run -p example-hyper
//! curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:3000/?[1-10]'
//! ```

use std::{convert::Infallible, env};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tower::{ServiceBuilder, service_fn};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    // One layer for all connections, so that they share one budget.
    let limit = RateLimitLayer::new(Quota::per_second(5), PeerIp);

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                request
            })
            .layer(limit.clone())
            .service(service_fn(hello));
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = connection.await {
                eprintln!("connection from {peer}: {error}");
            }
        });
    }
}
