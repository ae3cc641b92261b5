//! `check` for files of Envoy's rate limit service.

use std::{fs, path::Path};

const RULES: &str = "domain: rl
descriptors:
  - key: foo
    rate_limit: {unit: minute, requests_per_unit: 5}
    descriptors:
      - {key: baz, value: x, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 7}}
  - key: foo
    value: b*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 9, name: shared, replaces: [{name: vip}]}
  - {key: user, value: vip, rate_limit: {unit: week, unit_multiplier: 2, requests_per_unit: 3, name: vip}}
  - {key: free, quota_mode: true, rate_limit: {unlimited: true}}
  - {key: path, descriptors: [{key: method, rate_limit: {unit: second, requests_per_unit: 1, algorithm: token_bucket}}]}
";

/// The exit code, the standard output and the standard error.
fn run(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let arguments = ["tower-ratelimit", "check"].iter().chain(arguments);
    let exit = tower_ratelimit_cli::run(arguments, false, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit, text(out), text(errors))
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn a_byte_order_mark_hides_no_domain() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in [
        ("rl.yaml", "\u{feff}domain: rl\n"),
        (
            "rl.json",
            "\u{feff}{\"domain\": \"rl\", \"descriptors\": []}",
        ),
    ] {
        let path = file(dir.path(), name, text);
        let (exit, out, errors) = run(&[&path]);
        assert_eq!((exit, errors.as_str()), (0, ""), "{out}");
    }
}

#[test]
fn descriptors_are_explained_entry_by_entry() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), "rl.yaml", RULES);
    for (entries, steps, outcome) in [
        (
            "foo=1",
            "  foo=1  by the key alone\n",
            "counted by rl.foo: 5 per minute, for foo=1",
        ),
        (
            "foo=1,baz=x",
            "  foo=1  by the key alone\n  baz=x  by key and value\n",
            "counted by rl.foo.baz_x: 7 per day, in shadow, for foo=1,baz=x",
        ),
        (
            "foo=bar",
            "  foo=bar  by the pattern \"foo_b*\"\n",
            "counted by rl.foo_b*: 9 per hour, for foo=b*",
        ),
        (
            "foo=bar,baz=x,y",
            "  foo=bar  by the pattern \"foo_b*\"\n  baz=x    nothing matches\n  y        not looked up\n",
            "passes uncounted: nothing matches all of it, and no other way is tried once an entry has matched",
        ),
        (
            "x=y",
            "  x=y  nothing matches\n",
            "passes uncounted: nothing matches",
        ),
        (
            "path=/",
            "  path=/  by the key alone\n",
            "passes uncounted: its last entry has no rate_limit",
        ),
        (
            "free",
            "  free  by the key alone\n",
            "passes uncounted: it is unlimited",
        ),
        (
            "user=vip",
            "  user=vip  by key and value\n",
            "counted by rl.user_vip: 3 per 2 weeks, for user=vip",
        ),
        (
            "path=/,method=GET",
            "  path=/      by the key alone\n  method=GET  by the key alone\n",
            "counted by rl.path.method: 1/1s, for path=/,method=GET",
        ),
    ] {
        let (exit, out, errors) = run(&[&path, "--descriptor", "rl", entries]);
        assert_eq!((exit, errors.as_str()), (0, ""));
        assert_eq!(out, format!("6 limits\n\nrl {entries}\n{steps}{outcome}\n"));
    }
    let (_, out, _) = run(&[&path, "--descriptor", "other", "foo=1"]);
    assert!(
        out.ends_with("passes uncounted: no file has the domain\n"),
        "{out}"
    );
}

/// Descriptors of one request may replace each other.
#[test]
fn descriptors_of_a_request_are_explained_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), "rl.yaml", RULES);
    let both = [
        &path,
        "--descriptor",
        "rl",
        "user=vip",
        "--descriptor",
        "rl",
        "foo=bar",
    ];
    let (exit, out, _) = run(&both);
    assert_eq!(exit, 0);
    assert!(
        out.contains("another limit of the request replaces \"vip\""),
        "{out}"
    );
    assert!(out.contains("counted by rl.foo_b*"), "{out}");
    let json = run(&[&both[..], &["--output", "json"]].concat()).1;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["rules"], 6);
    assert_eq!(json["descriptors"][1]["limit"]["requests_per_unit"], 9);
    assert_eq!(
        json["descriptors"][1]["matched"][0],
        "by the pattern \"foo_b*\""
    );
    let (exit, _, errors) = run(&[&path, "--descriptor", "rl", "a", "--descriptor", "x", "b"]);
    assert_eq!(exit, 2);
    assert!(errors.contains("one domain"), "{errors}");
}

#[test]
fn files_with_a_domain_are_recognized() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), "rl.yaml", RULES);
    let folder = dir.path().display().to_string();
    assert_eq!(run(&[&path]), (0, "6 limits\n".to_owned(), String::new()));
    assert_eq!(run(&[&folder]).1, "6 limits\n");
    let json = file(
        dir.path(),
        "other.json",
        r#"{"domain": "other", "descriptors": [{"key": "a", "rate_limit": {"unit": "DAY", "requests_per_unit": 1}}]}"#,
    );
    assert_eq!(run(&[&json]).1, "1 limit\n");
    assert_eq!(run(&[&folder]).1, "7 limits\n");
    let (exit, _, errors) = run(&[&path, "--request", "GET /"]);
    assert_eq!(exit, 2);
    assert!(errors.contains("--descriptor"), "{errors}");
    assert_eq!(run(&["nowhere.yaml", "--descriptor", "rl", "a"]).0, 2);
    let again = file(dir.path(), "again.yaml", "domain: rl\n");
    assert_eq!(run(&[&path, &again]).0, 1);
    assert_eq!(run(&[&path, &again, "--merge-domains"]).0, 0);
}

#[test]
fn what_the_reference_does_not_know_is_refused_on_demand() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), "rl.yaml", RULES);
    let (exit, out, _) = run(&[&path, "--strict-envoy"]);
    assert_eq!(exit, 1);
    assert!(
        out.contains("rl.yaml:11:54: R02 \"unit_multiplier\", which Envoy's"),
        "{out}"
    );
    assert!(out.ends_with("2 faults\n"), "{out}");
}

#[test]
fn oddities_are_warnings() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "domain: one
shadow_mode: true
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a_b, rate_limit: {unit: day, requests_per_unit: 2}}
domain: two
descriptors: []
";
    let path = file(dir.path(), "rl.yaml", text);
    let (exit, out, _) = run(&[&path]);
    assert_eq!(exit, 0);
    let codes = out.lines().filter_map(|line| line.split_once(": W"));
    let codes: Vec<_> = codes.map(|(place, code)| (place, &code[..2])).collect();
    let place = |line: &str| format!("{path}:{line}");
    let expected = [
        (place("2:1"), "32"),
        (place("5:11"), "31"),
        (place("6:1"), "33"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(place, code)| (place.as_str(), *code))
        .collect();
    assert_eq!(codes, expected, "{out}");
    assert!(out.ends_with("2 limits, 3 warnings\n"), "{out}");
    assert_eq!(run(&[&path, "--deny-warnings"]).0, 1);
    let github = run(&[&path, "--output", "github"]).1;
    assert!(github.contains("title=W33::a further domain"), "{github}");
}
