//! gRPC with a real tonic server and client.
#![cfg(feature = "tonic")]
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::limiter;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Status,
    transport::{Channel, Server},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tower_ratelimit::{PeerIp, Quota, RateLimitLayer};

async fn serve(layer: RateLimitLayer) -> HealthClient<Channel> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(layer)
        .add_service(health)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client
        .check(HealthCheckRequest::default())
        .await
        .map(|_| ())
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_with_the_wait() {
    let (limiter, clock) = limiter(Quota::per_minute(2));
    let mut client = serve(RateLimitLayer::new(limiter, PeerIp)).await;
    check(&mut client).await.unwrap();
    check(&mut client).await.unwrap();

    let status = check(&mut client).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let info = status.get_details_retry_info().expect("RetryInfo");
    assert_eq!(info.retry_delay, Some(Duration::from_secs(30)));
    let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback, "30000");
    assert!(status.metadata().get("ratelimit").is_none());
    assert!(status.metadata().get("retry-after").is_none());

    // The connection is none the worse for it.
    clock.advance(Duration::from_secs(30));
    check(&mut client).await.unwrap();
}

#[tokio::test]
async fn an_allowed_call_carries_the_fields_as_metadata() {
    let (limiter, _) = limiter(Quota::per_minute(2).named("grpc"));
    let mut client = serve(RateLimitLayer::new(limiter, PeerIp)).await;
    let response = client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(
        response.metadata().get("ratelimit").unwrap(),
        r#""grpc";r=1;t=30"#
    );
    assert_eq!(
        response.metadata().get("ratelimit-policy").unwrap(),
        r#""grpc";q=2;w=60"#
    );
}

#[tokio::test]
async fn a_call_that_can_never_fit_is_told_not_to_retry() {
    let (limiter, _) = limiter(Quota::per_minute(2));
    let layer = RateLimitLayer::new(limiter, PeerIp).cost(|_| 3);
    let status = check(&mut serve(layer).await).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "-1"
    );
}

#[tokio::test]
async fn a_server_stream_is_denied_before_it_starts() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    let mut client = serve(RateLimitLayer::new(limiter, PeerIp)).await;
    let request = HealthCheckRequest::default();
    let mut stream = client.watch(request.clone()).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let status = client.watch(request).await.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn calls_queue_in_a_leaky_bucket() {
    let (limiter, _) = limiter(Quota::per_second(1_000).leaky_bucket(2));
    let mut client = serve(RateLimitLayer::new(limiter, PeerIp)).await;
    // One passes at once and two wait for a millisecond or two; time stands still for the limiter.
    for _ in 0..3 {
        check(&mut client).await.unwrap();
    }
    let status = check(&mut client).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let info = status.get_details_retry_info().expect("RetryInfo");
    assert_eq!(info.retry_delay, Some(Duration::from_millis(1)));
}
