//! Where it is used: axum and tonic.

#[cfg(feature = "axum")]
mod axum {
    use axum::{
        Router,
        body::Body,
        http::{Request, Response},
        routing::get,
    };
    use http_body_util::BodyExt;
    use testkit::{fields, limiter, now};
    use tower::{ServiceBuilder, ServiceExt};
    use tower_ratelimit::{Global, Quota, RateLimitLayer};

    use crate::{at_most, in_flight};

    fn get_from(app: &Router, path: &str) -> Response<Body> {
        let request = Request::get(path).body(Body::empty()).unwrap();
        now(app.clone().oneshot(request)).unwrap()
    }

    #[test]
    fn a_router_counts_all_its_routes_together_until_their_bodies_are_read() {
        let (quota, _) = limiter(Quota::per_second(10));
        let layer = at_most(2);
        let app = Router::new()
            .route("/a", get(async || "a"))
            .route("/b", get(async || "b"))
            .layer(RateLimitLayer::new(quota, Global))
            .layer(layer.clone());
        let first = get_from(&app, "/a");
        let second = get_from(&app, "/b");
        assert_eq!(
            fields(&second, "ratelimit"),
            [r#""default";r=8;t=1"#, r#""concurrency";r=0"#]
        );
        let denied = get_from(&app, "/a");
        assert_eq!(denied.status(), 429);
        assert_eq!(fields(&denied, "ratelimit"), [r#""concurrency";r=0"#]);

        // axum's box passes the length on.
        assert_eq!(fields(&first, "content-length"), ["1"]);
        let body = now(first.into_body().collect()).unwrap().to_bytes();
        assert_eq!(body, "a");
        assert_eq!(in_flight(&layer), 1);
        drop(second);
        assert_eq!(in_flight(&layer), 0);
        assert_eq!(get_from(&app, "/b").status(), 200);
    }

    #[test]
    fn a_stack_of_layers_is_read_from_the_top() {
        let layer = at_most(1);
        let stack = ServiceBuilder::new()
            .layer(layer.clone())
            .layer(RateLimitLayer::new(Quota::per_hour(1), Global));
        let app = Router::new().route("/", get(async || "ok")).layer(stack);
        assert_eq!(get_from(&app, "/").status(), 200);
        let denied = get_from(&app, "/");
        assert_eq!(denied.status(), 429);
        assert_eq!(fields(&denied, "retry-after").len(), 1);
        drop(denied);
        assert_eq!(in_flight(&layer), 0);
    }
}

#[cfg(feature = "tonic")]
mod tonic {
    use std::time::Duration;

    use tokio::time::timeout;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{
        Code,
        transport::{Channel, Server},
    };
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_types::StatusExt;
    use tower_ratelimit::{ConcurrencyLayer, Global, Quota, RateLimitLayer};

    use crate::{at_most, in_flight};

    async fn serve(layer: ConcurrencyLayer) -> HealthClient<Channel> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder()
            .layer(layer)
            .layer(RateLimitLayer::new(Quota::per_day(100), Global))
            .add_service(health)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        HealthClient::new(channel.connect().await.unwrap())
    }

    /// Waits until the server knows that its response is over; in vain no longer than 10 s.
    async fn all_have_come_back(layer: &ConcurrencyLayer) {
        let all = async {
            while in_flight(layer) > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), all).await.unwrap();
    }

    #[tokio::test]
    async fn a_server_stream_counts_until_the_client_has_enough() {
        let layer = at_most(1);
        let mut client = serve(layer.clone()).await;
        let request = HealthCheckRequest::default();
        let mut stream = client.watch(request.clone()).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        assert_eq!(in_flight(&layer), 1);

        let status = client.check(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.get_details_retry_info().is_none());
        assert!(status.metadata().get("grpc-retry-pushback-ms").is_none());

        drop(stream);
        all_have_come_back(&layer).await;
        let allowed = client.check(request).await.unwrap();
        let limits = allowed.metadata().get_all("ratelimit").iter();
        assert_eq!(limits.count(), 2);
        all_have_come_back(&layer).await;
    }
}
