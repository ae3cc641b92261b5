//! The reader of bodies.

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use testkit::{limiter, llm::StreamingBody, now};
use tower::ServiceBuilder;
use tower_ratelimit::{
    Key, Quota, RateLimitLayer,
    mcp::{Mcp, McpBodyLayer},
};

use crate::{json, post, sent, server};

const CALL: &str = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"search","arguments":{"q":1}}}"#;
const METHOD: (&str, &str) = ("mcp-method", "tools/call");
const NAME: (&str, &str) = ("mcp-name", "search");
const READ: &str = r#"{"id":5,"method":"resources/read","params":{"uri":"file:///é","name":"x"}}"#;

#[test]
fn a_body_passes_unchanged_and_its_call_is_the_key() {
    let (limiter, _) = limiter(Quota::per_minute(9));
    let layers = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(RateLimitLayer::new(limiter.clone(), Mcp::tool()).mcp());
    let calls = Arc::default();
    let whole = layers.clone().service(server(&calls));
    let parts = layers.service(server(&calls));
    for (body, fields, name) in [
        (CALL, &[][..], ["tools/call", "search"]),
        (
            CALL,
            &[
                ("mcp-method", "tools/call"),
                ("mcp-name", "=?base64?c2VhcmNo?="),
            ],
            ["tools/call", "search"],
        ),
        (
            CALL,
            &[("mcp-method", "tools/call")],
            ["tools/call", "search"],
        ),
        (
            READ,
            &[("mcp-name", "=?base64?ZmlsZTovLy/DqQ==?=")],
            ["resources/read", "file:///é"],
        ),
    ] {
        let before = limiter
            .peek(&Key::tuple(name.map(Key::from)), 1)
            .remaining();
        let (response, echo) = now(sent(&whole, post(fields, body)));
        assert_eq!(
            (response.status().as_u16(), &*echo),
            (200, body.as_bytes()),
            "{fields:?}"
        );
        let request = Request::post("/")
            .body(StreamingBody::split(body.to_owned(), 7))
            .unwrap();
        let (response, echo) = now(sent(&parts, request));
        assert_eq!((response.status().as_u16(), &*echo), (200, body.as_bytes()));
        let after = limiter
            .peek(&Key::tuple(name.map(Key::from)), 1)
            .remaining();
        assert_eq!(after, before.map(|before| before - 2));
    }
    assert_eq!(calls.load(Relaxed), 8);
}

/// A name, fields, and a body.
type Case<'a> = (&'static str, &'a [(&'a str, &'a str)], &'a str);

