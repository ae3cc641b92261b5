//! Row 16: faults and warnings, with their positions.

use tower_ratelimit::rules::{Problem, RulesError};
use tower_ratelimit_envoy::lyft::Rules;

fn refused(text: &str) -> RulesError {
    let outcome = Rules::builder().parse([("rules.yaml", text)]);
    outcome.err().unwrap_or_else(|| panic!("accepted:\n{text}"))
}

/// The code, line and column of each fault, and a word of its text.
fn check(text: &str, expected: &[(&str, usize, usize, &str)]) {
    let error = refused(text);
    let problems = error.problems();
    let reported: Vec<_> = problems
        .iter()
        .map(|problem| (problem.code(), problem.line(), problem.column()))
        .collect();
    let places: Vec<_> = expected
        .iter()
        .map(|(code, line, column, _)| (*code, Some(*line), Some(*column)))
        .collect();
    assert_eq!(reported, places, "{text}\n{error}");
    for (problem, (_, _, _, word)) in problems.iter().zip(expected) {
        assert!(problem.message().contains(word), "{word}: {problem}");
    }
}

/// A descriptor `a` with these lines in its limit.
fn limit(lines: &str) -> String {
    format!("domain: rl\ndescriptors:\n  - key: a\n    rate_limit:\n      {lines}\n")
}

#[test]
fn unknown_keys_are_refused_wherever_they_stand() {
    check(
        "domain: rl
descriptor: []
descriptors:
  - key: a
    ratelimit:
      unit: minute
    rate_limit:
      unit: minute
      requests_per_unit: 1
      requests: 2
",
        &[
            ("R02", 2, 1, "\"descriptor\""),
            ("R02", 5, 5, "\"ratelimit\""),
            ("R02", 10, 7, "\"requests\""),
        ],
    );
    // Metadata may contain anything.
    let text = "domain: rl\ndescriptors: [{key: a, metadata: {any: {thing: 1.5}, 5: [1, [2]]}}]\n";
    assert!(Rules::builder().parse([("rules.yaml", text)]).is_ok());
}

#[test]
fn fault_is_shown_with_its_line() {
    let error = refused("domain: rl\ndescriptors:\n  - key: a\n    rate_limits: {}\n");
    let expected = "rules.yaml:4:5: R02 unknown key \"rate_limits\"
   4 |     rate_limits: {}
     |     ^^^^^^^^^^^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn keys_that_are_no_texts_are_refused() {
    check("domain: rl\n5: x\n", &[("R02", 2, 1, "not a text")]);
    check("domain: rl\nyes: x\n", &[("R02", 2, 1, "not a text")]);
    check("domain: rl\n? [a]\n: x\n", &[("R01", 2, 3, "as a key")]);
}

#[test]
fn leaves_are_texts_whole_numbers_and_truths() {
    check(
        &limit("{unit: minute, requests_per_unit: 1.5}"),
        &[("R01", 5, 41, "whole number")],
    );
    check(
        "domain: rl\ndescriptors:\n  - key: a\n    value: 1.10\n",
        &[("R01", 4, 12, "quotes")],
    );
    let text = "domain: rl\ndescriptors:\n  - {key: 5, value: true, descriptors: ~}\n";
    assert!(Rules::builder().parse([("rules.yaml", text)]).is_ok());
    check("domain: rl\ndescriptors: [a]\n", &[("R01", 2, 15, "list")]);
    check("domain: rl\ndescriptors: [[]]\n", &[("R01", 2, 15, "list")]);
    check(
        "domain: rl\ndescriptors: {key: a}\n",
        &[("R01", 2, 14, "is a list")],
    );
    check(
        "domain: rl\ndescriptors: [{key: a, rate_limit: minute}]\n",
        &[("R01", 2, 36, "is a table")],
    );
    check(
        "domain: rl\ndescriptors: [{key: a, shadow_mode: 'true'}]\n",
        &[("R01", 2, 37, "true or false")],
    );
}

#[test]
fn domains_and_keys_are_not_empty() {
    for text in [
        "",
        "# nothing\n",
        "descriptors: []\n",
        "domain: ''\n",
        "domain: ~\n",
    ] {
        let error = refused(text);
        assert!(error.to_string().contains("domain"), "{error}");
    }
    check("- domain: rl\n", &[("R01", 1, 1, "table")]);
    check(
        "domain: rl\ndescriptors:\n  - value: x\n  - {key: '', value: y}\n",
        &[("R02", 3, 5, "empty"), ("R02", 4, 5, "empty")],
    );
}

/// A directory that is still empty does not mean that nothing is limited.
#[test]
fn sets_without_a_domain_are_refused() {
    let nothing: [(&str, &str); 0] = [];
    assert!(Rules::builder().parse(nothing).is_err());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "no rules").unwrap();
    let error = Rules::builder().read(&[folder.path()]).unwrap_err();
    let path = folder.path().display().to_string();
    assert!(error.to_string().contains(&path), "{error}");
}

