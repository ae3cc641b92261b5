//! Limits of calls: rejections and batches.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use testkit::{field, fields, limiter, now};
use tower::{Layer, ServiceBuilder};
use tower_ratelimit::{
    Global, Header, Key, Limiter, LocalLimiter, Quota, RateLimitLayer,
    limiter::Tier,
    mcp::{Mcp, McpBodyLayer, McpLayer},
};

use crate::{json, post, sent, server};

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":"a-1","method":"tools/call","params":{"name":"search"}}"#;

fn tool(name: &str) -> Key {
    Key::tuple([Key::from("tools/call"), Key::from(name)])
}

fn left(limiter: &LocalLimiter, key: &Key) -> Option<u64> {
    limiter.peek(key, 1).remaining()
}

fn by_tool(quota: Quota) -> (McpLayer, LocalLimiter) {
    let (limiter, _) = limiter(quota);
    let layer = RateLimitLayer::new(limiter.clone(), Mcp::tool()).mcp();
    (layer, limiter)
}

#[test]
fn a_denial_is_an_error_of_json_rpc_with_the_usual_fields() {
    let (layer, _) = by_tool(Quota::per_minute(1).named("searches"));
    let fields = [("mcp-method", "tools/call"), ("mcp-name", "search")];
    let header = layer.layer(server(&Arc::default()));
    assert_eq!(now(sent(&header, post(&fields, CALL))).0.status(), 200);
    let (response, body) = now(sent(&header, post(&fields, CALL)));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "content-type"), Some("application/json"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(field(&response, "retry-after"), Some("60"));
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""searches";q=1;w=60"#)
    );
    let error = |id: Value| {
        json!({"jsonrpc": "2.0", "id": id, "error": {
            "code": -32029, "message": "Too Many Requests",
            "data": {"retryAfterMs": 60_000, "policy": "searches"},
        }})
    };
    assert_eq!(json(&body), error(Value::Null));

    let both = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&Arc::default()));
    let (_, body) = now(sent(&both, post(&[], CALL)));
    assert_eq!(json(&body), error("a-1".into()));
}

#[test]
fn ids_come_back_as_they_were_sent() {
    let (layer, _) = by_tool(Quota::per_minute(1));
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&Arc::default()));
    let long = format!("\"{}\"", "i".repeat(300));
    let cases = [
        ("7", "7"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.50", "1.50"),
        (r#""\u0041\"""#, r#""\u0041\"""#),
        ("null", "null"),
        ("{}", "null"),
        ("[1]", "null"),
        ("true", "null"),
        (&long, "null"),
    ];
    for (id, expected) in cases {
        let call = format!(r#"{{"id": {id} ,"method":"ping"}}"#);
        let (_, body) = [(); 2]
            .map(|()| now(sent(&service, post(&[], &call))))
            .into_iter()
            .next_back()
            .unwrap();
        let prefix = format!(r#"{{"jsonrpc":"2.0","id":{expected},"error":"#);
        let text = str::from_utf8(&body).unwrap();
        assert!(text.starts_with(&prefix), "{text}");
    }
}

#[test]
fn what_calls_nothing_passes_uncounted_and_notifications_count() {
    let (layer, limiter) = by_tool(Quota::per_minute(5));
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&Arc::default()));
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}]"#,
    ] {
        let (response, _) = now(sent(&service, post(&[], body)));
        assert_eq!(response.status(), 200);
        assert_eq!(field(&response, "ratelimit"), None);
    }
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        let request = Request::builder().method(method).body("".into()).unwrap();
        let (response, _) = now(sent::<_, Full<Bytes>>(&service, request));
        assert_eq!(response.status(), 200, "{method}");
        assert_eq!(field(&response, "ratelimit"), None);
    }
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
    let (response, _) = now(sent(&service, post(&[], notification)));
    assert!(field(&response, "ratelimit").is_some());
    let key = Key::tuple([Key::from("notifications/cancelled")]);
    assert_eq!(left(&limiter, &key), Some(4));
}

