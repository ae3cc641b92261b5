//! A limit per client behind a proxy, and a handler that knows the client's address.
//!
//! This machine stands in for the proxy, so that the header can be written by hand. Only the right
//! end counts, which a real proxy writes: another left end is still the same client. In production
//! list the networks of your proxies.
//!
//! ```sh
//! cargo run --example axum_behind_proxy
//! for n in 1 2 3 4; do curl -H "x-forwarded-for: 6.6.6.$n, 203.0.113.7" http://127.0.0.1:3000/; done
//! curl -H 'x-forwarded-for: 6.6.6.6, 203.0.113.8' http://127.0.0.1:3000/
//! ```

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use tower_ratelimit::{ClientAddress, ClientIp, Quota, RateLimitLayer, layer::ClientAddressLayer};

async fn hello(client: ClientAddress) -> String {
    format!("hello, {}\n", client.ip())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let client_ip = ClientIp::behind(["127.0.0.1", "::1"]);
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Quota::per_minute(3), client_ip.clone()))
        .layer(ClientAddressLayer::new(client_ip));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
