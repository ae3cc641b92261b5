//! Which requests are answered in gRPC.

use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, header::CONTENT_TYPE};
use tower_ratelimit::{
    Decision, Headers,
    clock::Timestamp,
    decision::{Policy, QuotaStatus},
};

use super::stub_limiter::answer;

/// The lines of `Content-Type`.
pub fn check(data: &[u8]) {
    let mut request = Request::new(String::new());
    *request.method_mut() = Method::POST;
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            request.headers_mut().append(CONTENT_TYPE, value);
        }
    }
    let grpc = request.headers().get(CONTENT_TYPE).is_some_and(is_grpc);

    let policy = Policy::new("default", 1);
    let status = QuotaStatus::new(&policy).with_denial(Some(Duration::from_secs(7)));
    let at = Timestamp::default();
    let decision = Decision::denied(at, status);
    let response = answer(vec![policy.clone()], decision, Headers::new(), request);
    if grpc {
        in_grpc(&response);
    } else {
        in_http(&response);
    }
}

/// `application/grpc`, alone or followed by a format or a parameter.
fn is_grpc(content_type: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(content_type.as_bytes()).to_ascii_lowercase();
    let media_type = text.split(['+', ';', ' ', '\t']).next();
    media_type == Some("application/grpc")
}

fn in_grpc(response: &Response<String>) {
    let field = |name: &str| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(
        (response.status().as_u16(), response.body().as_str()),
        (200, "")
    );
    assert_eq!(field("content-type"), Some("application/grpc"));
    assert_eq!(field("grpc-status"), Some("8"));
    assert_eq!(field("grpc-retry-pushback-ms"), Some("7000"));
    for http_only in [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
    ] {
        assert_eq!(field(http_only), None);
    }
}

fn in_http(response: &Response<String>) {
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    assert!(!response.headers().contains_key("grpc-status"));
}
