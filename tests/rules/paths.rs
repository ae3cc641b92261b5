//! Paths are compared in a normal form, so that no spelling leads around a rule.

use http::request::Parts;
use tower_ratelimit::{
    Key,
    rules::{RuleReason, Rules, RulesOutcome},
};

use crate::request_builders::{NOON, applied, explain, reason, request, yaml};

#[test]
fn no_spelling_of_a_path_leads_around_its_rule() {
    let rules =
        yaml("rules: [{name: login, match: {path: /api/login}, quota: 1/s}]").expect("a rule");
    let same = [
        "/api/login",
        "/api/%6cogin",
        "/api/%6Cogin",
        "//api//login",
        "/x/../api/login",
        "/api/./login",
        "/api/x/%2e%2E/login",
        "/api/login/",
        "/api/login//",
        "/api/login/.",
        "/../../api/login",
        "/%61%70%69/login",
        "/api/login?next=/x",
        "http://other/api/login",
        // Paths for servers that cut off parameters, or decode more than the application here.
        "/api/login;x",
        "/api;v=1/login",
        "/api/login%3Bx",
        "/api%2Flogin",
        "/api/login%2f",
        "/api\\login",
        "/api%5Clogin",
        "/x/..;/api/login",
        "/x/%2E%2E%2Fapi/login",
        "/api/%256cogin",
        "/api%252Flogin",
        "/api/login%3Fx",
        "/api/login%23",
        "/api/login%00",
        "/api/login%00.png",
    ];
    for path in same {
        assert_eq!(
            applied(&rules, &format!("GET {path}"), &[]),
            "login",
            "{path}"
        );
    }
    let others = [
        "/api/Login",
        "/api/login/x",
        "/api/login%2Fx",
        "/api",
        "/api;/x/login",
        "/api/loginx;",
        "*",
    ];
    for path in others {
        assert_eq!(applied(&rules, &format!("GET {path}"), &[]), "", "{path}");
    }
}

/// A pattern, and a path that a server behind nginx, Tomcat, IIS or Starlette reads so.
#[test]
fn a_limit_fits_whatever_server_reads_the_path() {
    for (pattern, path) in [
        // Decoded once, and resolved then.
        ("/admin", "/x%252fy%2f..%2fadmin"),
        // Decoded, and cut then.
        ("/api/admin", "/api;x%2fadmin"),
        // Decoded, and not resolved.
        ("/search/**", "/search%2F..%2Fx"),
        // Characters that a pattern has to encode.
        ("/my%20files/**", "/my%20files%2Fx"),
        ("/%C3%A9/x", "/%c3%a9%2fx"),
        // Characters of two bytes.
        ("/admin", "/%u0061dmin"),
        // Characters that clients may send unencoded.
        ("/items%5B%5D", "/items[]"),
        ("/a%7Cb", "/a|b"),
        ("/x%7By%7D", "/x{y}"),
    ] {
        let rules = yaml(&format!(
            "rules: [{{name: a, match: {{path: {pattern:?}}}, quota: 1/s}}]"
        ));
        let rules = rules.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            applied(&rules, &format!("GET {path}"), &[]),
            "a",
            "{pattern} {path}"
        );
    }
}

#[test]
fn what_stays_encoded_has_one_spelling_too() {
    let rules = yaml("rules: [{name: a, match: {path: [/a%2Fb, /%C3%A9, /50%25]}, quota: 1/s}]")
        .expect("a rule");
    for path in [
        "/a%2fb", "/a%2Fb", "/%c3%a9", "/%C3%a9/", "/\u{e9}", "/50%", "//50%25",
    ] {
        assert_eq!(applied(&rules, &format!("GET {path}"), &[]), "a", "{path}");
    }
}

