//! A channel of tonic as a client that stays under a limit.
//!
//! ```sh
//! cargo run -p example-client --bin client_tonic
//! ```
//!
//! The server is part of this process, and accepts three calls a second. Requests of a generated
//! client have no host in their URI, so the layer sets the destination.

use std::{error::Error, time::Instant};

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::Layer;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};
use tower_ratelimit_client::{Pacer, PacerLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(RateLimitLayer::new(Quota::per_second(3), PeerIp))
        .add_service(health)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);

    let channel = Channel::from_shared(url.clone())?.connect().await?;
    // Unary calls: their one message is collected, so that a call can be sent again.
    let layer = PacerLayer::new(Pacer::learning())
        .destination(url.parse()?)
        .buffer_bodies(64 * 1024);
    let mut client = HealthClient::new(layer.layer(channel));
    let began = Instant::now();
    for call in 1..=8 {
        let answer = client.check(HealthCheckRequest::default()).await;
        let code = answer.map_or_else(|status| status.code(), |_| tonic::Code::Ok);
        println!(
            "call {call}: {code:?} after {:.1} s",
            began.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
