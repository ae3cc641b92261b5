//! Rules for calls of MCP, with the calls in bodies.

use http::{Request, Response};
use testkit::now;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_ratelimit::{
    mcp::McpBodyLayer,
    rules::{Format, Rules, RulesLayer},
};

use crate::layer::Ruled;

const CALL: &str = r#"{"id":1,"method":"tools/call","params":{"name":"search"}}"#;
const ANSWER: &str = r#"{"id":1,"result":{}}"#;

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

/// A skipped key spares no other rule.
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

const DRAW: &str = r#"{"id":1,"method":"tools/call","params":{"name":"draw"}}"#;

fn batch(calls: &[&str]) -> String {
    format!("[{}]", calls.join(","))
}

/// The rules, and the statuses of batches, in their order.
fn assert_statuses(text: &str, expected: &[(&[&str], u16)]) {
    let rules = Ruled::yaml(&format!("rules: [{text}]"));
    for (at, (calls, expected)) in expected.iter().enumerate() {
        let status = status(&rules, "POST", "a", &batch(calls));
        assert_eq!(status, *expected, "{at} of {text}");
    }
}

#[test]
fn batch_costs_its_calls_or_nothing() {
    let by_tool = "{name: tools, key: [{header: x-user}, mcp_tool], quota: 2/day}";
    let twice = [(&[CALL, CALL, CALL][..], 429), (&[CALL, CALL], 200)];
    assert_statuses(by_tool, &twice);
    assert_statuses(
        by_tool,
        &[
            (&[DRAW, CALL], 200),
            (&[DRAW, CALL], 200),
            (&[ANSWER], 200),
            (&[CALL, ANSWER], 429),
        ],
    );
    // A limit of one tool counts its calls alone.
    let draw = "{name: draw, match: {mcp: {tool: draw}}, key: {header: x-user}, quota: 2/day}";
    assert_statuses(
        draw,
        &[
            (&[CALL, DRAW, CALL], 200),
            (&[DRAW, DRAW], 429),
            (&[CALL, CALL], 200),
            (&[DRAW], 200),
        ],
    );
    let others = draw.replace("{mcp: {tool: draw}}", "{not: {mcp: {tool: draw}}}");
    assert_statuses(
        &others,
        &[
            (&[DRAW, DRAW, DRAW, CALL], 200),
            (&[CALL, CALL], 429),
            (&[CALL], 200),
        ],
    );
    // All of a client's calls, beside it: charged together, or not.
    let all = format!("{draw}, {{name: all, key: {{header: x-user}}, quota: 5/day}}");
    assert_statuses(
        &all,
        &[
            (&[DRAW, CALL, CALL, CALL, CALL, CALL], 429),
            (&[DRAW, DRAW, CALL], 200),
            (&[CALL, DRAW], 429),
            (&[CALL, CALL], 200),
            (&[CALL], 429),
        ],
    );
    let costs = format!("{}, cost: 2}}", by_tool.trim_end_matches('}'));
    assert_statuses(&costs, &[(&[CALL, CALL], 429), (&[CALL, DRAW], 200)]);
}

/// Without a rule by calls they are not needed.
#[test]
fn batch_is_one_request_for_rules_of_requests() {
    let rules = "{name: all, key: {header: x-user}, quota: 1/day}";
    assert_statuses(rules, &[(&[CALL, CALL], 200), (&[CALL], 429)]);
}

#[test]
fn one_call_of_a_batch_refuses_all_and_exempts_itself_alone() {
    let all = "{name: all, key: {header: x-user}, quota: 2/day}";
    let deny = format!("{{name: no, match: {{mcp: {{tool: draw}}}}, action: deny}}, {all}");
    assert_statuses(&deny, &[(&[CALL, DRAW], 403), (&[CALL, CALL], 200)]);
    let allow = format!("{{name: free, match: {{mcp: {{tool: draw}}}}, action: allow}}, {all}");
    assert_statuses(
        &allow,
        &[
            (&[DRAW, CALL, DRAW], 200),
            (&[CALL, CALL], 429),
            (&[DRAW, DRAW], 200),
        ],
    );
    let shadow = "{name: a, key: mcp_tool, quota: 1/day, mode: shadow}";
    assert_statuses(shadow, &[(&[CALL, CALL], 200), (&[CALL, DRAW], 200)]);
    let overflow = format!("{{name: a, key: mcp_tool, quota: 1/day, action: overflow}}, {all}");
    assert_statuses(&overflow, &[(&[CALL, DRAW], 200), (&[CALL, DRAW], 429)]);
}

/// The refund of each call is that of its own charge.
#[test]
fn batch_whose_response_does_not_count_is_refunded() {
    let rules = Ruled::yaml(
        "rules:
  - {name: tools, key: [{header: x-user}, mcp_tool], quota: 3/day fixed_window, count_if: {status: 500}}",
    );
    for _ in 0..3 {
        let calls = batch(&[CALL, CALL, CALL, DRAW]);
        assert_eq!(status(&rules, "POST", "a", &calls), 200);
    }
}

/// For any method and spelling of a path, unless an earlier rule certainly ends the list.
#[test]
fn bodies_are_read_that_a_rule_by_calls_may_concern() {
    let tools = "{name: tools, match: {path: /mcp}, key: mcp_tool, quota: 1/day}";
    let draws = "{name: draws, match: {mcp: {tool: draw}}, quota: 1/day}";
    let free = "{name: free, match: {mcp: {method: ping}}, action: allow}";
    let others = "{name: others, match: {path: /mcp, not: {mcp: {tool: draw}}}, quota: 1/day}";
    let ends = "{name: ends, match: {path: /mcp, header: {x-a: b}}, action: allow}";
    let json = ("content-type", "application/json; charset=utf-8");
    let of_others = ("x-a", "c");
    for (rules, method, path, field, expected) in [
        (tools, "POST", "/mcp", of_others, true),
        (tools, "PUT", "/mcp", of_others, true),
        (tools, "POST", "//%6dcp", of_others, true),
        (tools, "GET", "/mcp", json, false),
        (tools, "DELETE", "/mcp", json, false),
        (tools, "POST", "/other", json, false),
        (draws, "POST", "/other", of_others, false),
        (
            draws,
            "POST",
            "/other",
            ("content-type", "text/plain"),
            false,
        ),
        (draws, "POST", "/other", json, true),
        (draws, "POST", "/other", ("mcp_name", "search"), true),
        (free, "POST", "/other", ("mcp-method", "tools/list"), true),
        (others, "POST", "/mcp", ("mcp-name", "draw"), true),
        ("{name: all, quota: 1/day}", "POST", "/mcp", json, false),
        (
            &format!("{ends}, {tools}"),
            "POST",
            "/mcp",
            ("x-a", "b"),
            false,
        ),
        (&format!("{ends}, {tools}"), "POST", "/mcp", of_others, true),
        (
            &format!("{tools}, {ends}"),
            "POST",
            "/mcp",
            ("x-a", "b"),
            true,
        ),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header(field.0, field.1)
            .body(())
            .expect("a request");
        let text = format!("rules: [{rules}]");
        let rules = Rules::builder().parse(&text, Format::Yaml).expect("rules");
        let needs = RulesLayer::new(rules).handle();
        let needs = needs.needs_call(&request.into_parts().0);
        assert_eq!(needs, expected, "{method} {path} {field:?} by {text}");
    }
}
