//! The page on rule files: its files load and do what the page promises, and its table has all fields.

use std::collections::BTreeSet;

use tower_ratelimit::{
    clock::Timestamp,
    rules::{Format, RuleReason, Rules, RulesOutcome, schema},
};

use crate::request_builders::{NOON, at, explain, from, reason};

const PAGE: &str = include_str!("../../crates/rules/docs/rules.md");

/// The rule files of the section with the six.
fn files() -> Vec<Rules> {
    let (_, section) = PAGE.split_once("\n## Six files\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let blocks = section.split("\n```").skip(1).step_by(2);
    let read = |block: &str| {
        let (format, text) = block.split_once('\n').expect("a format");
        let format = Format::of_path(format!("x.{format}").as_ref()).expect("a format");
        Rules::builder()
            .parse(text, format)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    blocks.map(read).collect()
}

/// The file of the section on overflow.
#[test]
fn its_file_with_overflow_is_read() {
    let (_, section) = PAGE.split_once("\n## Overflow\n").expect("the section");
    let (_, block) = section.split_once("```yaml\n").expect("a file");
    let (text, _) = block.split_once("```").expect("its end");
    let rules = Rules::builder().parse(text, Format::Yaml);
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    assert!(rules.warnings().is_empty());
    let explanation = explain(&rules, "GET /reports/7", &[]);
    let overflows = explanation.rules().iter();
    let overflows = overflows.map(|rule| rule.limit().expect("a limit").overflows);
    assert_eq!(overflows.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn its_six_files_do_what_the_page_states() {
    let files = files();
    let [login, plans, tenant, night, weighted, shadow] = files.as_slice() else {
        panic!("{} files", files.len());
    };

    let explanation = explain(login, "POST /login/", &[]);
    let limit = explanation.rules()[0].limit().expect("a limit");
    assert_eq!(limit.quotas[0].quota().to_string(), "5/60s sliding_log");

    let gateway = plans.explain(&from("10.1.2.3", "GET /v1/x", &[]), NOON);
    assert_eq!(*gateway.outcome(), RulesOutcome::Allowed("internal".into()));
    let customer = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-plan", "pro"),
        ("x-api-key", "k"),
    ];
    let customer = plans.explain(&from("10.1.2.3", "POST /v1/x", &customer), NOON);
    let limit = customer.rules()[1].limit().expect("a limit");
    assert_eq!((limit.tier.as_deref(), limit.cost), (Some("pro"), 5));
    assert_eq!(limit.key, Ok(tower_ratelimit::Key::digest(b"k")));

    let acme = [("authorization", "Bearer t"), ("x-tenant", "acme")];
    let acme = explain(tenant, "GET /export/7", &acme);
    assert_eq!(
        *reason(&acme, "export"),
        RuleReason::ReplacedBy("export-acme".into())
    );

    let quotas = |hours: u64| {
        // From Friday, 2026-11-20T00:00Z.
        let now = Timestamp::from_secs(1_795_132_800 + hours * 3_600);
        let explanation = at(night, now, "POST /reports/x", &[]);
        let quotas = explanation.rules()[0]
            .limit()
            .expect("a limit")
            .quotas
            .clone();
        quotas
            .iter()
            .map(|quota| quota.quota().to_string())
            .collect::<String>()
    };
    assert_eq!(
        [quotas(12), quotas(21), quotas(36)],
        ["10/60s", "100/60s", ""]
    );
    assert_eq!(explain(night, "GET /reports/x", &[]).applied().count(), 0);

    let explanation = explain(weighted, "GET /search", &[]);
    let limit = explanation.rules()[0].limit().expect("a limit");
    assert_eq!(
        limit.quotas[0].quota().to_string(),
        "200/600s sliding_window slices 5 varying 00:00=200/06:00=100/22:00=200 in Europe/Berlin"
    );

    let explanation = explain(shadow, "GET /search?q=x", &[]);
    assert_eq!(explanation.applied().collect::<Vec<_>>(), ["all", "search"]);
    assert!(explanation.rules()[1].is_shadow() && !explanation.rules()[0].is_shadow());
}

#[test]
fn its_first_file_loads() {
    let (_, text) = PAGE.split_once("```yaml\n").expect("a file");
    let (text, _) = text.split_once("```").expect("its end");
    let rules = Rules::builder().parse(text, Format::Yaml);
    assert_eq!(rules.unwrap_or_else(|error| panic!("{error}")).len(), 2);
}

#[test]
fn its_table_has_every_field_of_the_schema() {
    let (_, table) = PAGE.split_once("\n## Fields\n").expect("the section");
    let (table, _) = table.split_once("\n## ").expect("its end");
    let reported: BTreeSet<&str> = table
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|code| code.split(['.', '[', ']']))
        .collect();
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("JSON");
    let definitions = schema["$defs"].as_object().expect("definitions").values();
    let mut fields = BTreeSet::new();
    for table in definitions.chain([&schema]) {
        let properties = table["properties"].as_object();
        fields.extend(
            properties
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str()),
        );
    }
    assert!(fields.len() > 50, "{fields:?}");
    let missing: Vec<_> = fields.difference(&reported).collect();
    assert!(missing.is_empty(), "the page says nothing of {missing:?}");
}

#[test]
fn its_table_has_every_code() {
    let codes = (1..=11)
        .map(|at| format!("R{at:02}"))
        .chain([21, 22, 23, 26, 27, 28, 29].map(|at| format!("W{at}")));
    for code in codes {
        assert!(PAGE.contains(&format!("\n| {code} | ")), "{code}");
    }
}
