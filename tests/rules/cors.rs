//! `cors_origins`: which origins are accepted, and what passes uncounted.

use http::{HeaderMap, HeaderValue, header::ORIGIN};
use tower_ratelimit::rules::{CorsOrigins, RuleReason, Rules, RulesOutcome};

use crate::request_builders::{explain, yaml};

const METHOD: (&str, &str) = ("access-control-request-method", "POST");

fn rules(origins: &str) -> Rules {
    let text = format!(
        "cors_origins: {origins}
rules:
  - {{name: closed, match: {{path: /closed}}, action: deny}}
  - {{name: api, key: bearer_token, on_missing_key: reject, quota: 1/day}}"
    );
    yaml(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn allowed(origins: &CorsOrigins, origin: &str) -> Option<String> {
    let mut request = HeaderMap::new();
    request.insert(ORIGIN, HeaderValue::from_str(origin).expect("a field"));
    let allowed = origins.allow_origin(&request);
    allowed.map(|allowed| allowed.to_str().expect("a text").to_owned())
}

#[test]
fn origins_are_compared_by_scheme_host_and_port() {
    let rules = rules(
        "[\"https://App.example\", \"http://localhost:3000\", \"HTTP://[2001:DB8::1]:80\", \
         \"capacitor://localhost\", \"https://x.test:8443\"]",
    );
    for (origin, expected) in [
        ("https://app.example", true),
        ("HTTPS://APP.example:443", true),
        ("http://app.example", false),
        ("https://app.example:8443", false),
        ("https://app.example.", false),
        ("https://app.example/", false),
        ("https://app.example.evil.test", false),
        ("https://evil.test/https://app.example", false),
        ("https://u@app.example", false),
        ("https://app.example https://x.test:8443", false),
        ("app.example", false),
        ("null", false),
        ("http://localhost:3000", true),
        ("http://localhost", false),
        ("http://[2001:db8:0::1]", true),
        ("capacitor://localhost", true),
        ("capacitor://localhost:80", false),
        ("https://x.test:8443", true),
        ("https://x.test:+8443", false),
        ("https://x.test", false),
    ] {
        let found = allowed(rules.cors_origins(), origin);
        assert_eq!(found.as_deref(), expected.then_some(origin), "{origin}");
    }
    let mut two = HeaderMap::new();
    two.append(ORIGIN, HeaderValue::from_static("https://app.example"));
    two.append(ORIGIN, HeaderValue::from_static("https://app.example"));
    assert_eq!(rules.cors_origins().allow_origin(&two), None);
}

#[test]
fn a_star_alone_is_any_origin() {
    let rules = rules("\"*\"");
    for origin in ["https://app.example", "null"] {
        assert_eq!(
            allowed(rules.cors_origins(), origin).as_deref(),
            Some("*"),
            "{origin}"
        );
    }
}

#[test]
fn without_the_field_no_origin_is_accepted() {
    let rules = yaml("rules: [{name: a, quota: 1/s}]").expect("rules");
    assert!(rules.cors_origins().is_empty());
    assert_eq!(allowed(rules.cors_origins(), "https://app.example"), None);
}

#[test]
fn a_text_that_no_browser_sends_as_an_origin_is_refused() {
    for text in [
        "null",
        "app.example",
        "https://",
        "https://app.example/",
        "https://app.example/path",
        "https://*.app.example",
        "https://*",
        "https://u@app.example",
        "https://app.example:",
        "https://app.example:0",
        "https://app.example:65536",
        "https://app.example:8O80",
        "https://bücher.example",
        "https://app.example.",
        " https://app.example",
        "1https://app.example",
    ] {
        let error = yaml(&format!(
            "cors_origins: [\"{text}\"]\nrules: [{{name: a, quota: 1/s}}]"
        ))
        .expect_err(text);
        let problem = &error.problems()[0];
        assert_eq!(
            (problem.code(), problem.line()),
            ("R01", Some(1)),
            "{error}"
        );
        for part in ["is no origin; accepted are", "https://app.example"] {
            assert!(problem.message().contains(part), "{error}");
        }
    }
    let mixed = yaml("cors_origins: [\"*\", \"https://a.test\"]\nrules: [{name: a, quota: 1/s}]");
    let error = mixed.expect_err("a star among others");
    assert!(error.to_string().contains("so it is alone"), "{error}");
}

/// A browser sends no token with a preflight, so without the field it would be rejected.
#[test]
fn a_preflight_of_a_listed_origin_meets_no_limit() {
    let rules = rules("https://app.example");
    let origin = ("origin", "https://app.example");
    let preflight = explain(&rules, "OPTIONS /x", &[origin, METHOD]);
    assert_eq!(*preflight.outcome(), RulesOutcome::Bypassed);
    assert_eq!(*preflight.rules()[1].reason(), RuleReason::Preflight);
    for (request, headers) in [
        ("OPTIONS /x", &[("origin", "https://evil.test"), METHOD][..]),
        ("OPTIONS /x", &[origin]),
        ("OPTIONS /x", &[METHOD]),
        ("OPTIONS /x", &[origin, origin, METHOD]),
        ("options /x", &[origin, METHOD]),
        ("GET /x", &[origin, METHOD]),
        ("POST /x", &[origin, METHOD]),
    ] {
        let other = explain(&rules, request, headers);
        let expected = RulesOutcome::Rejected("api".into(), 400);
        assert_eq!(*other.outcome(), expected, "{request} {headers:?}");
    }
}

#[test]
fn a_deny_denies_preflights_too() {
    let rules = rules("\"*\"");
    let headers = [("origin", "https://app.example"), METHOD];
    let denied = explain(&rules, "OPTIONS /closed", &headers);
    assert_eq!(*denied.outcome(), RulesOutcome::Denied("closed".into()));
}