#[test]
fn patterns_match_segment_by_segment() {
    let applies = |pattern: &str, path: &str| {
        let rules = yaml(&format!(
            "rules: [{{name: a, match: {{path: {pattern:?}}}, quota: 1/s}}]"
        ));
        applied(
            &rules.unwrap_or_else(|error| panic!("{error}")),
            &format!("GET {path}"),
            &[],
        ) == "a"
    };
    let cases = [
        ("/", &["/", "//", "/x/.."][..], &["/x"][..]),
        // An authority alone has no path, and is requested as `/`.
        ("/", &["shop.example"], &[]),
        ("/**", &["/", "/x", "/x/y", "shop.example"], &["*"]),
        ("/a/**", &["/a", "/a/", "/a/b/c"], &["/ab", "/", "/b/a"]),
        ("/a/{id}", &["/a/b", "/a/%2F"], &["/a", "/a/", "/a/b/c"]),
        ("/a@b", &["/a@b", "/a%40b"], &["/a%41b"]),
        ("/a;b", &["/a;b", "/a%3Bb"], &["/a"]),
        ("/a/{id}/c", &["/a/b/c"], &["/a/c", "/a//c"]),
        ("/a/*", &["/a/b"], &["/a", "/a/b/c"]),
        (
            "/v*/x",
            &["/v/x", "/v1/x", "/v1.2/x"],
            &["/w1/x", "/v1/2/x"],
        ),
        ("/*.php", &["/.php", "/a.php"], &["/a.phpx", "/a/b.php"]),
        (
            "/a*b*c",
            &["/abc", "/aXbYc", "/abbc", "/abcbc"],
            &["/ab", "/acb", "/aXc"],
        ),
        ("/a*ab", &["/aab", "/abab"], &["/ab"]),
    ];
    for (pattern, fits, differs) in cases {
        for path in fits {
            assert!(applies(pattern, path), "{pattern} {path}");
        }
        for path in differs {
            assert!(!applies(pattern, path), "{pattern} {path}");
        }
    }
}

#[test]
fn patterns_that_cannot_match_are_faults() {
    let refused = |pattern: &str| {
        let error = yaml(&format!(
            "rules: [{{name: a, match: {{path: {pattern:?}}}, quota: 1/s}}]"
        ));
        let error = error.expect_err(pattern);
        assert_eq!(error.problems()[0].code(), "R06", "{error}");
        error.problems()[0].message().to_owned()
    };
    for (pattern, part) in [
        ("api", "does not begin with a slash"),
        ("/a/", "normal form, and this one's is \"/a\""),
        ("/a//b", "\"/a/b\""),
        ("/a/../b", "\"/b\""),
        ("/%61", "\"/a\""),
        ("/a%2fb", "\"/a%2Fb\""),
        ("/50%", "\"/50%25\""),
        ("/\u{e9}", "\"/%C3%A9\""),
        ("/a?b=c", "no path has '?'; a query is matched by `query`"),
        ("/a#b", "'#'"),
        ("/a b", "' '"),
        ("/a%40b", "write '@', which matches both spellings"),
        ("/a%2Bb", "write '+'"),
        ("/**/a", "not the last segment"),
        ("/a**", "a segment of its own"),
        ("/{a}/{a}", "twice"),
        ("/{}", "no parameter"),
        ("/{a-b}", "no parameter"),
        ("/x{a}", "a part of a segment"),
        ("/{a", "a part of a segment"),
    ] {
        let message = refused(pattern);
        assert!(message.contains(part), "{pattern}: {message}");
    }
}

#[test]
fn case_counts_unless_it_is_ignored() {
    let rules = yaml(
        "rules:\n  - {name: a, match: {path: \"/Admin/{id}\", ignore_case: true}, key: {path_param: id}, quota: 1/s}\n",
    );
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    for path in ["/Admin/X", "/admin/x", "/ADMIN/x"] {
        let explanation = crate::request_builders::explain(&rules, &format!("GET {path}"), &[]);
        let key = explanation.rules()[0].limit().expect(path).key.clone();
        // One key for what is equal for the rule.
        assert_eq!(key, Ok(tower_ratelimit::Key::from("x")));
    }
}

