//! Limits by tool in front of an MCP server that does not compare the fields with the body.

use http_body_util::BodyExt as _;
use serde_json::Value;
use testkit::{needs, servers::Server};

use crate::{
    gateway_process::{Gateway, bounded},
    http2,
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
};

const RULES: &str = "rules:
  - {name: images, match: {path: /mcp, mcp: {tool: draw}}, key: client_ip, quota: 2/day}
  - {name: tools, match: {path: /mcp}, key: [client_ip, mcp_tool], quota: 3/day}
  - {name: calls, match: {path: /mcp, method: POST}, key: client_ip, quota: 9/day}
";

/// The fields of calls of `draw` and of `search`.
const DRAW: &str = "mcp-method: tools/call\nmcp-name: =?base64?ZHJhdw==?=";
const SEARCH: &str = "mcp-method: tools/call\nmcp-name: search";

fn call(tool: &str) -> String {
    format!(r#"{{"id":"a-1","method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

/// The answer to a POST with these lines and this body.
async fn post(gateway: &Gateway, lines: &str, body: &str) -> (Head, String) {
    let mut wire = gateway.connect().await;
    send(&mut wire, "/mcp", lines, body).await;
    wire.message().await.expect("an answer")
}

async fn send(wire: &mut Wire, path: &str, lines: &str, body: &str) {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\nhost: test\ncontent-length: {length}\n{lines}");
    wire.request(head.trim_end()).await;
    wire.send(body).await;
}

/// The code and the id of an answer that is an error of JSON-RPC.
fn error(answer: &(Head, String)) -> (u16, i64, Value) {
    let (head, body) = answer;
    assert_eq!(head.field("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(body).expect("JSON");
    let code = body["error"]["code"].as_i64();
    (head.status(), code.expect("an error"), body["id"].clone())
}

#[tokio::test]
async fn calls_are_limited_by_the_tool_in_their_body() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        // With the fields, without, and with one.
        for lines in [DRAW, ""] {
            assert_eq!(post(&gateway, lines, &call("draw")).await.0.status(), 200);
        }
        let denied = post(&gateway, "mcp-method: tools/call", &call("draw")).await;
        assert_eq!(error(&denied), (429, -32_029, "a-1".into()));
        let data: Value = serde_json::from_str(&denied.1).unwrap();
        let data = &data["error"]["data"];
        assert_eq!(data["policy"], "images");
        assert!(data["retryAfterMs"].as_u64() > Some(0), "{data}");
        assert!(denied.0.field("retry-after").is_some());
        let limits = denied.0.field("ratelimit").unwrap();
        assert!(limits.contains("\"images\";r=0"), "{limits}");
        for _ in 0..3 {
            assert_eq!(
                post(&gateway, SEARCH, &call("search")).await.0.status(),
                200
            );
        }
        let denied = post(&gateway, "", &call("search")).await;
        assert_eq!(error(&denied).0, 429);
        // Names that no tool has: each is a key, and the client still meets the limit of all its calls.
        let mut statuses = Vec::new();
        for tool in ["a", "b", "c", "d", "e"] {
            statuses.push(post(&gateway, "", &call(tool)).await.0.status());
        }
        assert_eq!(statuses, [200, 200, 200, 200, 429]);
        // A request without a call passes uncounted, without a wait for its body.
        for method in ["GET", "DELETE"] {
            let mut wire = gateway.connect().await;
            let (head, _) = wire.answer(&format!("{method} /mcp HTTP/1.1")).await;
            assert_eq!((head.status(), head.field("ratelimit")), (200, None));
        }
        let (head, _) = post(&gateway, "", r#"{"id":1,"result":{}}"#).await;
        assert_eq!(head.status(), 429, "`calls` counts all requests");
    })
    .await;
}

#[tokio::test]
async fn header_that_differs_from_the_body_is_refused_uncounted() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let long = call(&"x".repeat(64 << 10));
        let encoded = format!("{DRAW}\ncontent-encoding: gzip");
        for (lines, body, id) in [
            (SEARCH, call("draw"), "a-1".into()),
            ("mcp-method: tools/list", call("draw"), "a-1".into()),
            (
                "content-type: text/plain\nmcp-name: x",
                call("draw"),
                "a-1".into(),
            ),
            (
                DRAW,
                format!("[{},{}]", call("draw"), call("search")),
                Value::Null,
            ),
            (&encoded, call("draw"), Value::Null),
            ("", "tool=draw".to_owned(), Value::Null),
            ("", String::new(), Value::Null),
            ("", "[]".to_owned(), Value::Null),
            ("", long.clone(), Value::Null),
        ] {
            let refused = post(&gateway, lines, &body).await;
            assert_eq!(error(&refused), (400, -32_020, id), "{lines} {body:.80}");
        }
        // Longer than it says at first.
        let mut wire = gateway.connect().await;
        let head = "POST /mcp HTTP/1.1\nhost: test\ntransfer-encoding: chunked";
        wire.request(head).await;
        wire.send(format!("{:x}\r\n{long}\r\n", long.len())).await;
        assert_eq!(error(&wire.message().await.unwrap()).0, 400);
        // A body that does not come.
        let mut wire = gateway.connect().await;
        wire.request("POST /mcp HTTP/1.1\nhost: test\ncontent-length: 9")
            .await;
        assert_eq!(
            error(&wire.message().await.unwrap()),
            (400, -32_020, Value::Null)
        );
        assert!(upstream.requests().is_empty());
        let (head, _) = post(&gateway, "", &call("draw")).await;
        let limits = head.field("ratelimit").unwrap();
        assert!(limits.contains("\"calls\";r=8"), "{limits}");
    })
    .await;
}

