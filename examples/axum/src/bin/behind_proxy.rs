//! Behind a proxy on this machine: the limit follows the client's address, which nobody can forge.
//!
//! ```sh
//! cargo run -p example-axum --bin behind_proxy
//! # As the proxy would ask, for two clients: ten requests of each pass.
//! curl -s -H 'X-Forwarded-For: 203.0.113.7' 'http://127.0.0.1:3000/?[1-12]'
//! curl -s -H 'X-Forwarded-For: 6.6.6.6, 203.0.113.8' 'http://127.0.0.1:3000/'
//! ```
//!
//! nginx needs `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;`, HAProxy `option
//! forwardfor`.

use std::{env, net::SocketAddr};

use axum::{Router, routing::get};
use tower_ratelimit::{ClientAddress, ClientAddressLayer, ClientIp, Quota, RateLimitLayer};

fn app(client_ip: ClientIp, quota: Quota) -> Router {
    Router::new()
        .route("/", get(whoami))
        .layer(RateLimitLayer::new(quota, client_ip.clone()))
        .layer(ClientAddressLayer::new(client_ip))
}

async fn whoami(client: ClientAddress) -> String {
    format!("{}\n", client.ip())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    // The proxies' own addresses. Whoever else connects is the client itself.
    let client_ip = ClientIp::behind(["127.0.0.1"]);
    let app = app(client_ip, Quota::per_minute(10));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await
}
