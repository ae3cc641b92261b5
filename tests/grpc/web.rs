//! gRPC-Web: inside the layer that translates it a denial is gRPC's, around it plain HTTP.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use testkit::{field, limiter};
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_ratelimit::{Global, Quota, RateLimitLayer};

use super::echo_service::{Echo, Kind};

fn once_a_minute() -> RateLimitLayer {
    let (limiter, _) = limiter(Quota::per_minute(1).named("web"));
    RateLimitLayer::new(limiter, Global)
}

/// A call of one message, as a browser makes it over HTTP/1.1; what came back.
async fn call<S>(service: &S) -> Response<Bytes>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone,
    S::Error: std::fmt::Debug,
{
    let message = Bytes::from_static(b"\0\0\0\0\x03abc");
    let request = Request::post(Kind::Unary.path())
        .header("content-type", "application/grpc-web+proto")
        .body(Body::new(http_body_util::Full::new(message)));
    let response = service.clone().oneshot(request.unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, body)
}

#[tokio::test]
async fn inside_the_translation_a_denial_is_a_grpc_status() {
    let service = ServiceBuilder::new()
        .layer(GrpcWebLayer::new())
        .layer(once_a_minute())
        .service(Echo);

    let passed = call(&service).await;
    assert_eq!(passed.status(), 200);
    assert_eq!(field(&passed, "ratelimit"), Some(r#""web";r=0;t=60"#));
    let trailers = b"\x80\0\0\0\x0fgrpc-status:0\r\n";
    assert_eq!(passed.body(), &[&b"\0\0\0\0\x03abc"[..], trailers].concat());

    let denied = call(&service).await;
    assert_eq!(denied.status(), 200);
    let fields = [
        "content-type",
        "grpc-status",
        "grpc-retry-pushback-ms",
        "ratelimit",
    ];
    assert_eq!(
        fields.map(|name| field(&denied, name)),
        [
            Some("application/grpc-web+proto"),
            Some("8"),
            Some("60000"),
            None
        ]
    );
    assert!(field(&denied, "grpc-status-details-bin").is_some());
    assert_eq!(denied.body(), "");
}

#[tokio::test]
async fn around_the_translation_a_denial_is_a_plain_429() {
    let service = ServiceBuilder::new()
        .layer(once_a_minute())
        .layer(GrpcWebLayer::new())
        .service(Echo);

    assert_eq!(call(&service).await.status(), 200);
    let denied = call(&service).await;
    assert_eq!(denied.status(), 429);
    let fields = ["content-type", "grpc-status", "retry-after", "ratelimit"];
    assert_eq!(
        fields.map(|name| field(&denied, name)),
        [
            Some("application/problem+json"),
            None,
            Some("60"),
            Some(r#""web";r=0;t=60"#)
        ]
    );
}
