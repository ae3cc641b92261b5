//! A channel of tonic as the client.

use http::Uri;
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::{Layer, service_fn};
use tower_ratelimit::{Global, LocalLimiter, Quota, RateLimitLayer, clock::TokioClock};
use tower_ratelimit_client::{Learn, Pacer, PacerLayer};

use super::{api, builder, seconds, simulated_network};

/// A health service with a limit of a call a second.
fn channel() -> tonic::transport::Channel {
    let (_, health) = tonic_health::server::health_reporter();
    let limiter = LocalLimiter::builder(Quota::per_second(1)).clock(TokioClock::new());
    let limit = RateLimitLayer::new(limiter.build().unwrap(), Global);
    let service = limit.layer(tonic::service::Routes::new(health).prepare());
    let service =
        tower::util::MapRequest::new(service, |request: http::Request<hyper::body::Incoming>| {
            request.map(tonic::body::Body::new)
        });
    let service =
        tower::util::MapResponse::new(service, |response: http::Response<tonic::body::Body>| {
            response.map(axum::body::Body::new)
        });
    Endpoint::from_static("http://api.example.com").connect_with_connector_lazy(service_fn(
        move |_: Uri| {
            let io = simulated_network::connect(service.clone(), simulated_network::Http::Two);
            async move { Ok::<_, std::io::Error>(io) }
        },
    ))
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_reported_quotas() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .build()
        .unwrap();
    let layer = PacerLayer::new(pacer.clone()).destination(api());
    let mut client = HealthClient::new(layer.layer(channel()));
    let mut codes = Vec::new();
    for _ in 0..4 {
        let answer = client.check(HealthCheckRequest::default()).await;
        codes.push(answer.map_or_else(|status| status.code() as i32, |_| 0));
    }
    // Each response reports that nothing is left.
    assert_eq!(codes, [0; 4]);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_wait_of_a_refusal() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .learn(Learn::all().fields(false))
        .build()
        .unwrap();
    let layer = PacerLayer::new(pacer).destination(api());
    let mut client = HealthClient::new(layer.layer(channel()));
    let mut codes = Vec::new();
    for _ in 0..4 {
        let answer = client.check(HealthCheckRequest::default()).await;
        codes.push(answer.map_or_else(|status| status.code() as i32, |_| 0));
    }
    // A call whose body cannot be copied is not sent again, but the next one waits.
    assert_eq!(codes, [0, 8, 0, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_collected_body_is_sent_again() {
    let pacer = Pacer::learning_builder()
        .clock(TokioClock::new())
        .learn(Learn::all().fields(false))
        .seed(5)
        .build()
        .unwrap();
    let layer = PacerLayer::new(pacer)
        .destination(api())
        .buffer_bodies(1_024);
    let mut client = HealthClient::new(layer.layer(channel()));
    for _ in 0..4 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_limit_needs_no_retry() {
    let began = tokio::time::Instant::now();
    let pacer = builder(Quota::per_second(1)).build().unwrap();
    let layer = PacerLayer::new(pacer).destination(api());
    let mut client = HealthClient::new(layer.layer(channel()));
    for _ in 0..4 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
    assert!(began.elapsed() >= seconds(3));
}
