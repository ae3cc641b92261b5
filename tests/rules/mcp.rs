//! Rules for calls of MCP, with the calls in bodies.

use http::{Request, Response};
use testkit::now;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_ratelimit::mcp::McpBodyLayer;

use crate::layer::Ruled;

const CALL: &str = r#"{"id":1,"method":"tools/call","params":{"name":"search"}}"#;
const ANSWER: &str = r#"{"id":1,"result":{}}"#;
const BATCH: &str = r#"[{"id":1,"method":"ping"},{"id":2,"method":"tools/list"}]"#;

/// The status of a request of this user.
fn status(rules: &Ruled, method: &str, user: &str, body: &str) -> u16 {
    let service = ServiceBuilder::new()
        .layer(McpBodyLayer::default())
        .layer(rules.layer.clone())
        .service(service_fn(async |_| {
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }));
    let request = Request::builder().method(method).uri("/mcp");
    let request = request.header("x-user", user).body(body.to_owned());
    let response = now(service.oneshot(request.expect("a request")));
    response.expect("a response").status().as_u16()
}

#[test]
fn what_calls_nothing_is_counted_by_no_key_of_tools() {
    for on_missing_key in ["share", "reject", "skip"] {
        let rules = Ruled::yaml(&format!(
            "rules:
  - {{name: tools, match: {{path: /mcp}}, key: [{{header: x-user}}, mcp_tool], quota: 2/minute, on_missing_key: {on_missing_key}}}"
        ));
        for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
            let statuses = ["a"; 3].map(|user| status(&rules, method, user, ""));
            assert_eq!(statuses, [200; 3], "{method} {on_missing_key}");
        }
        let statuses = ["a"; 3].map(|user| status(&rules, "POST", user, ANSWER));
        assert_eq!(statuses, [200; 3], "{on_missing_key}");
        assert_eq!(status(&rules, "GET", "b", ""), 200);
        let statuses = ["a"; 3].map(|user| status(&rules, "POST", user, CALL));
        assert_eq!(statuses, [200, 200, 429], "{on_missing_key}");
    }
}

/// What is skipped spares no other rule.
#[test]
fn a_key_of_tools_replaces_no_rule_for_what_calls_nothing() {
    let rules = Ruled::yaml(
        "rules:
  - {name: all, key: {header: x-user}, quota: 1/minute}
  - {name: tools, key: [{header: x-user}, mcp_tool], quota: 9/minute, replaces: [all]}",
    );
    let statuses = ["a"; 2].map(|user| status(&rules, "GET", user, ""));
    assert_eq!(statuses, [200, 429]);
    let statuses = ["b"; 2].map(|user| status(&rules, "POST", user, CALL));
    assert_eq!(statuses, [200, 200]);
}

#[test]
fn rules_by_calls_reject_batches() {
    for (rule, expected) in [
        ("key: mcp_tool", 400),
        ("key: mcp_tool, on_missing_key: skip", 400),
        ("key: {header: x-user}, match: {mcp: {tool: draw}}", 400),
        (
            "key: {header: x-user}, match: {mcp: {tool: draw}}, on_missing_key: skip",
            400,
        ),
        (
            "key: {header: x-user}, match: {not: {mcp: {tool: draw}}}",
            400,
        ),
        ("key: mcp_tool, mode: shadow", 200),
        ("key: mcp_tool, match: {path: /other}", 200),
        ("key: {header: x-user}", 200),
    ] {
        let rules = Ruled::yaml(&format!("rules: [{{name: a, {rule}, quota: 1/s}}]"));
        assert_eq!(status(&rules, "POST", "a", BATCH), expected, "{rule}");
        assert_eq!(status(&rules, "POST", "b", CALL), 200, "{rule}");
    }
}
