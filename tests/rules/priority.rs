//! The `priority` of rules: shares of a limit, by a header or for all requests of a rule.

use http::StatusCode;
use tower_ratelimit::{
    Priority,
    rules::{Format, Rules, RulesError},
};

use crate::{layer::Ruled, request_builders::explain};

fn rules(rule: &str) -> Result<Rules, RulesError> {
    let text = format!("rules:\n- {{name: all, key: global, {rule}}}\n");
    Rules::builder().parse(&text, Format::Yaml)
}

/// How many of ten requests with these headers pass; the others are answered `status`.
async fn passed(ruled: &Ruled, path: &str, headers: &[(&str, &str)], status: u16) -> usize {
    let mut passed = 0;
    for _ in 0..10 {
        let response = ruled.send(path, headers).await;
        if response.status() == StatusCode::OK {
            passed += 1;
        } else {
            assert_eq!(response.status().as_u16(), status);
        }
    }
    passed
}

const BY_CLASS: &str = "rules:
- name: all
  key: global
  quota: 10/day
  priority: {header: x-class, shares: {critical: 100, batch: 50}, default: 80}
";

#[tokio::test]
async fn header_names_the_class() {
    let ruled = Ruled::yaml(BY_CLASS);
    let batch = [("x-class", "batch")];
    assert_eq!(passed(&ruled, "GET /", &batch, 503).await, 5);
    // The lowest of several lines counts, and an unknown class is the default one.
    let both = [("x-class", "critical"), ("x-class", "batch")];
    assert_eq!(passed(&ruled, "GET /", &both, 503).await, 0);
    let unknown = [("x-class", "urgent")];
    assert_eq!(passed(&ruled, "GET /", &unknown, 503).await, 3);
    let critical = [("x-class", "critical")];
    assert_eq!(passed(&ruled, "GET /", &critical, 429).await, 2);
    assert_eq!(passed(&ruled, "GET /", &batch, 429).await, 0);
}

#[tokio::test]
async fn rules_of_one_request_have_classes_of_their_own() {
    let ruled = Ruled::yaml(
        "rules:
- {name: reads, key: global, quota: 10/day, priority: {share: 30}, match: {method: GET}}
- {name: class, key: global, quota: 10/day, priority: {header: x-class, shares: {batch: 20, rest: 100}}}
",
    );
    let rest = [("x-class", "rest")];
    let batch = [("x-class", "batch")];
    assert_eq!(passed(&ruled, "GET /", &batch, 503).await, 2);
    assert_eq!(passed(&ruled, "GET /", &rest, 503).await, 1);
    // Without the header: the smallest share.
    assert_eq!(passed(&ruled, "POST /", &[], 503).await, 0);
    assert_eq!(passed(&ruled, "POST /", &rest, 429).await, 7);
}

#[test]
fn explanation_has_the_share() {
    let rules = Rules::builder().parse(BY_CLASS, Format::Yaml);
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    let of = |headers: &[(&str, &str)]| {
        let explained = explain(&rules, "GET /", headers);
        explained.rules()[0].limit().expect("a limit").priority
    };
    assert_eq!(
        of(&[("x-class", "batch")]),
        Priority::share(50).expect("a share")
    );
    assert_eq!(of(&[("x-class", "critical")]), Priority::CRITICAL);
    assert_eq!(of(&[]).percent(), 80);
}

#[test]
fn class_that_a_client_can_choose_is_warned_of() {
    let rules = Rules::builder().parse(BY_CLASS, Format::Yaml);
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    let warning = rules
        .warnings()
        .iter()
        .find(|warning| warning.code() == "W22");
    let message = warning.expect("a warning").message();
    assert!(
        message.contains("the priority is the header \"x-class\""),
        "{message}"
    );
}

#[test]
fn shares_that_make_no_sense_are_faults() {
    for (rule, part) in [
        ("quota: 10/day, priority: {share: 0}", "1"),
        ("quota: 10/day, priority: {share: 101}", "100"),
        ("quota: 10/day, priority: {share: 5}", "less than one unit"),
        ("quota: 1/day, priority: {share: 50}", "at least 2 units"),
        ("quota: 10/day, priority: {}", "a `share`, or a `header`"),
        (
            "quota: 10/day, priority: {header: x-class}",
            "a `share`, or a `header`",
        ),
        (
            "quota: 10/day, priority: {share: 50, default: 80}",
            "leave it out",
        ),
        (
            "quota: 10/day, priority: {header: x-class, shares: {a: 200}}",
            "100",
        ),
    ] {
        let error = match rules(rule) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted: {rule}"),
        };
        assert!(error.contains(part), "{rule}: {error}");
    }
    assert!(rules("quota: 10/day, priority: {share: 10}").is_ok());
}
