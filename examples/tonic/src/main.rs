//! gRPC: a server with a limit, and a client that runs into it.
//!
//! The client gets `RESOURCE_EXHAUSTED` and the time to wait, in the fields that gRPC clients
//! read; a bare 429 would reach it as `UNAVAILABLE`.
//!
//! ```sh
//! cargo run -p example-tonic
//! ```

use std::error::Error;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(RateLimitLayer::new(Quota::per_minute(3), PeerIp))
        .add_service(health)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);

    let channel = Channel::from_shared(format!("http://{address}"))?;
    let mut client = HealthClient::new(channel.connect().await?);
    for call in 1..=5 {
        let request = HealthCheckRequest::default();
        match client.check(request).await {
            Ok(response) => {
                let left = response.metadata().get("ratelimit");
                println!("call {call}: ok, ratelimit: {left:?}");
            }
            Err(status) => {
                let wait = status.get_details_retry_info();
                let wait = wait.and_then(|info| info.retry_delay);
                println!(
                    "call {call}: status {} ({:?}), retry after {wait:?}",
                    status.code() as i32,
                    status.code()
                );
            }
        }
    }
    Ok(())
}
