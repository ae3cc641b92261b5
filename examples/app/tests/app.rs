//! The whole application, without a network and without waiting.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{HeaderMap, HeaderValue, Request, request::Builder},
};
use example_app::{Config, User, app};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::Value;
use tower::ServiceExt as _;
use tower_ratelimit::clock::ManualClock;

/// A process has one recorder.
fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || PrometheusBuilder::new().install_recorder().unwrap();
    RECORDER.get_or_init(install).clone()
}

struct Service {
    app: Router,
    clock: ManualClock,
}

struct Answer {
    status: u16,
    fields: HeaderMap,
    body: String,
}

/// A new address each time, so that only the limit by user counts.
fn from(host: u32) -> Builder {
    let address = SocketAddr::from((host.to_be_bytes(), 4_000));
    Request::get("/account").extension(ConnectInfo(address))
}

impl Service {
    fn start() -> Self {
        let row = |id, name: &str, per_minute| {
            let name = name.to_owned();
            (
                format!("token-of-{name}"),
                User {
                    id,
                    name,
                    per_minute,
                },
            )
        };
        let clock = ManualClock::new();
        let app = app(Config {
            origin: HeaderValue::from_static("https://app.example"),
            users: Arc::new([row(1, "ann", None), row(2, "bob", Some(120))].into()),
            metrics: recorder(),
            clock: clock.clone(),
        });
        Self {
            app: app.unwrap(),
            clock,
        }
    }

    async fn send(&self, request: Builder, body: impl Into<Body>) -> Answer {
        let request = request.body(body.into()).unwrap();
        let (parts, body) = self
            .app
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Answer {
            status: parts.status.as_u16(),
            fields: parts.headers,
            body: String::from_utf8(body.into()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(from(1).uri(path), "").await
    }

    /// The number of requests of this user that pass, each from another address.
    async fn passed(&self, token: &str, count: u32) -> u32 {
        let mut passed = 0;
        for host in 0..count {
            let request = from(host).header("authorization", token);
            match self.send(request, "").await.status {
                200 => passed += 1,
                status => assert_eq!(status, 429),
            }
        }
        passed
    }

    async fn print(&self, pages: u64) -> Answer {
        let request = from(1).method("POST").uri("/print");
        let request = request
            .header("authorization", "Bearer token-of-ann")
            .header("content-type", "application/json");
        self.send(request, format!(r#"{{"pages":{pages}}}"#)).await
    }
}

/// The policies in a problem document.
fn violated(answer: &Answer) -> Value {
    assert_eq!(answer.fields["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    problem["violated-policies"].clone()
}

#[tokio::test]
async fn probes_are_neither_limited_nor_authenticated() {
    let service = Service::start();
    for _ in 0..200 {
        let answer = service.get("/health").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
        assert!(!answer.fields.contains_key("ratelimit"));
        assert_eq!(service.get("/metrics").await.status, 200);
    }
}

#[tokio::test]
async fn guessed_tokens_are_limited_by_address() {
    let service = Service::start();
    let guess = |token: u32| from(1).header("authorization", format!("Bearer {token}"));
    for token in 0..40 {
        let answer = service.send(guess(token), "").await;
        assert_eq!(
            (answer.status, &answer.fields["www-authenticate"]),
            (401, &"Bearer".parse().unwrap())
        );
    }
    let right = || from(1).header("authorization", "Bearer token-of-ann");
    let denied = service.send(right(), "").await;
    assert_eq!(
        (denied.status, violated(&denied)),
        (429, ["address"].into())
    );
    assert_eq!(denied.fields["retry-after"], "1");
    // Another address has a limit of its own, and this one passes after `retry-after`.
    assert_eq!(service.send(from(2), "").await.status, 401);
    service.clock.advance(Duration::from_secs(1));
    assert_eq!(service.send(right(), "").await.status, 200);
}

#[tokio::test]
async fn paths_that_do_not_exist_are_limited_by_address_too() {
    let service = Service::start();
    for _ in 0..40 {
        assert_eq!(service.get("/wp-login.php").await.status, 404);
    }
    assert_eq!(service.get("/wp-login.php").await.status, 429);
}

#[tokio::test]
async fn each_user_has_the_limit_of_the_row_wherever_the_requests_come_from() {
    let service = Service::start();
    assert_eq!(service.passed("Bearer token-of-ann", 200).await, 60);
    assert_eq!(service.passed("bearer token-of-bob", 200).await, 120);
    service.clock.advance(Duration::from_secs(30));
    assert_eq!(service.passed("Bearer token-of-ann", 200).await, 30);
    assert_eq!(service.passed("Bearer token-of-bob", 200).await, 60);

    let denied = from(9).header("authorization", "Bearer token-of-ann");
    let denied = service.send(denied, "").await;
    assert_eq!((denied.status, violated(&denied)), (429, ["user"].into()));
    assert!(
        service
            .get("/metrics")
            .await
            .body
            .contains(r#"ratelimit_denials_total{policy="user",result="limited"}"#)
    );
}

#[tokio::test]
async fn a_handler_reads_the_decision() {
    let service = Service::start();
    let ann = || from(1).header("authorization", "Bearer token-of-ann");
    assert_eq!(
        service.send(ann(), "").await.body,
        "ann, 59 requests left\n"
    );
    assert_eq!(
        service.send(ann(), "").await.body,
        "ann, 58 requests left\n"
    );
}

#[tokio::test]
async fn pages_are_charged_and_refunded_by_the_handler() {
    let service = Service::start();
    assert_eq!(
        service.print(80).await.body,
        "printed 80 pages, 20 left today\n"
    );
    // Refunded, or the next one would not fit.
    assert_eq!(service.print(13).await.status, 502);
    assert_eq!(service.print(20).await.status, 200);
    let denied = service.print(1).await;
    assert_eq!((denied.status, violated(&denied)), (429, ["pages"].into()));
    // A hundred a day is one in 864 seconds.
    assert_eq!(denied.fields["retry-after"], "864");
    service.clock.advance(Duration::from_secs(864));
    assert_eq!(service.print(1).await.status, 200);
}

#[tokio::test]
async fn browsers_see_denials_and_pay_nothing_for_preflights() {
    let service = Service::start();
    let origin = || from(1).header("origin", "https://app.example");
    for _ in 0..100 {
        let preflight = origin()
            .method("OPTIONS")
            .header("access-control-request-method", "POST");
        assert_eq!(service.send(preflight, "").await.status, 200);
    }
    let mut answer = service.send(origin(), "").await;
    assert_eq!(answer.status, 401);
    while answer.status != 429 {
        answer = service.send(origin(), "").await;
    }
    assert_eq!(
        answer.fields["access-control-allow-origin"],
        "https://app.example"
    );
    let exposed = answer.fields["access-control-expose-headers"]
        .to_str()
        .unwrap();
    assert!(exposed.contains("retry-after"), "{exposed}");
}