#[tokio::test]
async fn batch_costs_its_calls_or_nothing() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        batches(&gateway).await;
    })
    .await;
}

#[tokio::test]
async fn batch_costs_its_calls_or_nothing_in_redis() {
    needs!(redis);
    bounded(async {
        let (server, upstream) = (Server::start().await, Upstream::start().await);
        let options = ["--redis", &server.url()];
        let rules = RULES.replace("/day", "/day fixed_window");
        let gateway = Gateway::start_with(&rules, upstream.port, &options).await;
        batches(&gateway).await;
    })
    .await;
}

async fn batches(gateway: &Gateway) {
    let batch = async |tools: &[&str]| {
        let calls: Vec<_> = tools.iter().map(|tool| call(tool)).collect();
        post(gateway, "", &format!("[{}]", calls.join(","))).await
    };
    let (head, _) = batch(&["draw", "search", "search"]).await;
    assert_eq!(head.status(), 200);
    // The fields are those of the tool with less left.
    let limits = head.field("ratelimit").unwrap();
    let shown = limits
        .split(", ")
        .map(|item| item.split(";t").next().unwrap());
    let shown: Vec<_> = shown.collect();
    assert_eq!(shown, ["\"images\";r=1", "\"tools\";r=1", "\"calls\";r=6"]);
    let policies = head.field("ratelimit-policy").unwrap();
    assert_eq!(policies.matches("tools").count(), 1, "{policies}");
    // One of `draw` is left, and one of `search`.
    for tools in [&["search", "draw", "draw"][..], &["search", "a", "search"]] {
        let denied = batch(tools).await;
        assert_eq!(error(&denied), (429, -32_029, Value::Null), "{tools:?}");
    }
    let (head, _) = batch(&["search", "draw"]).await;
    assert_eq!(head.status(), 200);
    let limits = head.field("ratelimit").unwrap();
    assert!(limits.contains("\"calls\";r=4"), "{limits}");
    assert_eq!(batch(&["a", "b", "c", "d", "e"]).await.0.status(), 429);
    assert_eq!(batch(&["a", "b", "c", "d"]).await.0.status(), 200);
}

