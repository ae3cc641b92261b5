//! Files and directories, equal formats, and what a reload changes.

use std::fs;

use testkit::child_processes::missing;
use tower_ratelimit::{
    quota::OwnedQuota,
    rules::{Format, Rules, RulesError, schema},
};

use crate::request_builders::{applied, explain, read, yaml};

#[test]
fn the_three_formats_are_equivalent() {
    let yaml = "quotas: {free: [10/second]}\nrules:\n  - &base\n    name: a\n    match: {path: [/a, /b], header: {x-v: 1.10}}\n    quota: free\n    stop: true\n  - <<: *base\n    name: b\n    stop: false\n";
    let json = r#"{"quotas": {"free": ["10/second"]}, "rules": [
        {"name": "a", "match": {"path": ["\/a", "/b"], "header": {"x-v": 1.10}}, "quota": "free", "stop": true},
	{"stop": false, "name": "b", "match": {"path": ["/a", "/\u0062"], "header": {"x-v": "1.10"}}, "quota": "free"}]}"#;
    let toml = "quotas.free = [\"10/second\"]\n[[rules]]\nname = \"a\"\nquota = \"free\"\nstop = true\n[rules.match]\npath = [\"/a\", \"/b\"]\nheader.x-v = 1.10\n[[rules]]\nname = \"b\"\nquota = 'free'\nstop = false\nmatch = {path = [\"/a\", \"/b\"], header = {x-v = \"1.10\"}}\n";
    let read = [
        (yaml, Format::Yaml),
        (json, Format::Json),
        (toml, Format::Toml),
    ]
    .map(|(text, format)| {
        Rules::builder()
            .parse(text, format)
            .unwrap_or_else(|error| panic!("{format:?}: {error}"))
    });
    for rules in &read {
        let changes = rules.changes_since(&read[0]);
        assert_eq!(changes.kept, ["a", "b"], "{changes}");
        assert_eq!(applied(rules, "GET /a", &[("x-v", "1.10")]), "a");
    }
}

#[test]
fn files_of_a_directory_are_one_list() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    write("20.yaml", "rules: [{name: b, quota: free}]");
    write(
        "10.json",
        r#"{"quotas": {"free": "1/s"}, "rules": [{"name": "a", "quota": "free"}]}"#,
    );
    write("30.toml", "[[rules]]\nname = \"c\"\nquota = \"2/s\"\n");
    write("..data", "rules: [{name: a, quota: 1/s}]");
    write(".hidden.yaml", "rules: [{name: a, quota: 1/s}]");
    write("README.md", "# not a rule");
    fs::create_dir(dir.path().join("more.yaml")).expect("a directory");
    let rules = Rules::from_path(dir.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rules.names().collect::<Vec<_>>(), ["a", "b", "c"]);

    write(
        "40.yml",
        "quotas: {free: 2/s}\nrules: [{name: b, quota: 2/s}]",
    );
    let error = Rules::from_path(dir.path()).expect_err("two faults");
    let codes: Vec<_> = error
        .problems()
        .iter()
        .map(|p| (p.code(), p.line()))
        .collect();
    assert_eq!(codes, [("R03", Some(1)), ("R03", Some(2))], "{error}");
    assert!(error.to_string().contains("is taken: "), "{error}");
    assert!(
        error.problems()[1].message().ends_with("20.yaml:1"),
        "{error}"
    );
}

#[test]
fn a_setting_appears_in_one_file_only() {
    let texts = ["one", "two"].map(|name| {
        (
            name,
            format!("store: {{max_keys: 5}}\nrules: [{{name: {name}, quota: 1/s}}]"),
            Format::Yaml,
        )
    });
    let error = Rules::builder().parse_all(texts).expect_err("said twice");
    assert!(
        error
            .to_string()
            .starts_with("two:1:1: R03 \"store\" is taken: one:1"),
        "{error}"
    );
}