#[test]
fn deny_lists_apply_to_what_calls_nothing() {
    let user = || Header::new("x-user");
    let quota = Quota::per_minute(9);
    let by_request = RateLimitLayer::new(quota, user())
        .deny(|parts| parts.headers.contains_key("x-banned"))
        .mcp();
    let by_key = RateLimitLayer::all([
        quota.named("tool").by((user(), Mcp::tool())),
        quota.named("user").by(user()),
    ])
    .deny_key(|key| *key == Key::from("banned"))
    .mcp();
    assert_eq!(status_of_get(&by_request, "x-banned", "1"), 403);
    assert_eq!(status_of_get(&by_request, "x-user", "a"), 200);
    assert_eq!(status_of_get(&by_key, "x-user", "banned"), 403);
    assert_eq!(status_of_get(&by_key, "x-user", "a"), 200);
}

fn status_of_get<L: Limiter>(layer: &McpLayer<L>, name: &str, value: &str) -> u16 {
    let request = Request::get("/mcp").header(name, value);
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let service = layer.layer(server(&Arc::default()));
    now(sent(&service, request)).0.status().as_u16()
}

#[test]
fn without_its_body_a_post_without_fields_counts() {
    let (layer, limiter) = by_tool(Quota::per_minute(2));
    let service = layer.layer(server(&Arc::default()));
    let statuses = [(); 3].map(|()| now(sent(&service, post(&[], CALL))).0.status().as_u16());
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(left(&limiter, &Key::from("unreadable")), Some(0));
}

fn batch(names: &[&str]) -> String {
    let call = |name| format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
    let calls: Vec<_> = names.iter().map(call).collect();
    format!(r#"[{},{{"id":9,"result":1}}]"#, calls.join(","))
}

#[test]
fn a_batch_charges_the_key_of_each_call_or_none() {
    let (layer, limiter) = by_tool(Quota::per_minute(3).named("calls"));
    let calls = Arc::default();
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&calls));
    let of = |names: &[&str]| now(sent(&service, post(&[], &batch(names))));
    let lefts = || ["a", "b", "c"].map(|name| left(&limiter, &tool(name)).unwrap());

    let (response, _) = of(&["a", "b", "a"]);
    assert_eq!((response.status().as_u16(), lefts()), (200, [1, 2, 3]));
    assert_eq!(fields(&response, "ratelimit-policy").len(), 1);
    // Two more of `a` are too many, wherever they stand.
    for names in [["c", "a", "a"], ["a", "a", "c"], ["a", "c", "a"]] {
        let (response, body) = of(&names);
        assert_eq!(
            (response.status().as_u16(), lefts()),
            (429, [1, 2, 3]),
            "{names:?}"
        );
        let body = json(&body);
        assert_eq!(body["id"], Value::Null);
        assert_eq!(body["error"]["code"], -32029);
        assert!(field(&response, "retry-after").is_some());
        assert_eq!(
            fields(&response, "ratelimit-policy"),
            [r#""calls";q=3;w=60"#]
        );
    }
    assert_eq!(calls.load(Relaxed), 1);
    let (response, _) = of(&["a", "b"]);
    assert_eq!((response.status().as_u16(), lefts()), (200, [0, 1, 3]));
}

#[test]
fn a_batch_costs_its_number_of_calls_by_any_key() {
    let (by_all, _) = limiter(Quota::per_minute(10));
    let layer = RateLimitLayer::new(by_all.clone(), Global)
        .cost(|_| 2)
        .mcp();
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&Arc::default()));
    let statuses = [(); 2].map(|()| {
        let request = post(&[], &batch(&["a", "a", "b"]));
        now(sent(&service, request)).0.status().as_u16()
    });
    assert_eq!(statuses, [200, 429]);
    assert_eq!(left(&by_all, &Key::global()), Some(4));
}

#[test]
fn a_response_settles_each_call_of_a_batch() {
    let (limiter, _) = limiter(Quota::per_minute(10));
    let layer = RateLimitLayer::new(limiter.clone(), Mcp::tool())
        .count_if(|response| response.status != StatusCode::OK)
        .mcp();
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&Arc::default()));
    let (response, _) = now(sent(&service, post(&[], &batch(&["a", "b", "b"]))));
    assert_eq!(response.status(), 200);
    for name in ["a", "b"] {
        assert_eq!(left(&limiter, &tool(name)), Some(10));
    }
}