#[tokio::test]
async fn upstream_receives_the_bytes_of_the_client() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let body = format!("\r\n {}\n", call("öl").replace(':', " :\t"));
        assert_eq!(post(&gateway, "", &body).await.0.status(), 200);
        let mut wire = gateway.connect().await;
        let head =
            "POST /mcp HTTP/1.1\nhost: test\ntransfer-encoding: chunked\nexpect: 100-continue";
        wire.request(head).await;
        assert_eq!(wire.head().await.unwrap().status(), 100);
        for part in body.as_bytes().chunks(7) {
            wire.send(format!("{:x}\r\n", part.len())).await;
            wire.send(part).await;
            wire.send("\r\n").await;
        }
        wire.send("0\r\n\r\n").await;
        assert_eq!(wire.message().await.unwrap().0.status(), 200);
        let mut sender = http2::connect(&gateway).await;
        let sent = http_body_util::Full::from(body.clone()).map_err(|never| match never {});
        let request = http2::request(&gateway, "POST", "/mcp").body(sent.boxed_unsync());
        assert_eq!(
            sender
                .send_request(request.unwrap())
                .await
                .unwrap()
                .status(),
            200
        );
        let requests = upstream.requests();
        let bodies: Vec<_> = requests.iter().map(|(_, body)| body.as_str()).collect();
        assert_eq!(bodies, [&body; 3]);
    })
    .await;
}

/// Bodies on paths that no such rule has, bodies of other types if such a rule has no path, and all without such rules.
#[tokio::test]
async fn bodies_of_others_stream() {
    bounded(async {
        let upstream = Upstream::start().await;
        let without_path = "rules: [{name: a, match: {mcp: {tool: draw}}, quota: 9/day}]";
        let without_calls = "rules: [{name: a, match: {path: /**}, quota: 9/day}]";
        for (rules, kind) in [
            (RULES, "application/json"),
            (without_path, "application/octet-stream"),
            (without_calls, "application/json"),
        ] {
            let gateway = Gateway::start_with(rules, upstream.port, &[]).await;
            let mut wire = gateway.connect().await;
            wire.request(&format!(
                "POST /done HTTP/1.1\nhost: test\ncontent-type: {kind}\ntransfer-encoding: chunked"
            ))
            .await;
            wire.send("1\r\n[\r\n").await;
            // The response comes before the rest.
            let head = wire.head().await.unwrap();
            assert_eq!(head.status(), 200, "{kind}");
            // A server may take it for a call.
            assert_eq!(head.field("ratelimit").is_some(), rules != RULES, "{kind}");
        }
        let gateway = Gateway::start_with(without_path, upstream.port, &[]).await;
        for lines in ["content-type: application/json", DRAW] {
            let refused = post(&gateway, lines, "1").await;
            assert_eq!(error(&refused).0, 400, "{lines}");
        }
    })
    .await;
}

#[tokio::test]
async fn response_to_a_call_streams() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("/mcp", "/events");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        send(&mut wire, "/events", "", &call("draw")).await;
        assert_eq!(wire.head().await.unwrap().status(), 200);
        assert_eq!(wire.chunk().await.unwrap().unwrap(), b"data: one\n\n");
    })
    .await;
}

#[tokio::test]
async fn client_has_at_most_sixteen_calls_that_wait_for_their_body() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let mut wires = Vec::new();
        for _ in 0..17 {
            let mut wire = gateway.connect().await;
            wire.request("POST /mcp HTTP/1.1\nhost: test\ncontent-length: 2")
                .await;
            wires.push(wire);
        }
        let mut statuses = Vec::new();
        for wire in &mut wires {
            statuses.push(wire.head().await.unwrap().status());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [[400; 16].as_slice(), &[429]].concat());
        // They are counted nowhere.
        let (head, _) = post(&gateway, "", &call("draw")).await;
        let limits = head.field("ratelimit").unwrap();
        assert!(limits.contains("\"calls\";r=8"), "{limits}");
    })
    .await;
}
