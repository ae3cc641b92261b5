//! Every address may make three gRPC calls a minute, and its client gets the time to wait.

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Error, Server};
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

async fn serve(listener: TcpListenerStream) -> Result<(), Error> {
    let (_, service) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(RateLimitLayer::new(Quota::per_minute(3), PeerIp))
        .add_service(service)
        .serve_with_incoming(listener)
        .await
}

// The test, which is not on the page.

use std::time::Duration;

use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;

use crate::test_requests::listen;

#[tokio::test]
async fn a_call_too_many_is_resource_exhausted() {
    let (listener, address) = listen().await;
    tokio::spawn(serve(TcpListenerStream::new(listener)));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    for left in [2, 1, 0] {
        let answer = client.check(HealthCheckRequest::default()).await.unwrap();
        let quota = answer.metadata().get("ratelimit").unwrap();
        let quota = quota.to_str().unwrap();
        assert!(
            quota.starts_with(&format!("\"default\";r={left}")),
            "{quota}"
        );
    }
    let denied = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let retry = denied.get_details_retry_info().unwrap();
    assert!(retry.retry_delay.unwrap() > Duration::ZERO);
}