#[test]
fn a_batch_is_refused_by_a_layer_of_one_call() {
    let (limiter, _) = limiter(Quota::per_minute(10));
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(RateLimitLayer::new(limiter, Mcp::tool()))
        .service(server(&Arc::default()));
    let status = |body: &str| now(sent(&service, post(&[], body))).0.status().as_u16();
    assert_eq!(status(CALL), 200);
    assert_eq!(status(&batch(&["a", "b"])), 400);
}

#[test]
fn fields_of_a_batch_are_those_of_its_last_call_that_counts() {
    let (limiter, _) = limiter(Quota::per_minute(9).named("a"));
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .skip(|parts| !Mcp::may_call(parts, "a"))
        .mcp();
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer)
        .service(server(&Arc::default()));
    let shown = |names: &[&str]| {
        let (response, _) = now(sent(&service, post(&[], &batch(names))));
        let fields = fields(&response, "ratelimit").join(" ");
        fields.split(";t=").next().map(str::to_owned).unwrap()
    };
    assert_eq!(shown(&["b", "b"]), "");
    assert_eq!(shown(&["b", "a"]), r#""a";r=8"#);
    assert_eq!(shown(&["a", "b"]), r#""a";r=7"#);
    assert_eq!(shown(&["b", "a", "a", "b", "b"]), r#""a";r=5"#);
    assert_eq!(left(&limiter, &Key::global()), Some(5));
    // A call whose tier has no limit does not count either.
    let by_tier = RateLimitLayer::new(limiter.clone(), Global)
        .tier(|parts| {
            if Mcp::may_call(parts, "a") {
                Tier::DEFAULT
            } else {
                Tier::UNLIMITED
            }
        })
        .mcp();
    let by_tier = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(by_tier)
        .service(server(&Arc::default()));
    let (response, _) = now(sent(&by_tier, post(&[], &batch(&["a", "b"]))));
    assert_eq!(fields(&response, "ratelimit").len(), 1);
    limiter.reset(&Key::global());
    assert_eq!(shown(&["a", "a", "a", "a"]), r#""a";r=5"#);
    // The calls behind the one that is denied do not count: its denial refunds the ones in front of it.
    let (response, _) = now(sent(
        &service,
        post(&[], &batch(&["a", "a", "a", "a", "a", "a", "b"])),
    ));
    assert_eq!(response.status(), 429);
    assert_eq!(fields(&response, "ratelimit").len(), 1);
    assert_eq!(left(&limiter, &Key::global()), Some(5));
}

#[test]
fn a_limit_of_one_tool_counts_its_calls_in_batches_and_what_cannot_be_read() {
    let (limiter, _) = limiter(Quota::per_minute(9));
    let layer = RateLimitLayer::new(limiter.clone(), Global)
        .skip(|parts| !Mcp::may_call(parts, "a"))
        .mcp();
    let read = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(layer.clone())
        .service(server(&Arc::default()));
    let used = || 9 - left(&limiter, &Key::global()).unwrap();
    for (body, expected) in [
        (&*batch(&["a", "b", "a"]), 2),
        (&*batch(&["b", "b"]), 2),
        (CALL, 2),
        (r#"{"method":"prompts/get","params":{"name":"a"}}"#, 2),
        (r#"{"id":1,"result":{}}"#, 2),
        (&CALL.replace("search", "a"), 3),
    ] {
        assert_eq!(now(sent(&read, post(&[], body))).0.status(), 200);
        assert_eq!(used(), expected, "{body}");
    }
    let unread = layer.layer(server(&Arc::default()));
    for (fields, expected) in [
        (&[("mcp-method", "tools/call"), ("mcp-name", "a")][..], 4),
        (&[("mcp-method", "tools/call"), ("mcp-name", "b")], 4),
        (
            &[("mcp-method", "tools/call"), ("mcp-name", "=?base64?*?=")],
            5,
        ),
        (&[], 6),
    ] {
        now(sent(&unread, post(fields, CALL)));
        assert_eq!(used(), expected, "{fields:?}");
    }
}