#[test]
fn errors_of_reading_are_distinct() {
    let unreadable = |error: RulesError| {
        assert!(error.is_unreadable(), "{error}");
        error.to_string()
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("none.yaml");
    assert!(unreadable(Rules::from_path(&path).expect_err("missing")).contains("none.yaml"));
    fs::write(&path, b"\xff\xfe").expect("written");
    unreadable(Rules::from_path(&path).expect_err("not UTF-8"));
    let other = dir.path().join("rules.conf");
    fs::write(&other, "").expect("written");
    assert!(
        unreadable(Rules::from_path(&other).expect_err("a format"))
            .contains("yaml, yml, json, toml")
    );
    fs::write(&path, "rules: 5").expect("written");
    assert!(
        !Rules::from_path(&path)
            .expect_err("a fault")
            .is_unreadable()
    );
}

#[test]
fn a_reload_reports_its_changes() {
    let old = "rules:\n  - {name: same, quota: 1/s}\n  - {name: limit, quota: 5/minute burst 9}\n  - {name: algorithm, quota: 5/minute}\n  - {name: period, quota: 5/minute}\n  - {name: match, quota: 1/s}\n  - {name: gone, quota: 1/s}\n  - {name: quotas, quota: [1/s, 5/minute]}\n";
    let new = "rules:\n  - {quota: 1/s, name: new}\n  - {quota: 1/s, name: same}\n  - {name: limit, quota: 7/minute}\n  - {name: algorithm, quota: 5/minute fixed_window}\n  - {name: period, quota: 5/hour}\n  - {name: match, quota: 1/s, match: {path: /x}}\n  - {name: quotas, quota: [2/s]}\n";
    let changes = yaml(new)
        .expect("rules")
        .changes_since(&yaml(old).expect("rules"));
    assert_eq!(
        changes.to_string(),
        "added: new\nremoved: gone\nchanged: limit, match, quotas\nrestarted: algorithm, period\nkept: same
  limit: 5/60s burst 9 is now 7/60s; counts are kept, and a key that was used up has its next unit after at most 9 s
  algorithm: 5/60s is now 5/60s fixed_window; all keys start afresh
  period: 5/60s is now 5/3600s; all keys start afresh
  `on_change: fresh` in a rule frees its keys when numbers change, a reset frees one key"
    );
    let defaults = format!("defaults: {{key: global}}\n{old}");
    let changes = yaml(&defaults)
        .expect("rules")
        .changes_since(&yaml(old).expect("rules"));
    assert_eq!(changes.kept.len(), 0, "{changes}");
}

#[test]
fn a_reload_with_another_zone_or_first_day_starts_keys_afresh() {
    let of = |quota: &str| yaml(&format!("rules: [{{name: a, quota: {quota}}}]")).expect("a rule");
    let old = of("5/month in Europe/Berlin");
    for (quota, restarted) in [
        ("7/month in Europe/Berlin", false),
        ("5/month in Europe/Paris", true),
        ("5/month", true),
        ("5/month starting_on 15 in Europe/Berlin", true),
        ("5/30d fixed_window", true),
    ] {
        let changes = of(quota).changes_since(&old);
        assert_eq!(changes.restarted.len(), usize::from(restarted), "{quota}");
    }
    let larger = of("7/month in Europe/Berlin")
        .changes_since(&old)
        .to_string();
    let report = "a: 5/month in Europe/Berlin is now 7/month in Europe/Berlin; counts are kept, and a key \
                  that was used up has 2 at once";
    assert!(larger.contains(report), "{larger}");
}

#[test]
fn a_quota_as_a_table_is_the_quota_as_a_text() {
    let quotas = |quota: &str| {
        let rules = yaml(&format!("rules: [{{name: a, quota: {quota}}}]"))
            .unwrap_or_else(|error| panic!("{error}"));
        explain(&rules, "GET /x", &[]).rules()[0]
            .limit()
            .expect("a limit")
            .quotas
            .clone()
    };
    for (table, text) in [
        (
            "{rate: 5/minute, burst: 7, soft: 10, refill_every: 30s}",
            "5/minute burst 7 soft 10% refill_every 30s",
        ),
        (
            "{rate: 5/minute, algorithm: leaky_bucket, queue: 2}",
            "5/minute leaky_bucket queue 2",
        ),
        (
            "{rate: 6/minute, algorithm: sliding_window, slices: 6}",
            "6/minute sliding_window slices 6",
        ),
        (
            "{rate: 5/month, zone: Europe/Berlin, starting_on: 15}",
            "5/month starting_on 15 in Europe/Berlin",
        ),
        (
            "{rate: 5/day, zone: Pacific/Apia, soft: 10}",
            "5/day soft 10 in Pacific/Apia",
        ),
        ("{rate: 5/minute, debt: 20}", "5/minute debt 20"),
        (
            "{rate: 5/minute, algorithm: sliding_log, debt: 0}",
            "5/minute sliding_log",
        ),
        (
            "{rate: 5/minute fixed_window, name: x}",
            "5/minute fixed-window",
        ),
        (
            "{rate: 5/day fixed_window, zone: \"Europe/Berlin \"}",
            "5/day fixed-window in Europe/Berlin",
        ),
    ] {
        assert_eq!(quotas(table), quotas(text), "{text}");
    }
    for name in ["\"a b\"", "x"] {
        let two = quotas(&format!("[1/s, {{rate: 5/minute, name: {name}}}]"));
        assert_eq!(
            two[1].name(),
            Some(&*format!("a.{}", name.trim_matches('"')))
        );
    }
}

#[test]
fn a_field_of_a_quota_has_no_words_of_other_settings() {
    for (fields, message) in [
        ("unit: tokens burst 7", "\"tokens burst 7\" is no unit"),
        (
            "refill_every: 30s burst 7",
            "refill_every: \"30s burst 7\" is no period",
        ),
        (
            "algorithm: fixed_window, varying: 00:00=5 debt 7",
            "is no time with a limit",
        ),
    ] {
        let read = yaml(&format!(
            "rules: [{{name: a, quota: {{rate: 5/minute, {fields}}}}}]"
        ));
        let error = read.expect_err(fields).to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn the_schema_is_the_committed_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.schema.json");
    let committed = fs::read_to_string(path).unwrap_or_default();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(path, schema()).expect("written");
    } else {
        assert!(
            committed == schema(),
            "run the test again with UPDATE_SCHEMA=1, and look at the change"
        );
    }
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("JSON");
    for (_, reference) in references(&schema) {
        let name = reference.trim_start_matches("#/$defs/").to_owned();
        assert!(schema["$defs"].get(&name).is_some(), "{name}");
    }
}

fn references(value: &serde_json::Value) -> Vec<(String, String)> {
    match value {
        serde_json::Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value.as_str() {
                Some(reference) if name == "$ref" => vec![(name.clone(), reference.to_owned())],
                _ => references(value),
            })
            .collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Another program's reading of the schema accepts the example.
#[test]
fn the_example_is_valid_by_its_schema() {
    let python = |script: &str| {
        let python = std::process::Command::new("python3")
            .args(["-c", script])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        python.ok()
    };
    let imported = python("import jsonschema, yaml");
    if missing(
        imported.is_some_and(|output| output.status.success()),
        "python3 with jsonschema and yaml",
        "apt-get install python3-jsonschema python3-yaml",
    ) {
        return;
    }
    let script = "
import json, jsonschema, yaml
schema = json.load(open('rules.schema.json'))
jsonschema.Draft202012Validator.check_schema(schema)
check = jsonschema.Draft202012Validator(schema)
check.validate(yaml.safe_load(open('tests/rules/files/example.yaml')))
assert not check.is_valid({'rules': [{'name': 'a', 'metod': 'GET'}]})
assert not check.is_valid({'rules': [{'name': 'a', 'mode': 'shaddow'}]})
";
    let checked = python(script).expect("python3");
    let reported = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{reported}");
    assert!(read("example.yaml").is_ok());
}

#[test]
fn several_quotas_stand_in_one_text() {
    let quotas = |text: &str| {
        let rules = yaml(&format!("rules: [{{name: a, quota: {text}}}]"));
        let rules = rules.unwrap_or_else(|error| panic!("{error}"));
        let explanation = explain(&rules, "GET /", &[]);
        let limit = explanation.rules()[0].limit().expect("a limit");
        let named =
            |quota: &OwnedQuota| format!("{} {}", quota.name().expect("a name"), quota.quota());
        limit.quotas.iter().map(named).collect::<Vec<_>>()
    };
    let expected = ["a.10-per-1s 10/1s", "a.1000-per-3600s 1000/3600s"];
    assert_eq!(quotas("10/second; 1000/hour"), expected);
    assert_eq!(quotas("[10/second, 1000/hour]"), expected);
    assert_eq!(quotas("[\"10/second; 1000/hour\", 5/d]").len(), 3);
    let error = yaml("rules: [{name: a, quota: \"10/second;\"}]").expect_err("a fault");
    assert!(error.to_string().contains("\"\" is no quota"), "{error}");
}
