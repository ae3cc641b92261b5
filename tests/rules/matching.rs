//! Which requests a rule is about, field by field; and which rules of several apply.

use std::net::IpAddr;

use axum::extract::MatchedPath;
use http::request::Parts;
use tower_ratelimit::{
    Key,
    clock::Timestamp,
    key::extension_fn,
    rules::{Format, RuleReason, Rules, RulesOutcome},
};

use crate::request_builders::{NOON, applied, at, explain, from, reason, request, yaml};

fn rules(text: &str) -> Rules {
    yaml(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Rules of one match each, named by letters.
fn of_matches(matches: &[&str]) -> Rules {
    let mut text = String::from("rules:\n");
    for (name, found) in ('a'..).zip(matches) {
        text += &format!("  - {{name: {name}, match: {{{found}}}, quota: 1/s}}\n");
    }
    rules(&text)
}

#[test]
fn methods() {
    let rules = of_matches(&["method: GET", "method: [post, PUT]", "method: PURGE"]);
    for (method, expected) in [
        ("GET", "a"),
        ("HEAD", "a"),
        ("POST", "b"),
        ("PUT", "b"),
        ("PURGE", "c"),
        ("TRACE", ""),
        ("OTHER", ""),
    ] {
        assert_eq!(
            applied(&rules, &format!("{method} /x"), &[]),
            expected,
            "{method}"
        );
    }
}

/// Some servers read `POSt` as POST: it evades no limit, and reaches no exemption.
#[test]
fn no_case_of_a_method_leads_around_its_rule() {
    let rules = rules(
        "rules:
  - {name: free, match: {method: GET, path: /free}, action: allow}
  - {name: shut, match: {method: DELETE}, action: deny}
  - {name: ends, match: {method: PUT}, quota: 1/s, stop: true}
  - {name: login, match: {method: [POST, PURGE]}, quota: 1/s}
  - {name: others, match: {not: {method: GET}}, quota: 1/s}
  - {name: all, quota: 100/s, cost: {method: {POST: 5}}}
",
    );
    for (line, expected) in [
        ("POST /x", "login others all"),
        ("POSt /x", "login others all"),
        ("post /x", "login others all"),
        ("pUrGe /x", "login others all"),
        ("GET /free", "free"),
        ("get /free", "others all"),
        ("Head /free", "others all"),
        ("GET /x", "all"),
        ("DELETE /x", "shut"),
        ("delete /x", "shut"),
        ("PUT /x", "ends"),
        ("put /x", "ends others all"),
    ] {
        assert_eq!(applied(&rules, line, &[]), expected, "{line}");
    }
    let why = explain(&rules, "get /free", &[]);
    assert_eq!(
        *reason(&why, "free"),
        RuleReason::Differs("method's spelling")
    );
    let charged = explain(&rules, "POSt /x", &[]);
    let all = charged.rules().last().and_then(|rule| rule.limit());
    assert_eq!(all.expect("a limit").cost, 5);
}

/// Servers that hand fields on as variables of CGI read `x_kind` and `x-kind` alike, and some end a parameter at `;`.
#[test]
fn no_other_reading_of_a_name_leads_around_its_rule() {
    let rules = rules(
        "rules:
  - {name: own, match: {header: {x-own: \"1\"}}, action: allow}
  - {name: plain, match: {header: {x-debug: false}, path: /plain}, action: allow}
  - {name: kind, match: {header: {x-kind: a}}, quota: 1/s}
  - {name: none, match: {header: {x-kind: false}}, quota: 1/s}
  - {name: snake, match: {header: {x_snake: a}}, quota: 1/s}
  - {name: login, match: {query: {action: login}}, quota: 1/s}
  - {name: some, match: {query: {action: true}}, quota: 1/s}
  - {name: others, match: {not: {query: {b: \"2\"}}}, quota: 1/s}
  - {name: all, quota: 9/s, cost: {header: {name: x-cost, max: 5}}}
",
    );
    for (path, headers, expected) in [
        ("/x", &[][..], "none others all"),
        ("/x", &[("x-kind", "a")], "kind others all"),
        ("/x", &[("x_kind", "a")], "kind none others all"),
        ("/x", &[("x-snake", "a")], "none snake others all"),
        ("/x", &[("X_Kind", "a"), ("x-kind", "b")], "kind others all"),
        ("/x", &[("x.kind", "a"), ("x-kind", "b")], "kind others all"),
        ("/x", &[("xkind", "a"), ("x-kinds", "a")], "none others all"),
        ("/x", &[("x-own", "1")], "own"),
        ("/x", &[("x_own", "1")], "none others all"),
        ("/x", &[("x-own", "1"), ("x_own", "2")], "none others all"),
        ("/plain", &[], "plain"),
        ("/plain", &[("x_debug", "1")], "none others all"),
        ("/x?a=1&action=login", &[], "none login some others all"),
        ("/x?a=1;action=login", &[], "none login some others all"),
        ("/x?action=login;a=1", &[], "none login some others all"),
        (
            "/x?action=out;action=l%6fgin",
            &[],
            "none login some others all",
        ),
        ("/x?a=1%3Baction=login", &[], "none others all"),
        ("/x?b=2", &[], "none all"),
        ("/x?a=1;b=2", &[], "none others all"),
        ("/x?b=2;c", &[], "none others all"),
        ("/x?a;c&b=2", &[], "none all"),
    ] {
        let found = applied(&rules, &format!("GET {path}"), headers);
        assert_eq!(found, expected, "{path} {headers:?}");
    }
    let charged = explain(&rules, "GET /x", &[("x_cost", "4"), ("x-cost", "1")]);
    let all = charged.rules().last().and_then(|rule| rule.limit());
    assert_eq!(all.expect("a limit").cost, 4);
}

/// The words of these fields have no case by their definition. An exemption needs the case of the file nevertheless.
#[test]
fn no_case_of_a_word_leads_around_its_rule() {
    let rules = rules(
        "rules:
  - {name: free, match: {path: /free, header: {upgrade: websocket}}, action: allow}
  - {name: sockets, match: {header: {upgrade: websocket}}, quota: 1/s}
  - {name: json, match: {header: {content-type: application/json*}}, quota: 1/s}
  - {name: bearer, match: {header: {authorization: \"Bearer *\"}}, quota: 1/s}
  - {name: own, match: {header: {x-kind: a}}, quota: 1/s}
",
    );
    for (path, name, value, expected) in [
        ("/x", "upgrade", "websocket", "sockets"),
        ("/x", "upgrade", "WebSocket", "sockets"),
        ("/x", "upgrade", "h2c", ""),
        ("/free", "upgrade", "websocket", "free"),
        ("/free", "upgrade", "WebSocket", "sockets"),
        (
            "/x",
            "content-type",
            "Application/JSON; charset=utf-8",
            "json",
        ),
        ("/x", "authorization", "bearer Abc", "bearer"),
        ("/x", "x-kind", "A", ""),
    ] {
        let found = applied(&rules, &format!("GET {path}"), &[(name, value)]);
        assert_eq!(found, expected, "{path} {name}: {value}");
    }
}

#[test]
fn hosts() {
    let rules = of_matches(&[
        "host: api.example.com",
        "host: \"*.example.com\"",
        "host: [\"[::1]\", 10.0.0.1]",
    ]);
    for (host, expected) in [
        ("api.example.com", "a b"),
        ("API.Example.com.:8443", "a b"),
        ("x.y.example.com", "b"),
        ("example.com", ""),
        ("evilexample.com", ""),
        ("[::1]:80", "c"),
        ("10.0.0.1", "c"),
        ("", ""),
    ] {
        assert_eq!(
            applied(&rules, "GET /x", &[("host", host)]),
            expected,
            "{host}"
        );
    }
    assert_eq!(applied(&rules, "GET /x", &[]), "");
    // Servers go by the authority or by a line of `Host`: for a limit any is enough.
    let apart = [("host", "api.example.com")];
    let authority = "GET http://x.example.com/x";
    assert_eq!(applied(&rules, authority, &apart), "a b");
    let two = [("host", "other"), ("host", "api.example.com")];
    assert_eq!(applied(&rules, "GET /x", &two), "a b");
}

#[test]
fn headers_and_queries() {
    let rules = of_matches(&[
        "header: {x-a: \"v*\"}",
        "header: {x-a: true}",
        "header: {x-a: false}",
        "header: {x-a: \"true\"}",
        "header: {X-A: [1.10, 0x10], x-b: y}",
        "query: {q: \"a b*\"}",
        "query: {q: false}",
        "header: {x-a: VALUE}, ignore_case: true",
    ]);
    let with = |headers: &[(&str, &str)]| applied(&rules, "GET /x?q", headers);
    assert_eq!(with(&[]), "c");
    assert_eq!(with(&[("x-a", "v1")]), "a b");
    assert_eq!(with(&[("x-a", "w"), ("x-a", " v ")]), "a b");
    assert_eq!(with(&[("x-a", "true")]), "b d");
    assert_eq!(with(&[("x-a", "value")]), "a b h");
    // The source text counts: 1.10 is no 1.1.
    assert_eq!(with(&[("x-a", "1.10"), ("x-b", "y")]), "b e");
    assert_eq!(with(&[("x-a", "1.1"), ("x-b", "y")]), "b");
    assert_eq!(with(&[("x-a", "0x10"), ("x-b", "z")]), "b");

    let no_header = |query: &str| applied(&rules, &format!("GET /x{query}"), &[]);
    assert_eq!(no_header("?q=a+b%21"), "c f");
    assert_eq!(no_header("?q=x&%71=a%20b"), "c f");
    assert_eq!(no_header("?p=1"), "c g");
}

#[test]
fn clients() {
    let rules = rules(
        "client_ip: {trust: [10.0.0.0/8]}\nrules:\n  - {name: a, match: {client: [203.0.113.0/24, \"2001:db8::/32\"]}, quota: 1/s}\n",
    );
    let applies = |peer: &str, forwarded: &str| {
        let headers = [("x-forwarded-for", forwarded)];
        rules
            .explain(&from(peer, "GET /x", &headers), NOON)
            .applied()
            .count()
            == 1
    };
    assert!(applies("203.0.113.9", "198.51.100.1"));
    assert!(applies("::ffff:203.0.113.9", ""));
    assert!(applies("10.1.2.3", "6.6.6.6, 203.0.113.9"));
    assert!(!applies("10.1.2.3", "203.0.113.9, 6.6.6.6"));
    assert!(applies("2001:db8:1::1", ""));
    let (parts, ()) = http::Request::get("/x")
        .body(())
        .expect("a request")
        .into_parts();
    let nobody = rules.explain(&parts, NOON);
    // It fits in doubt, and is answered as a request without a key: a deny must not pass unseen.
    assert_eq!(*nobody.outcome(), RulesOutcome::Rejected("a".into(), 500));
    let outcome = |rule: &str| {
        let text = format!("rules: [{{name: a, {rule}}}]");
        let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
        rules.explain(&parts, NOON).outcome().clone()
    };
    let unknown = RulesOutcome::Rejected("a".into(), 500);
    assert_eq!(
        outcome("match: {client: 203.0.113.0/24}, action: deny"),
        unknown
    );
    assert_eq!(
        outcome("match: {not: {client: 203.0.113.0/24}}, action: deny"),
        unknown
    );
    assert_eq!(
        outcome("match: {client: 203.0.113.0/24}, key: global, quota: 1/s, mode: shadow"),
        RulesOutcome::Bypassed
    );
    assert_eq!(
        outcome("match: {client: 203.0.113.0/24}, action: allow"),
        RulesOutcome::Bypassed
    );
    assert_eq!(
        outcome("match: {path: /y, client: 203.0.113.0/24}, action: deny"),
        RulesOutcome::Bypassed
    );
}

#[test]
fn networks_of_mapped_addresses_are_those_of_the_addresses() {
    let rules =
        rules("rules:\n  - {name: a, match: {client: \"::ffff:203.0.113.0/120\"}, action: deny}\n");
    let explanation = rules.explain(&from("203.0.113.9", "GET /x", &[]), NOON);
    assert_eq!(*explanation.outcome(), RulesOutcome::Denied("a".into()));
}

#[test]
fn truths_are_spelled_as_in_yaml() {
    for (spelling, there) in [("False", false), ("FALSE", false), ("True", true)] {
        let rules = rules(&format!(
            "rules:\n  - {{name: a, match: {{header: {{x-a: {spelling}}}}}, action: deny}}\n"
        ));
        assert_eq!(applied(&rules, "GET /", &[]), if there { "" } else { "a" });
        let with = applied(&rules, "GET /", &[("x-a", "1")]);
        assert_eq!(with, if there { "a" } else { "" });
    }
    for unclear in ["yes", "Off", "null", "~", "[true, a]"] {
        let text =
            format!("rules: [{{name: a, match: {{query: {{q: {unclear}}}}}, action: deny}}]");
        let fault = Rules::builder()
            .parse(text, Format::Yaml)
            .expect_err("a fault");
        assert_eq!(fault.problems()[0].code(), "R01", "{unclear}");
    }
    let quoted = rules("rules:\n  - {name: a, match: {query: {q: \"yes\"}}, action: deny}\n");
    assert_eq!(applied(&quoted, "GET /?q=yes", &[]), "a");
}

#[test]
fn routes_and_authentication() {
    let text = "rules:\n  - {name: a, match: {route: \"/users/{id}\"}, quota: 1/s, key: route}\n  - {name: b, match: {authenticated: true}, quota: 1/s, key: {custom: account}}\n  - {name: c, match: {authenticated: false}, quota: 1/s}\n";
    let builder = Rules::builder()
        .key(
            "account",
            extension_fn(|name: &String| Key::from(name.as_str())),
        )
        .authenticated(|parts: &Parts| parts.extensions.get::<String>().is_some());
    let rules = builder
        .parse(text, Format::Yaml)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut parts = request("GET /users/7", &[]);
    parts.extensions.insert("alice".to_owned());
    let explanation = rules.explain(&parts, NOON);
    assert_eq!(explanation.applied().collect::<Vec<_>>(), ["b"]);
    assert_eq!(
        explanation.rules()[1].limit().expect("a limit").key,
        Ok(Key::from("alice"))
    );
    assert_eq!(applied(&rules, "GET /users/7", &[]), "c");

    let unregistered = Rules::builder()
        .parse(text, Format::Yaml)
        .expect_err("a fault");
    let codes: Vec<_> = unregistered
        .problems()
        .iter()
        .map(|p| (p.code(), p.line()))
        .collect();
    assert_eq!(
        codes,
        [("R05", Some(3)), ("R05", Some(3)), ("R05", Some(4))]
    );
    let outside = Rules::builder()
        .outside_of_application(true)
        .parse(text, Format::Yaml);
    assert_eq!(outside.expect("no fault").len(), 3);
}

/// The route that axum matched is read where axum leaves it.
#[tokio::test]
async fn a_route_is_the_one_that_axum_matched() {
    use tower::ServiceExt;
    let rules = rules("rules: [{name: a, match: {route: \"/users/{id}\"}, quota: 1/s}]");
    let answer = move |matched: MatchedPath, request: axum::extract::Request| async move {
        let (mut parts, _) = request.into_parts();
        parts.extensions.insert(matched);
        rules.explain(&parts, NOON).applied().count().to_string()
    };
    let app = axum::Router::new()
        .route("/users/{id}", axum::routing::get(answer.clone()))
        .route("/other", axum::routing::get(answer));
    for (path, expected) in [("/users/7", "1"), ("/other", "0")] {
        let request = http::Request::get(path)
            .body(axum::body::Body::empty())
            .expect("a request");
        let response = app.clone().oneshot(request).await.expect("a response");
        let body = axum::body::to_bytes(response.into_body(), 10)
            .await
            .expect("a body");
        assert_eq!(body, expected, "{path}");
    }
}

#[test]
fn times_cross_midnight_in_their_zone() {
    let rules = of_matches(&[
        "time: {from: \"22:00\", to: \"02:00\", days: fri}",
        "time: {days: sat-sun}",
        "time: [{from: \"09:00\", to: \"09:01\"}, {from: \"23:59\"}]",
        "time: {from: \"22:00\", to: \"02:00\", days: fri, zone: \"-08:00\"}",
        "time: {days: [thu, sun-mon]}",
    ]);
    // Friday, 2026-11-20T00:00Z.
    let applied_at = |hours: u64, minutes: u64| {
        let now = Timestamp::from_secs(1_795_132_800 + hours * 3_600 + minutes * 60);
        at(&rules, now, "GET /x", &[])
            .applied()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(applied_at(0, 0), "");
    assert_eq!(applied_at(9, 0), "c");
    assert_eq!(applied_at(9, 1), "");
    assert_eq!(applied_at(21, 59), "");
    assert_eq!(applied_at(22, 0), "a");
    assert_eq!(applied_at(23, 59), "a c");
    // The day is that on which it began.
    assert_eq!(applied_at(24, 0), "a b");
    assert_eq!(applied_at(25, 59), "a b");
    assert_eq!(applied_at(26, 0), "b");
    assert_eq!(applied_at(30, 0), "b d");
    assert_eq!(applied_at(34, 0), "b");
    assert_eq!(applied_at(48, 0), "b e");
    assert_eq!(applied_at(72, 0), "e");
    assert_eq!(applied_at(96, 0), "");
    // Before the epoch nothing goes wrong.
    let early = at(&rules, Timestamp::from_secs(0), "GET /x", &[]);
    assert_eq!(early.applied().collect::<Vec<_>>(), ["e"]);
}

#[test]
fn not_negates_a_whole_match() {
    let rules = of_matches(&[
        "path: /a/**, not: {path: /a/b/**, method: GET}",
        "not: {not: {path: /a}}",
    ]);
    assert_eq!(applied(&rules, "GET /a/b", &[]), "");
    assert_eq!(applied(&rules, "POST /a/b", &[]), "a");
    assert_eq!(applied(&rules, "GET /a", &[]), "a b");
}

#[test]
fn stop_ends_the_list_and_replaced_rules_do_not() {
    let rules = rules(
        "rules:\n  - {name: special, match: {header: {x-s: true}}, quota: 1/s, replaces: [normal]}\n  - {name: normal, match: {path: /a}, quota: 1/s, stop: true}\n  - {name: last, quota: 1/s}\n",
    );
    assert_eq!(applied(&rules, "GET /a", &[]), "normal");
    assert_eq!(applied(&rules, "GET /a", &[("x-s", "1")]), "special last");
    assert_eq!(applied(&rules, "GET /b", &[]), "last");
    let explanation = explain(&rules, "GET /a", &[]);
    assert_eq!(
        *reason(&explanation, "last"),
        RuleReason::AfterEnd("normal".into())
    );
}

#[test]
fn chains_of_replacements_leave_all_but_the_first_out() {
    let rules = rules(
        "rules:\n  - {name: a, quota: 1/s}\n  - {name: b, quota: 1/s, replaces: a}\n  - {name: c, match: {path: /x}, quota: 1/s, replaces: b}\n",
    );
    assert_eq!(applied(&rules, "GET /x", &[]), "c");
    assert_eq!(applied(&rules, "GET /y", &[]), "b");
}

#[test]
fn keys() {
    type KeyCase<'c> = (&'c str, &'c [(&'c str, &'c str)], Key);
    let cases: &[KeyCase<'_>] = &[
        ("global", &[], Key::global()),
        (
            "peer_ip",
            &[("x-forwarded-for", "6.6.6.6")],
            Key::from(IpAddr::from([203, 0, 113, 7])),
        ),
        ("method", &[], Key::from("GET")),
        ("host", &[("host", "A.example:80")], Key::from("a.example")),
        ("route", &[], Key::from("")),
        (
            "bearer_token",
            &[("authorization", "Bearer t")],
            Key::digest(b"t"),
        ),
        (
            "basic_user",
            &[("authorization", "Basic YWxpY2U6eA==")],
            Key::digest(b"alice"),
        ),
        ("{header: x-t}", &[("x-t", "acme")], Key::from("acme")),
        (
            "{secret_header: x-t}",
            &[("x-t", "acme")],
            Key::digest(b"acme"),
        ),
        ("{cookie: s}", &[("cookie", "s=1")], Key::digest(b"1")),
        ("{query: q}", &[], Key::digest(b"7")),
        ("{path_param: id}", &[], Key::from("x")),
        (
            "[global, {path_param: id}]",
            &[],
            Key::tuple([Key::global(), Key::from("x")]),
        ),
        (
            "{first_of: [{header: x-t}, {header: x-u}, global]}",
            &[("x-u", "u")],
            Key::from("u"),
        ),
        ("{header: x-t}", &[], Key::anonymous()),
    ];
    for (key, headers, expected) in cases {
        let rules = rules(&format!(
            "rules: [{{name: a, match: {{path: \"/k/{{id}}\"}}, key: {key}, quota: 1/s}}]"
        ));
        let explanation = explain(&rules, "GET /k/x?q=7", headers);
        assert_eq!(
            explanation.rules()[0].limit().expect(key).key.as_ref(),
            Ok(expected),
            "{key}"
        );
    }
}

#[test]
fn a_missing_key_is_shared_rejected_or_skipped() {
    let outcome = |policy: &str, mode: &str, headers: &[(&str, &str)]| {
        let rules = rules(&format!(
            "defaults: {{on_missing_key: {policy}}}\nrules: [{{name: a, key: {{header: x-t}}, quota: 1/s, mode: {mode}}}]"
        ));
        explain(&rules, "GET /x", headers).outcome().clone()
    };
    let rejected = || RulesOutcome::Rejected("a".into(), 400);
    assert_eq!(outcome("share", "hard", &[]), RulesOutcome::Limited);
    assert_eq!(outcome("reject", "hard", &[]), rejected());
    assert_eq!(outcome("skip", "hard", &[]), RulesOutcome::Bypassed);
    assert_eq!(outcome("reject", "shadow", &[]), RulesOutcome::Bypassed);
    // Two that differ are nobody's key.
    let two = [("x-t", "1"), ("x-t", "2")];
    assert_eq!(outcome("share", "hard", &two), rejected());
    assert_eq!(outcome("skip", "hard", &two), RulesOutcome::Bypassed);
}

/// A rule that replaces others has to limit something itself.
#[test]
fn a_rule_that_counts_nothing_spares_nothing() {
    let skipped = rules(
        "rules:
  - {name: all, quota: 20/h}
  - {name: keyed, key: {header: x-key}, on_missing_key: skip, quota: 200/h, replaces: [all]}
  - {name: last, key: {header: x-other}, on_missing_key: skip, quota: 5/h, stop: true}
  - {name: end, quota: 9/h}",
    );
    let two = [("x-key", "1"), ("x-key", "2")];
    // Skipped rules are reported, too: they match.
    assert_eq!(applied(&skipped, "GET /x", &[]), "all keyed last end");
    assert_eq!(applied(&skipped, "GET /x", &two), "all keyed last end");
    assert_eq!(applied(&skipped, "GET /x", &two[..1]), "keyed last end");
    assert_eq!(
        applied(&skipped, "GET /x", &[("x-other", "1")]),
        "all keyed last"
    );
    let watching = rules(
        "rules:
  - {name: all, quota: 20/h}
  - {name: new, mode: shadow, quota: 200/h, replaces: [all], stop: true}
  - {name: end, quota: 9/h}",
    );
    assert_eq!(applied(&watching, "GET /x", &[]), "all new end");
}

/// A client can keep a proxy from reporting its address; then the address is the proxy's.
#[test]
fn an_address_in_doubt_is_spared_nothing() {
    let rules = rules(
        "client_ip: {trust: [10.0.0.0/8]}
rules:
  - {name: inside, match: {client: 10.0.0.0/8}, action: allow}
  - {name: all, quota: 20/h}
  - {name: proxies, match: {client: 10.0.0.0/8}, quota: 9/h}",
    );
    let outcome = |value: &str| {
        let parts = from("10.0.0.1", "GET /x", &[("x-forwarded-for", value)]);
        let explanation = rules.explain(&parts, NOON);
        let names = explanation.applied().collect::<Vec<_>>().join(" ");
        (explanation.outcome().clone(), names)
    };
    assert_eq!(
        outcome("10.0.0.2").0,
        RulesOutcome::Allowed("inside".into())
    );
    assert_eq!(outcome("203.0.113.7").1, "all");
    for hidden in ["unknown", "\"", "203.0.113.7, x"] {
        assert_eq!(
            outcome(hidden),
            (RulesOutcome::Limited, "all proxies".into()),
            "{hidden}"
        );
    }
}

#[test]
fn a_host_field_that_differs_from_the_authority_bypasses_no_rule() {
    let rules = rules(
        "rules:
  - {name: inside, match: {host: internal.example}, action: allow}
  - {name: api, match: {host: api.example}, quota: 20/h}",
    );
    let outcome =
        |line: &str, host: &str| explain(&rules, line, &[("host", host)]).outcome().clone();
    let allowed = RulesOutcome::Allowed("inside".into());
    assert_eq!(
        outcome("GET http://internal.example/x", "internal.example:80"),
        allowed
    );
    assert_eq!(
        outcome("GET http://internal.example/x", "api.example"),
        RulesOutcome::Limited
    );
    assert_eq!(
        outcome("GET http://x.invalid/x", "api.example"),
        RulesOutcome::Limited
    );
}

#[test]
fn costs_are_the_largest_part_that_applies() {
    let cost = |cost: &str, method: &str, headers: &[(&str, &str)]| {
        let rules = rules(&format!("rules: [{{name: a, quota: 100/s, cost: {cost}}}]"));
        let explanation = explain(&rules, &format!("{method} /x"), headers);
        explanation.rules()[0].limit().expect("a limit").cost
    };
    let table = "{default: 2, method: {POST: 5, get: 1}, header: {name: x-cost, max: 9}}";
    assert_eq!(cost("3", "GET", &[]), 3);
    assert_eq!(cost("0", "GET", &[]), 0);
    assert_eq!(cost(table, "GET", &[]), 2);
    assert_eq!(cost(table, "POST", &[]), 5);
    for (text, expected) in [
        ("4", 4),
        ("0", 2),
        ("9", 9),
        ("10", 9),
        ("-1", 9),
        ("+5", 9),
        ("", 9),
        ("99999999999", 9),
    ] {
        assert_eq!(cost(table, "HEAD", &[("x-cost", text)]), expected, "{text}");
    }
    assert_eq!(cost(table, "GET", &[("x-cost", "3"), ("x-cost", "8")]), 8);
    assert_eq!(cost("{default: 0, method: {POST: 5}}", "GET", &[]), 0);
}

#[test]
fn schedules_take_the_first_that_fits() {
    let rules = rules(
        "quotas: {night: 1/minute}\nrules:\n  - name: a\n    quota: [10/second, 50/minute]\n    schedule:\n      - {time: {from: \"22:00\", to: \"06:00\"}, quota: night}\n      - {time: {days: sat}, quota: unlimited}\n",
    );
    let quotas = |hours: u64| {
        let now = Timestamp::from_secs(1_795_132_800 + hours * 3_600);
        let explanation = at(&rules, now, "GET /x", &[]);
        let quotas = explanation.rules()[0]
            .limit()
            .expect("a limit")
            .quotas
            .clone();
        quotas
            .iter()
            .map(|quota| format!("{}={}", quota.name().unwrap_or(""), quota.quota()))
            .collect::<Vec<_>>()
    };
    assert_eq!(quotas(12), ["a.10-per-1s=10/1s", "a.50-per-60s=50/60s"]);
    assert_eq!(quotas(23), ["a=1/60s"]);
    assert_eq!(quotas(36), Vec::<String>::new());
    let saturday = at(&rules, NOON, "GET /x", &[]);
    assert_eq!(*saturday.outcome(), RulesOutcome::Bypassed);
}

#[test]
fn a_weighted_schedule_is_one_quota_that_varies() {
    let rules = rules(
        "rules:\n  - name: a\n    quota: [{name: day, rate: 9/h, algorithm: fixed_window}, 10/10m sliding_window]\n    weighted: true\n    schedule:\n      - time: [{from: \"22:00\", to: \"06:00\"}, {from: \"12:00\", to: \"13:00\", zone: \"+01:00\"}]\n        quota: [8/h fixed_window, 20/10m sliding_window]\n      - {time: {from: \"05:00\", to: \"07:00\"}, quota: [7/h fixed_window, 5/10m sliding_window]}\n",
    );
    let explanation = at(&rules, NOON, "GET /x", &[]);
    let quotas = &explanation.rules()[0].limit().expect("a limit").quotas;
    let quotas = quotas.iter();
    let texts: Vec<_> = quotas
        .map(|quota| format!("{}: {}", quota.name().unwrap_or(""), quota.quota()))
        .collect();
    assert_eq!(
        texts,
        [
            "a.day: 9/3600s fixed_window varying \
             00:00=8/06:00=7/07:00=9/11:00=8/12:00=9/22:00=8",
            "a.10-per-600s: 20/600s sliding_window varying \
             00:00=20/06:00=5/07:00=10/11:00=20/12:00=10/22:00=20",
        ]
    );
}

#[test]
fn a_weighted_schedule_in_a_zone_varies_there() {
    let rules = rules(
        "rules:\n  - name: a\n    quota: 10/15m sliding_window\n    weighted: true\n    schedule:\n      - {time: {from: \"22:00\", to: \"06:00\", zone: Europe/Berlin}, quota: 20/15m sliding_window}\n      - {time: [{from: \"12:00\", to: \"13:00\", zone: Europe/Berlin}], quota: 5/15m sliding_window}\n",
    );
    let explanation = at(&rules, NOON, "GET /x", &[]);
    let quotas = &explanation.rules()[0].limit().expect("a limit").quotas;
    assert_eq!(
        quotas[0].quota().to_string(),
        "20/900s sliding_window varying 00:00=20/06:00=10/12:00=5/13:00=10/22:00=20 in Europe/Berlin"
    );
}

#[test]
fn calls_of_mcp() {
    let rules = of_matches(&[
        "mcp: {method: tools/call}",
        "mcp: {tool: [draw_*, paint]}",
        "mcp: {method: [resources/*, prompts/get]}",
        "mcp: {method: ping, tool: paint}",
        "not: {mcp: {tool: paint}}",
    ]);
    let call = |method, name| [("mcp-method", method), ("mcp-name", name)];
    for (line, fields, expected) in [
        ("POST /", &call("tools/call", "draw_image")[..], "a b e"),
        ("POST /", &call("tools/call", "=?BASE64?cGFpbnQ=?="), "a b"),
        ("POST /", &call("tools/call", "search"), "a e"),
        ("POST /", &call("resources/read", "paint"), "c e"),
        ("POST /", &call("ping", "paint"), "e"),
        // A limit fits what cannot be read.
        ("POST /", &[], "a b c d e"),
        ("POST /", &[("mcp-method", "tools/call")], "a b c d e"),
        ("POST /", &call("tools/call", "=?base64?*?="), "a b c d e"),
        // A request that calls nothing.
        ("GET /", &call("tools/call", "paint"), "e"),
    ] {
        assert_eq!(applied(&rules, line, fields), expected, "{fields:?}");
    }
}

#[test]
fn an_exemption_needs_a_call_of_mcp_that_can_be_read() {
    let rules = rules(
        "rules: [{name: a, match: {mcp: {method: ping}}, action: allow}, {name: b, quota: 1/s}]",
    );
    for (fields, expected) in [
        (&[("mcp-method", "ping")][..], "a"),
        (&[("mcp-method", "tools/list")], "b"),
        (&[("mcp-method", "ping"), ("mcp-method", "ping")], "b"),
        (&[], "b"),
    ] {
        assert_eq!(applied(&rules, "POST /", fields), expected, "{fields:?}");
    }
}

#[test]
fn the_tool_of_mcp_is_a_key() {
    let rules = rules("rules: [{name: a, key: [client_ip, mcp_tool], quota: 1/s}]");
    let key = |fields: &[(&str, &str)]| {
        let explanation = explain(&rules, "POST /", fields);
        let limit = explanation.rules()[0].limit().unwrap();
        limit.key.as_ref().unwrap().clone()
    };
    let client = || Key::from(IpAddr::from([203, 0, 113, 7]));
    let tool = Key::tuple([Key::from("tools/call"), Key::from("search")]);
    let fields = [("mcp-method", "tools/call"), ("mcp-name", "search")];
    assert_eq!(key(&fields), Key::tuple([client(), tool]));
    assert_eq!(key(&[]), Key::tuple([client(), Key::from("unreadable")]));
}
