//! gRPC calls, and requests as JSON.

use serde_json::{Value, json};
use testkit::{needs, servers::Server};
use tonic::Code as GrpcCode;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    raw_http::{get, send},
    service_process::{Service, about},
};

#[tokio::test]
async fn client_is_answered_by_grpc() {
    let service = Service::start(&[]).await;
    let mut reported = Vec::new();
    for _ in 0..3 {
        let answer = service.call(about("foo", "bar")).await.unwrap();
        reported.push((answer.overall_code(), answer.statuses[0].limit_remaining));
    }
    let expected = [(Code::Ok, 1), (Code::Ok, 0), (Code::OverLimit, 0)];
    assert_eq!(reported, expected);
    let mut nowhere = about("foo", "bar");
    nowhere.domain.clear();
    let refused = service.call(nowhere).await.unwrap_err();
    assert_eq!(refused.code(), GrpcCode::InvalidArgument);
    assert!(refused.message().contains("domain"), "{refused}");
}

#[tokio::test]
async fn health_is_served_under_each_name() {
    let service = Service::start(&[]).await;
    let mut client = HealthClient::new(service.channel());
    for name in [
        "",
        "ratelimit",
        "envoy.service.ratelimit.v3.RateLimitService",
        "kuadrant.service.ratelimit.v1.RateLimitService",
    ] {
        let service = name.to_owned();
        let answer = client.check(HealthCheckRequest { service }).await.unwrap();
        assert_eq!(answer.into_inner().status, 1, "serving: {name:?}");
    }
    for path in ["/healthz", "/readyz", "/healthcheck"] {
        assert_eq!(get(service.http, path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn reflection_describes_the_service() {
    let service = Service::start(&[]).await;
    let mut client = ServerReflectionClient::new(service.channel());
    let symbol = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol)),
    };
    let response = client.server_reflection_info(tokio_stream::once(question));
    let mut answers = response.await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::FileDescriptorResponse(file)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let file = String::from_utf8_lossy(&file.file_descriptor_proto[0]).into_owned();
    assert!(file.contains("ShouldRateLimit"), "{file}");
}

#[tokio::test]
async fn client_is_answered_as_json() {
    let service = Service::start(&["--rls-headers", "envoy"]).await;
    let call = async |body: &Value| {
        let lines = "POST /json HTTP/1.1\r\ncontent-type: application/json";
        send(service.http, lines, &body.to_string()).await
    };
    let entries = json!([{"key": "foo", "value": "baz"}]);
    let question =
        json!({"domain": "rl", "descriptors": [{"entries": entries, "hitsAddend": "2"}]});
    let passed = call(&question).await;
    assert_eq!(
        (passed.status, passed.header("content-type")),
        (200, Some("application/json"))
    );
    let reported: Value = serde_json::from_str(&passed.body).unwrap();
    assert_eq!(reported["overallCode"], "OK");
    let status = &reported["statuses"][0];
    assert_eq!(
        status["currentLimit"],
        json!({"requestsPerUnit": 2, "unit": "YEAR"})
    );
    assert_eq!(status.get("limitRemaining"), None, "0 is not said");
    assert!(
        status["durationUntilReset"]
            .as_str()
            .unwrap()
            .ends_with('s')
    );
    assert_eq!(
        reported["responseHeadersToAdd"][0],
        json!({"key": "ratelimit-limit", "value": "2"})
    );
    let denied = call(&question).await;
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains("OVER_LIMIT"), "{}", denied.body);

    let limit = json!({"requests_per_unit": 1, "unit": "DAY", "unit_multiplier": 2});
    let own = json!({"domain": "rl", "descriptors": [{"entries": entries, "limit": limit}]});
    assert_eq!(call(&own).await.status, 200);
    for wrong in [
        json!([]),
        json!({"domain": 5}),
        json!({"domain": "rl", "descriptors": [{"entries": "foo"}]}),
        json!({"domain": "rl", "descriptors": [{"entries": [], "hitsAddend": -1}]}),
        json!({"domain": "rl", "other": 1}),
        json!({"domain": "rl", "descriptors": []}),
    ] {
        assert_eq!(call(&wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(get(service.http, "/json").await.status, 405);
}

#[tokio::test]
async fn instances_count_together_in_redis() {
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let options = ["--redis", &url, "--redis-deadline", "20s"];
    let (one, two) = (
        Service::start(&options).await,
        Service::start(&options).await,
    );
    let mut codes = Vec::new();
    for service in [&one, &two, &one, &two] {
        codes.push(
            service
                .call(about("foo", "bar"))
                .await
                .unwrap()
                .overall_code(),
        );
    }
    assert_eq!(
        codes,
        [Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit]
    );
}

#[tokio::test]
async fn store_that_is_down_is_unavailable_where_nothing_else_decides() {
    let nobody = format!(
        "redis://127.0.0.1:{}",
        testkit::child_processes::free_port()
    );
    let service = Service::start(&["--redis", &nobody, "--on-failure", "deny"]).await;
    let refused = service.call(about("foo", "bar")).await.unwrap_err();
    assert_eq!(refused.code(), GrpcCode::Unavailable);
    // Without a limit no store is needed.
    assert!(service.call(about("unmatched", "")).await.is_ok());
    for (how, passes) in [("allow", true), ("local", false)] {
        let service = Service::start(&["--redis", &nobody, "--on-failure", how]).await;
        let mut last = Code::Unknown;
        for _ in 0..3 {
            last = service
                .call(about("foo", "bar"))
                .await
                .unwrap()
                .overall_code();
        }
        assert_eq!(last == Code::Ok, passes, "{how}");
    }
}
