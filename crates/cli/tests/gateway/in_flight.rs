//! `in_flight` in the gateway's rules: permits last as long as requests, streams and WebSockets.

use std::fs;

use testkit::child_processes::eventually;

use serde_json::json;

use crate::{
    admin::{look, operate},
    gateway_process::{Gateway, bounded},
    metrics::reported,
    raw_http1::Wire,
    recording_upstream::Upstream,
};

/// Two requests at the same time for each bearer token.
const RULES: &str = "rules: [{name: api, key: bearer_token, in_flight: 2}]";

/// Sends a request of a client, and reads the head of the response.
pub(crate) async fn begin(gateway: &Gateway, client: &str, path: &str) -> (u16, Wire) {
    let mut wire = gateway.connect().await;
    let lines = format!("GET {path} HTTP/1.1\nhost: test\nauthorization: Bearer {client}");
    wire.request(&lines).await;
    let head = wire.head().await.unwrap();
    (head.status(), wire)
}

pub(crate) async fn status(gateway: &Gateway, client: &str, path: &str) -> u16 {
    begin(gateway, client, path).await.0
}

/// Sends a request that the upstream never answers.
async fn hang(gateway: &Gateway, upstream: &Upstream) -> Wire {
    let before = upstream.requests().len();
    let mut wire = gateway.connect().await;
    wire.request("GET /silent HTTP/1.1\nhost: test\nauthorization: Bearer a")
        .await;
    eventually("the request", async || {
        (upstream.requests().len() > before).then_some(())
    })
    .await;
    wire
}

/// Waits until a client has a permit again.
pub(crate) async fn until_free(gateway: &Gateway) {
    eventually("a permit", async || {
        (status(gateway, "a", "/").await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_of_a_key_run_at_the_same_time_up_to_the_limit() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let first = hang(&gateway, &upstream).await;
        assert_eq!(status(&gateway, "a", "/").await, 200);
        let second = hang(&gateway, &upstream).await;
        let (denied, _) = begin(&gateway, "a", "/").await;
        assert_eq!(denied, 429);
        assert_eq!(status(&gateway, "b", "/").await, 200);
        // A client that goes takes its request along.
        drop(first);
        until_free(&gateway).await;
        drop(second);
    })
    .await;
}

#[tokio::test]
async fn stream_holds_its_permit_to_its_end() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("in_flight: 2", "in_flight: 1");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let (code, mut stream) = begin(&gateway, "a", "/events").await;
        assert_eq!(code, 200);
        stream.chunk().await.unwrap().unwrap();
        assert_eq!(status(&gateway, "a", "/").await, 429);
        upstream.steps.add_permits(2);
        stream.chunk().await.unwrap().unwrap();
        while stream
            .chunk()
            .await
            .is_some_and(|chunk| chunk.is_ok_and(|chunk| !chunk.is_empty()))
        {}
        until_free(&gateway).await;
        // An upstream that breaks off releases it, too.
        let (code, broken) = begin(&gateway, "a", "/break").await;
        assert_eq!(code, 200);
        assert_eq!(status(&gateway, "a", "/").await, 429);
        upstream.steps.add_permits(1);
        until_free(&gateway).await;
        drop(broken);
        assert_eq!(status(&gateway, "a", "/cut").await, 502);
        until_free(&gateway).await;
    })
    .await;
}

#[tokio::test]
async fn web_socket_holds_its_permit_to_its_end() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("in_flight: 2", "in_flight: 1");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let chat =
            "/chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket\nauthorization: Bearer a";
        let mut wire = gateway.connect().await;
        assert_eq!(wire.answer(&format!("GET {chat}")).await.0.status(), 101);
        for _ in 0..3 {
            wire.send("hello").await;
            assert_eq!(wire.read(5).await.unwrap(), b"HELLO");
            assert_eq!(status(&gateway, "a", "/").await, 429);
        }
        drop(wire);
        until_free(&gateway).await;
    })
    .await;
}

#[tokio::test]
async fn limit_of_new_rules_counts_what_runs() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let running = [
            hang(&gateway, &upstream).await,
            hang(&gateway, &upstream).await,
        ];
        assert_eq!(status(&gateway, "a", "/").await, 429);
        let file = gateway.folder.path().join("rules.yaml");
        fs::write(file, RULES.replace("in_flight: 2", "in_flight: 3")).unwrap();
        gateway.process.hang_up();
        until_free(&gateway).await;
        let third = hang(&gateway, &upstream).await;
        assert_eq!(status(&gateway, "a", "/").await, 429);
        drop((running, third));
        until_free(&gateway).await;
    })
    .await;
}

#[tokio::test]
async fn operators_see_what_runs() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES
            .replace("bearer_token", "client_ip")
            .replace("in_flight: 2", "in_flight: {max: 2, name: together}");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let series = [
            r#"ratelimit_in_flight{policy="together"}"#,
            r#"ratelimit_limit{policy="together"}"#,
        ];
        assert_eq!(reported(&gateway, series).await, [Some(0.0), Some(2.0)]);
        let first = hang(&gateway, &upstream).await;
        let second = hang(&gateway, &upstream).await;
        assert_eq!(reported(&gateway, series).await, [Some(2.0), Some(2.0)]);
        let rule = look(&gateway, "/v1/rules/api").await;
        assert_eq!(rule["in_flight"], json!({"policy": "together", "limit": 2}));

        assert_eq!(status(&gateway, "a", "/").await, 429);
        let top = look(&gateway, "/v1/top?rule=together").await;
        assert_eq!(top["keys"][0]["count"], 1, "{top}");
        let key = "ip:127.0.0.1";
        let of_key = look(&gateway, &format!("/v1/keys?rule=api&key={key}")).await;
        let running = json!({"policy": "together", "limit": 2, "count": 2});
        assert_eq!(of_key["in_flight"], running, "{of_key}");
        let line = "POST /v1/keys/reset";
        let body = json!({"rule": "api", "key": key}).to_string();
        let (status, answer) = operate(&gateway, line, &body).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains("has no quota"), "{answer}");
        drop((first, second));
        eventually("the end of both", async || {
            (reported(&gateway, series).await[0] == Some(0.0)).then_some(())
        })
        .await;

        // A gateway accepts what it enforces.
        let line = "POST /v1/rules/validate?kind=requests";
        let (_, answer) = operate(&gateway, line, &rules).await;
        assert_eq!(answer["valid"], true, "{answer}");
    })
    .await;
}
