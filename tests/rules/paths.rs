//! Paths are compared in a normal form, so that no spelling leads around a rule.

use crate::ask::{applied, yaml};

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
    ];
    for path in same {
        assert_eq!(
            applied(&rules, &format!("GET {path}"), &[]),
            "login",
            "{path}"
        );
    }
    let others = [
        "/api/login%2f",
        "/api%2Flogin",
        "/api/Login",
        "/api/login%00",
        "/api/login/x",
        "/api",
        "/api/login;x",
        "*",
    ];
    for path in others {
        assert_eq!(applied(&rules, &format!("GET {path}"), &[]), "", "{path}");
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
        ("/**", &["/", "/x", "/x/y"], &["*"]),
        ("/a/**", &["/a", "/a/", "/a/b/c"], &["/ab", "/", "/b/a"]),
        ("/a/{id}", &["/a/b", "/a/%2F"], &["/a", "/a/", "/a/b/c"]),
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
        let asked = crate::ask::ask(&rules, &format!("GET {path}"), &[]);
        let key = asked.rules()[0].limit().expect(path).key.clone();
        // One key for what the rule takes for the same.
        assert_eq!(key, Ok(tower_ratelimit::Key::from("x")));
    }
}