fn rules(text: &str) -> Rules {
    yaml(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Spellings of `/healthz` and of something below `/public`, which an app that routes by what was
/// sent, resolves less or decodes more reads as another path.
const ODD: [&str; 14] = [
    "/api/../healthz",
    "/api/%2e%2e/healthz",
    "//healthz",
    "/healthz/",
    "/healthz/.",
    "/%68ealthz",
    "/public/../public/x",
    "/public//x",
    "/public/..%2Fapi",
    "/public/..%5capi",
    "/public/..\\api",
    "/public/..;/api",
    "/public/..%3B/api",
    "/public/%252e%252e/api",
];

#[test]
fn odd_spellings_of_a_path_do_not_reach_an_allow() {
    let rules = rules(
        "rules:\n  - {name: free, match: {path: [/healthz, \"/public/**\"]}, action: allow}\n  - {name: all, quota: 1/s}\n",
    );
    for path in ODD {
        let explanation = explain(&rules, &format!("GET {path}"), &[]);
        assert_eq!(*explanation.outcome(), RulesOutcome::Limited, "{path}");
        let why = reason(&explanation, "free");
        assert_eq!(*why, RuleReason::Differs("path's spelling"), "{path}");
    }
    for path in [
        "/healthz",
        "/healthz?x=..%2F",
        "/public",
        "/public/a.b/...",
        "/public/caf%C3%A9/my%20file",
    ] {
        let explanation = explain(&rules, &format!("GET {path}"), &[]);
        let allowed = RulesOutcome::Allowed("free".to_owned());
        assert_eq!(*explanation.outcome(), allowed, "{path}");
    }
}

#[test]
fn odd_spellings_do_not_reach_an_exception() {
    let rules = rules(
        "rules:
  - {name: spared, match: {not: {path: [/healthz, \"/public/**\"]}}, quota: 1/s}
  - {name: banned, match: {not: {not: {path: [/healthz, \"/public/**\"]}}}, action: deny}
",
    );
    for path in ODD {
        let explanation = explain(&rules, &format!("GET {path}"), &[]);
        assert_eq!(
            *reason(&explanation, "spared"),
            RuleReason::Applies,
            "{path}"
        );
    }
    assert_eq!(applied(&rules, "GET /healthz", &[]), "banned");
    // An exception of an `allow` holds in every spelling.
    let allow = rules_of_an_allow_but("/public/private/**");
    for path in [
        "/public/private/x",
        "/public/%70rivate/x",
        "/public/x/../private/y",
        "/public/private/../x",
    ] {
        let explanation = explain(&allow, &format!("GET {path}"), &[]);
        assert_eq!(*explanation.outcome(), RulesOutcome::Limited, "{path}");
    }
    assert_eq!(applied(&allow, "GET /public/x", &[]), "free");
}

fn rules_of_an_allow_but(path: &str) -> Rules {
    rules(&format!(
        "rules:\n  - {{name: free, match: {{path: \"/public/**\", not: {{path: {path:?}}}}}, action: allow}}\n  - {{name: all, quota: 1/s}}\n"
    ))
}

#[test]
fn odd_spellings_neither_end_the_list_nor_leave_a_rule_out() {
    let rules = rules(
        "rules:
  - {name: own, match: {path: [/healthz, \"/public/**\"]}, quota: 9/s, replaces: all}
  - {name: last, match: {path: [/healthz, \"/public/**\"]}, quota: 9/s, stop: true}
  - {name: all, quota: 1/s}
  - {name: more, quota: 1/s}
",
    );
    assert_eq!(applied(&rules, "GET /healthz", &[]), "own last");
    for path in ODD {
        assert_eq!(
            applied(&rules, &format!("GET {path}"), &[]),
            "own last all more",
            "{path}"
        );
    }
}

/// An app may route by what was sent: a path that leads out of a rule when it is resolved is still
/// under it.
#[test]
fn a_path_is_under_the_rules_of_what_was_sent_too() {
    let rules = rules(
        "rules:
  - {name: api, match: {path: \"/api/**\"}, key: global, quota: 1/s}
  - {name: one, match: {path: \"/one/{id}\"}, key: {path_param: id}, quota: 1/s}
  - {name: root, match: {path: /other}, quota: 1/s}
",
    );
    for (path, expected) in [
        ("/api/x/../../other", "api root"),
        ("/%61pi/%2e%2e/other", "api root"),
        ("/one/..", "one"),
        ("/one/../other", "root"),
    ] {
        assert_eq!(
            applied(&rules, &format!("GET {path}"), &[]),
            expected,
            "{path}"
        );
    }
    let explanation = explain(&rules, "GET /one/..", &[]);
    let limit = explanation.rules()[1].limit().expect("a limit");
    assert_eq!(limit.key, Ok(Key::from("..")));
}

#[test]
fn a_parameter_is_one_key_in_every_spelling() {
    let key = |ignore_case: bool, path: &str| {
        let rules = rules(&format!(
            "rules: [{{name: a, match: {{path: \"/a/{{id}}\", ignore_case: {ignore_case}}}, key: {{path_param: id}}, quota: 1/s}}]"
        ));
        let explanation = explain(&rules, &format!("GET {path}"), &[]);
        explanation.rules()[0].limit().expect(path).key.clone()
    };
    for path in ["/a/x:y@z", "/a/x%3Ay%40z", "/a/x%3ay@%7A", "/a//x:y%40z/"] {
        assert_eq!(key(false, path), Ok(Key::from("x:y@z")), "{path}");
    }
    for path in ["/a/%C3%89x", "/a/\u{c9}%78"] {
        assert_eq!(key(false, path), Ok(Key::from("\u{c9}x")), "{path}");
    }
    assert_eq!(key(false, "/a/b%2Fc"), Ok(Key::from("b/c")));
    assert_eq!(key(false, "/a/50%"), key(false, "/a/50%25"));
    // Nor does what a server cuts off, or decodes once more, make a new one.
    for path in [
        "/a/ann;1",
        "/a;v=2/ann;2",
        "/a/%2561nn",
        "/a/ann%3B3",
        "/a/ann%00x",
        "/a/ann%3Fx",
    ] {
        assert_eq!(key(false, path), Ok(Key::from("ann")), "{path}");
    }
    assert_eq!(key(true, "/a/X%3AY"), Ok(Key::from("x:y")));
    // Bytes that are no text are a key, too.
    assert_eq!(key(false, "/a/%ff%3a"), Ok(Key::bytes(b"\xff:")));
}

/// If several values differ, one may be the proxy's and the other the client's.
#[test]
fn where_a_match_loosens_every_value_has_to_fit() {
    let rules = rules(
        "rules:
  - {name: header, match: {header: {x-in: \"yes\"}}, action: allow}
  - {name: query, match: {query: {probe: \"1\"}}, action: allow}
  - {name: host, match: {host: in.example.com}, action: allow}
  - {name: but, match: {not: {header: {x-part: a}}}, quota: 1/s}
  - {name: any, match: {header: {x-part: a}}, quota: 1/s}
",
    );
    let reported = |parts: &Parts| {
        let explanation = rules.explain(parts, NOON);
        explanation.applied().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(reported(&request("GET /", &[("x-in", "yes")])), "header");
    assert_eq!(
        reported(&request("GET /", &[("x-in", "no"), ("x-in", "yes")])),
        "but"
    );
    assert_eq!(reported(&request("GET /?probe=1", &[])), "query");
    assert_eq!(reported(&request("GET /?probe=0&probe=1", &[])), "but");
    let inner = ("host", "in.example.com");
    assert_eq!(reported(&request("GET /", &[inner])), "host");
    assert_eq!(reported(&request("GET /", &[("host", "x"), inner])), "but");
    assert_eq!(reported(&request("GET /", &[("x-part", "a")])), "any");
    assert_eq!(
        reported(&request("GET /", &[("x-part", "a"), ("x-part", "b")])),
        "but any"
    );
}
