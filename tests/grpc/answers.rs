//! Status and fields that a gRPC client receives.

use std::time::Duration;

use testkit::limiter;
use tonic::{Code, Status, metadata::MetadataMap};
use tonic_types::StatusExt;
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Header, Key, KeyErrorKind, KeyExtractor, LimiterError,
    MissingKey, PeerIp, Quota, RateLimitLayer,
    decision::{Op, Policy},
    reject::Denial,
};

use super::echo_service::{Kind, Running};

fn field<'m>(metadata: &'m MetadataMap, name: &str) -> Option<&'m str> {
    Some(metadata.get(name)?.to_str().unwrap())
}

fn wait(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

#[tokio::test]
async fn calls_of_every_kind_pass_with_the_fields_as_metadata_and_are_denied_in_grpc() {
    for kind in Kind::ALL {
        let (limiter, clock) = limiter(Quota::per_minute(2).named("grpc"));
        let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
        let mut client = server.client().await;

        let (metadata, reply) = client.call(kind).await.unwrap();
        assert_eq!(reply, "abc", "{kind:?}");
        assert_eq!(field(&metadata, "ratelimit"), Some(r#""grpc";r=1;t=30"#));
        assert_eq!(
            field(&metadata, "ratelimit-policy"),
            Some(r#""grpc";q=2;w=60"#)
        );
        assert_eq!(field(&metadata, "x-ratelimit-remaining"), Some("1"));
        client.call(kind).await.unwrap();

        let status = client.call(kind).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{kind:?}");
        assert_eq!(status.message(), "rate limit exceeded");
        assert_eq!(wait(&status), Some(Duration::from_secs(30)));
        let pushback = field(status.metadata(), "grpc-retry-pushback-ms");
        assert_eq!(pushback, Some("30000"));
        for name in [
            "ratelimit",
            "ratelimit-policy",
            "retry-after",
            "x-ratelimit-limit",
        ] {
            assert_eq!(field(status.metadata(), name), None, "{kind:?}");
        }

        clock.advance(wait(&status).unwrap());
        assert_eq!(client.call(kind).await.unwrap().1, "abc");
    }
}

#[tokio::test]
async fn a_method_s_own_error_carries_the_fields_too() {
    let (limiter, _) = limiter(Quota::per_minute(2).named("grpc"));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let status = server.client().await.unary("fail").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let left = field(status.metadata(), "ratelimit");
    assert_eq!(left, Some(r#""grpc";r=1;t=30"#));
    assert_eq!(field(status.metadata(), "grpc-retry-pushback-ms"), None);
}

#[tokio::test]
async fn a_method_s_own_denial_is_reported_like_a_layer_s() {
    let (limiter, _) = limiter(Quota::per_minute(2).named("grpc"));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let status = server.client().await.unary("limited").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded");
    assert_eq!(wait(&status), Some(Duration::from_secs(60)));
    let pushback = field(status.metadata(), "grpc-retry-pushback-ms");
    assert_eq!(pushback, Some("60000"));
    // The layer's, which let it in.
    let left = field(status.metadata(), "ratelimit");
    assert_eq!(left, Some(r#""grpc";r=1;t=30"#));
    assert_eq!(field(status.metadata(), "retry-after"), None);

    let failed = Status::from(Denial::from(LimiterError::unavailable("refused")));
    assert_eq!(failed.code(), Code::Unavailable);
    assert!(failed.metadata().is_empty());
}

#[tokio::test]
async fn a_call_that_can_never_fit_must_not_be_retried() {
    let (limiter, _) = limiter(Quota::per_minute(2));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp).cost(|_| 3)).await;
    let status = server.client().await.call(Kind::Unary).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(wait(&status), None);
    let pushback = field(status.metadata(), "grpc-retry-pushback-ms");
    assert_eq!(pushback, Some("-1"));
}

#[tokio::test]
async fn calls_queue_in_a_leaky_bucket() {
    let (limiter, _) = limiter(Quota::per_second(1_000).leaky_bucket(2));
    let server = Running::new(RateLimitLayer::new(limiter, PeerIp)).await;
    let mut client = server.client().await;
    // One passes at once and two wait for a millisecond or two; time stands still for the limiter.
    for kind in [Kind::Unary, Kind::ServerStreaming, Kind::Bidirectional] {
        assert_eq!(client.call(kind).await.unwrap().1, "abc");
    }
    let status = client.call(Kind::Unary).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(wait(&status), Some(Duration::from_millis(1)));
}

#[tokio::test]
async fn methods_can_have_limits_of_their_own() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    let by_method = |parts: &http::request::Parts| Key::from(parts.uri.path());
    let server = Running::new(RateLimitLayer::new(limiter, (PeerIp, by_method))).await;
    let mut client = server.client().await;
    for kind in Kind::ALL {
        assert_eq!(client.call(kind).await.unwrap().1, "abc");
    }
    for kind in Kind::ALL {
        let status = client.call(kind).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}

struct Broken;

impl AsyncLimiter for Broken {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        Err(LimiterError::unavailable("connection refused"))
    }

    fn policies(&self) -> &[Policy] {
        const { &[Policy::new("broken", 1)] }
    }
}

async fn refused(layer: RateLimitLayer) -> Status {
    let server = Running::new(layer).await;
    server.client().await.call(Kind::Unary).await.unwrap_err()
}

fn by(key: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_minute(1), key)
}

#[tokio::test]
async fn other_refusals_have_codes_of_their_own() {
    let no_key = by(Header::new("x-api-key"));
    let no_key = no_key.on_missing_key(KeyErrorKind::Absent, MissingKey::Reject);
    let unavailable =
        by(|_: &http::request::Parts| Err(tower_ratelimit::KeyError::unavailable("plug it in")));
    let refusals = [
        (no_key, Code::InvalidArgument),
        (unavailable, Code::Internal),
        (by(Global).deny(|_| true), Code::PermissionDenied),
    ];
    for (layer, code) in refusals {
        let status = refused(layer).await;
        assert_eq!(status.code(), code);
        assert!(!status.message().contains("plug"), "{status:?}");
        assert_eq!(field(status.metadata(), "grpc-retry-pushback-ms"), None);
    }
}

#[tokio::test]
async fn a_limiter_that_fails_is_unavailable() {
    use tonic::body::Body;
    use tower::{Layer, ServiceExt};

    let service = RateLimitLayer::new(Broken, Global).layer(super::echo_service::Echo);
    let request =
        http::Request::post(Kind::Unary.path()).header("content-type", "application/grpc");
    let response = service
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::Unavailable);
}