#[test]
fn composite_keys_are_there_once() {
    check(
        "domain: rl
descriptors:
  - {key: a, value: b_c}
  - {key: a_b, value: c}
  - {key: a_b_c}
  - key: x
    descriptors: [{key: y}, {key: y}]
",
        &[
            ("R03", 4, 11, "rl.a_b_c"),
            ("R03", 5, 11, "rl.a_b_c"),
            ("R03", 7, 35, "rl.x.y"),
        ],
    );
}

#[test]
fn limits_have_a_unit_and_a_number() {
    check(
        &limit("unit: fortnight"),
        &[("R04", 5, 13, "\"fortnight\"")],
    );
    check(
        &limit("requests_per_unit: 1"),
        &[("R04", 5, 7, "invalid rate limit unit")],
    );
    check(&limit("unit: unknown"), &[("R04", 5, 13, "\"unknown\"")]);
    check(
        &limit("{unlimited: true, unit: day}"),
        &[("R04", 5, 31, "when unlimited")],
    );
    for number in ["-1", "4294967296", "'5'", "five", "[]"] {
        let text = limit(&format!("{{unit: day, requests_per_unit: {number}}}"));
        check(&text, &[("R04", 5, 38, "requests_per_unit")]);
    }
    for number in ["0", "4294967295", "0x10", "~", "1_000"] {
        let text = limit(&format!("{{unit: dAy, requests_per_unit: {number}}}"));
        assert!(
            Rules::builder().parse([("rules.yaml", text)]).is_ok(),
            "{number}"
        );
    }
}

#[test]
fn limits_replace_others_by_name() {
    check(
        &limit("{unit: day, name: a, replaces: [{name: a}, {name: ''}, {}]}"),
        &[
            ("R04", 5, 39, "same descriptor"),
            ("R04", 5, 50, "empty replaces"),
            ("R04", 5, 62, "empty replaces"),
        ],
    );
}

#[test]
fn shared_thresholds_need_a_pattern() {
    check(
        "domain: rl\ndescriptors:\n  - {key: a, value: b, share_threshold: true}\n",
        &[("R04", 3, 5, "\"*\"")],
    );
    check(
        "domain: rl\ndescriptors:\n  - {key: a, metadata: [1]}\n",
        &[("R01", 3, 24, "metadata is a table")],
    );
}

#[test]
fn domain_that_comes_again_is_refused_unless_domains_merge() {
    let files = [
        ("one.yaml", "domain: rl\ndescriptors: [{key: a}]\n"),
        ("two.yaml", "domain: rl\ndescriptors: [{key: b}]\n"),
        ("three.yaml", "domain: other\n"),
    ];
    let error = Rules::builder().parse(files).unwrap_err();
    let [problem] = error.problems() else {
        panic!("{error}");
    };
    assert_eq!((problem.code(), problem.file()), ("R03", Some("two.yaml")));
    assert!(problem.message().contains("one.yaml:1"), "{problem}");
    let merged = Rules::builder().merge_domains(true).parse(files).unwrap();
    assert_eq!(merged.domains().count(), 2);
    let twice = [files[0], ("again.yaml", files[0].1)];
    let error = Rules::builder()
        .merge_domains(true)
        .parse(twice)
        .unwrap_err();
    assert!(
        error.to_string().contains("duplicate descriptor"),
        "{error}"
    );
}

#[test]
fn one_bad_file_refuses_all() {
    let files = [
        ("good.yaml", "domain: rl\n"),
        ("bad.yaml", "domain: [\n"),
        ("worse.yaml", "domain: x\ndomian: y\n"),
    ];
    let error = Rules::builder().parse(files).unwrap_err();
    let files: Vec<_> = error.problems().iter().map(Problem::file).collect();
    assert_eq!(files, [Some("bad.yaml"), Some("worse.yaml")]);
}

/// The reference uses the last of them; for domains see below.
#[test]
fn keys_that_stand_twice_are_refused() {
    check(
        "domain: rl\ndescriptors:\n  - key: a\n    key: b\n",
        &[("R03", 4, 5, "is taken: rules.yaml:3")],
    );
    check(
        "domain: rl\ndescriptors:\n  - {key: a, metadata: {b: {c: 1, c: 2}}}\n",
        &[("R03", 3, 35, "\"c\" is taken")],
    );
}

fn warnings(text: &str) -> Vec<(&'static str, Option<usize>)> {
    let rules = Rules::builder().parse([("rules.yaml", text)]);
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    let warnings = rules.warnings().iter();
    warnings
        .map(|problem| (problem.code(), problem.line()))
        .collect()
}

#[test]
fn known_keys_in_the_wrong_place_are_warnings() {
    let text = "domain: rl
shadow_mode: true
descriptors:
  - key: a
    requests_per_unit: 5
    rate_limit:
      unit: minute
      shadow_mode: true
      replaces: [{name: b, value: c}]
";
    let w32 = |line| ("W32", Some(line));
    assert_eq!(warnings(text), [w32(2), w32(5), w32(8), w32(9)]);
}