/// Each is answered 400 with -32020, and does not reach the server.
#[test]
fn bad_input_is_refused() {
    let long_method = format!(r#"{{"id":5,"method":"{}"}}"#, "m".repeat(10 << 10));
    let long_name = CALL.replace("search", &"n".repeat(4_097));
    let long_body = CALL.replace("\"q\":1", &format!("\"q\":\"{}\"", "b".repeat(64 << 10)));
    let many = format!("[{}]", vec![r#"{"method":"ping"}"#; 65].join(","));
    let deep = format!(r#"{{"method":"tools/call","params":{}"#, "[".repeat(50_000));
    let cases: Vec<Case<'_>> = vec![
        ("empty", &[], ""),
        ("no JSON", &[], "method=tools/call"),
        ("no object", &[], "5"),
        ("two values", &[], r#"{"method":"ping"}{"method":"ping"}"#),
        ("cut off", &[], &CALL[..40]),
        ("deep", &[], &deep),
        (
            "neither call nor response",
            &[],
            r#"{"jsonrpc":"2.0","id":1}"#,
        ),
        (
            "method no string",
            &[],
            r#"{"id":1,"method":["tools/call"]}"#,
        ),
        ("method empty", &[], r#"{"id":1,"method":""}"#),
        ("method of 10 KiB", &[], &long_method),
        (
            "method twice",
            &[],
            r#"{"method":"ping","method":"tools/call"}"#,
        ),
        (
            "method in another case",
            &[],
            r#"{"method":"ping","Method":"tools/call"}"#,
        ),
        (
            "method by an escape",
            &[],
            r#"{"method":"ping","m\u0065thod":"tools/call"}"#,
        ),
        (
            "params twice",
            &[],
            r#"{"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
        ),
        (
            "params with a long s",
            &[],
            r#"{"method":"tools/call","params":{"name":"a"},"paramſ":{"name":"b"}}"#,
        ),
        (
            "name twice",
            &[],
            r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#,
        ),
        ("no name", &[], r#"{"method":"tools/call","params":{}}"#),
        ("no params", &[], r#"{"method":"prompts/get"}"#),
        (
            "name no string",
            &[],
            r#"{"method":"tools/call","params":{"name":7}}"#,
        ),
        ("name too long", &[], &long_name),
        ("body too long", &[], &long_body),
        ("empty batch", &[], "[]"),
        ("batch too long", &[], &many),
        ("batch of batches", &[], r#"[[{"method":"ping"}]]"#),
        ("batch with a bad message", &[], r#"[{"method":"ping"},{}]"#),
        (
            "another method",
            &[("mcp-method", "tools/list"), ("mcp-name", "search")],
            CALL,
        ),
        (
            "method in another case",
            &[("mcp-method", "Tools/call"), ("mcp-name", "search")],
            CALL,
        ),
        (
            "another name",
            &[("mcp-method", "tools/call"), ("mcp-name", "other")],
            CALL,
        ),
        ("name alone differs", &[("mcp-name", "other")], CALL),
        (
            "name no Base64",
            &[("mcp-method", "tools/call"), ("mcp-name", "=?base64?*?=")],
            CALL,
        ),
        ("two fields", &[METHOD, METHOD, NAME], CALL),
        (
            "two spellings",
            &[METHOD, NAME, ("mcp_name", "search")],
            CALL,
        ),
        (
            "a batch with another call",
            &[METHOD, NAME],
            r#"[{"method":"ping"}]"#,
        ),
        (
            "a response with a method",
            &[METHOD],
            r#"{"id":1,"result":{}}"#,
        ),
        ("encoded", &[("content-encoding", "gzip")], CALL),
        (
            "encoded by a second line",
            &[
                ("content-encoding", "identity"),
                ("content-encoding", "gzip"),
            ],
            CALL,
        ),
        (
            "encoded by another spelling",
            &[("content_encoding", "gzip")],
            CALL,
        ),
    ];
    let calls = Arc::default();
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .service(server(&calls));
    for (name, fields, body) in cases {
        let (response, answer) = now(sent(&service, post(fields, body)));
        assert_eq!(response.status(), 400, "{name}");
        let answer = json(&answer);
        assert_eq!(answer["error"]["code"], -32020, "{name}");
        if body == CALL && !name.starts_with("encoded") {
            assert_eq!(answer["id"], 5, "{name}");
        }
    }
    assert_eq!(calls.load(Relaxed), 0);
}

#[test]
fn the_length_is_that_of_the_layer() {
    let longer = format!("{CALL} ");
    for (most, body, status) in [
        (CALL.len(), CALL, 200),
        (CALL.len(), &longer, 400),
        (CALL.len() + 1, &longer, 200),
    ] {
        let service = ServiceBuilder::new()
            .layer(McpBodyLayer::up_to(most as u64))
            .service(server(&Arc::default()));
        let (response, _) = now(sent(&service, post(&[], body)));
        assert_eq!(response.status(), status);
        let service = ServiceBuilder::new()
            .layer(McpBodyLayer::up_to(most as u64))
            .service(server(&Arc::default()));
        let request = Request::post("/")
            .body(StreamingBody::split(body.to_owned(), 5))
            .unwrap();
        assert_eq!(now(sent(&service, request)).0.status(), status);
    }
}

/// A body that never comes.
#[derive(Debug)]
struct Silent;

impl http_body::Body for Silent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_refused_after_5_seconds() {
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .service(server(&Arc::default()));
    let start = tokio::time::Instant::now();
    let (response, _) = sent(&service, Request::post("/").body(Silent).unwrap()).await;
    assert_eq!(
        (response.status().as_u16(), start.elapsed()),
        (400, Duration::from_secs(5))
    );
    let get = Request::get("/").body(Full::<Bytes>::default()).unwrap();
    let others = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .service(server(&Arc::default()));
    assert_eq!(sent(&others, get).await.0.status(), 200);
}