/// Modes are not inherited.
#[test]
fn modes_without_a_limit_are_warnings() {
    let text = "domain: rl
descriptors:
  - key: a
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    descriptors:
      - key: b
        shadow_mode: true
        rate_limit: {unit: minute, requests_per_unit: 5}
  - key: c
    shadow_mode: false
    descriptors: []
";
    let w32 = |line| ("W32", Some(line));
    assert_eq!(warnings(text), [w32(4), w32(5), w32(6)]);
}

#[test]
fn a_manifest_of_kubernetes_is_told() {
    check(
        "apiVersion: v1\nkind: ConfigMap\ndata: {rl.yaml: \"domain: rl\"}\n",
        &[("R02", 2, 7, "the rules are in its `data`")],
    );
}

/// Editors of Windows begin a file with a byte order mark.
#[test]
fn a_byte_order_mark_is_no_part_of_the_file() {
    let two = "\u{feff}domain: a\ndescriptors: []\ndomain: b\ndescriptors: []\n";
    assert_eq!(warnings(two), [("W33", Some(3))]);
    check(
        "\u{feff}domain: rl\ndomian: x\n",
        &[("R02", 2, 1, "unknown key")],
    );
}

#[test]
fn limits_with_the_same_keys_in_another_order_have_a_warning() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let text = format!(
        "domain: d
descriptors:
  - key: user
    {limit}
    descriptors:
      - {{key: path, {limit}}}
      - {{key: path, value: /, {limit}}}
  - key: path
    value: /buy
    descriptors:
      - {{key: user, {limit}}}
      - {{key: other, {limit}}}
"
    );
    assert_eq!(warnings(&text), [("W34", Some(11))]);
    let other = text
        .replace("domain: d", "domain: other")
        .replace("key: path\n    value", "key: place\n    value");
    assert_eq!(warnings(&other), []);
}

#[test]
fn several_domains_of_a_file_are_read_with_a_warning() {
    let limit = "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
    let apart = format!("domain: one\n{limit}---\ndomain: two\n{limit}--- # end\n");
    let joined = format!("# both\ndomain: one\n{limit}\ndomain: two\n{limit}");
    for (text, line) in [(apart, 3), (joined, 5)] {
        assert_eq!(warnings(&text), [("W33", Some(line))]);
        let rules = Rules::builder()
            .parse([("rules.yaml", text.clone())])
            .unwrap();
        assert_eq!((rules.domains().count(), rules.len()), (2, 2), "{text}");
    }
    let lone = format!("---\n{limit}domain: one\n");
    assert_eq!(warnings(&lone), []);
    let error = refused("domain: one\n---\ndomain: two\nx: 1\n");
    assert_eq!(error.problems()[0].line(), Some(4));
}

#[test]
fn anchors_and_merge_keys_are_resolved() {
    let text = "domain: rl
descriptors:
  - key: a
    rate_limit: &limit
      unit: minute
      requests_per_unit: 5
  - key: b
    rate_limit:
      <<: *limit
      requests_per_unit: 6
";
    assert_eq!(warnings(text), []);
    let bomb = (0..30).fold(
        "domain: rl\ndescriptors: []\nmetadata:\n  - &a0 [x, x]\n".to_owned(),
        |text, at| text + &format!("  - &a{} [*a{at}, *a{at}]\n", at + 1),
    );
    assert!(
        refused(&bomb).to_string().contains("more than"),
        "of aliases of aliases"
    );
}

#[test]
fn json_is_read_as_well() {
    let text = r#"{"domain": "rl", "descriptors": [{"key": "a", "rate_limit": {"unit": "DAY", "requests_per_unit": 1}}]}"#;
    assert_eq!(warnings(text), []);
    assert!(
        refused(&text.replace("unit\"", "units\""))
            .to_string()
            .contains("units")
    );
}

#[test]
fn directories_are_read_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("b.yaml", "domain: b\n");
    write("a.yml", "domain: a\n");
    write("notes.txt", "no rules");
    let rules = Rules::builder().read(&[folder.path()]).unwrap();
    assert_eq!(rules.domains().count(), 2);
    let missing = Rules::builder().read(&[folder.path().join("none.yaml")]);
    assert!(missing.unwrap_err().to_string().contains("none.yaml"));
}

/// Invalid extensions.
#[test]
fn quotas_that_cannot_be_counted_are_refused() {
    let own = |words: &str| limit(&format!("{{unit: day, requests_per_unit: 5, {words}}}"));
    for (words, code, column, reported) in [
        ("algorithm: gcra", "R04", 52, "\"gcra\""),
        ("burst: 5", "R04", 7, "burst"),
        ("slices: 5", "R04", 7, "slices"),
        ("soft: 2000", "R04", 7, "soft"),
        ("soft: 5%", "R04", 47, "whole number"),
        ("unit_multiplier: 0", "R04", 58, "at least 1"),
        ("unit_multiplier: 999999", "R04", 58, "18 years"),
    ] {
        check(&own(words), &[(code, 5, column, reported)]);
    }
    // At other places they are as unknown as in the reference.
    check(
        "domain: rl\ndescriptors:\n  - {key: a, burst: 5}\n",
        &[("R02", 3, 14, "unknown key")],
    );
}
