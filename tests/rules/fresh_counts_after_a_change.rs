//! `on_change`: rules whose keys start afresh when their numbers change, and what the report contains about
//! those that do not.

use std::{fs, time::Duration};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tower_ratelimit::{
    LocalStore, Quota,
    clock::{ManualClock, TokioClock},
    rules::{Format, Rules, RulesLayer},
};

use super::{layer::Ruled, temporary_rules_file::RulesFile};

fn rule(quota: &str, more: &str) -> String {
    format!("rules: [{{name: login, key: global, quota: {quota}{more}}}]")
}

const FRESH: &str = ", on_change: fresh";

#[tokio::test]
async fn raised_limit_that_is_kept_frees_nobody_and_the_report_has_the_time() {
    for (kind, left, line) in [
        (
            "",
            0,
            "  login: 2/60s is now 5/60s; counts are kept, and a key that was used up has its next unit after at most 12 s",
        ),
        (
            " fixed_window",
            3,
            "  login: 2/60s fixed_window is now 5/60s fixed_window; counts are kept, and a key that was used up has 3 at once",
        ),
    ] {
        let file = RulesFile::new(&rule(&format!("2/minute{kind}"), ""));
        assert_eq!(file.drain("/").await, 2);
        let report = file.reload(&rule(&format!("5/minute{kind}"), ""));
        let expected = format!(
            "changed: login\n{line}\n  `on_change: fresh` in a rule frees its keys when numbers change, a reset frees one key"
        );
        assert_eq!(report, expected);
        assert_eq!(file.drain("/").await, left, "{kind}");
    }
}

#[tokio::test]
async fn raised_limit_that_starts_afresh_frees_everybody_at_once() {
    for kind in ["", " fixed_window", " sliding_window", " sliding_log"] {
        let quota = |limit: u32| format!("{limit}/minute{kind}");
        let file = RulesFile::new(&rule(&quota(2), FRESH));
        assert_eq!(file.drain("/").await, 2);
        let report = file.reload(&rule(&quota(5), FRESH));
        assert!(report.starts_with("restarted: login\n"), "{report}");
        assert!(report.ends_with("; all keys start afresh"), "{report}");
        assert_eq!(file.drain("/").await, 5, "{kind}");
        // Another edit of the rule is no change of numbers.
        let other = format!("{FRESH}, headers: []");
        assert_eq!(file.reload(&rule(&quota(5), &other)), "changed: login");
        assert_eq!(file.drain("/").await, 0, "{kind}");
        // Back to what the old numbers hold.
        file.reload(&rule(&quota(2), FRESH));
        assert_eq!(file.drain("/").await, 0, "{kind}");
    }
}

/// One edit is enough: it raises the limit and makes keys start afresh.
#[tokio::test]
async fn edit_that_sets_it_frees_everybody_too() {
    let file = RulesFile::new(&rule("2/minute", ""));
    assert_eq!(file.drain("/").await, 2);
    let report = file.reload(&rule("5/minute", FRESH));
    assert!(report.starts_with("restarted: login\n"), "{report}");
    assert_eq!(file.drain("/").await, 5);
}

#[tokio::test]
async fn defaults_set_it_for_all_rules_and_a_rule_overrides_them() {
    let text = |quota: &str| {
        format!(
            "defaults: {{on_change: fresh, key: global}}
rules:
  - {{name: a, match: {{path: /a}}, quota: {quota}}}
  - {{name: b, match: {{path: /b}}, quota: {quota}, on_change: keep}}
"
        )
    };
    let file = RulesFile::new(&text("2/minute"));
    assert_eq!([file.drain("/a").await, file.drain("/b").await], [2, 2]);
    let report = file.reload(&text("5/minute"));
    assert!(report.starts_with("changed: b\nrestarted: a\n"), "{report}");
    assert_eq!([file.drain("/a").await, file.drain("/b").await], [5, 0]);
}

/// A key that changes its tier keeps what it has used, before a change and after it. The numbers of
/// one tier are the rule's.
#[tokio::test]
async fn tiers_keep_sharing() {
    let text = |free: u32| {
        format!(
            "rules: [{{name: api, key: global, on_change: fresh, tier: {{header: x-plan, default: free, quotas: {{free: {free}/minute, pro: 5/minute}}}}}}]"
        )
    };
    let file = RulesFile::new(&text(2));
    let pro = async || {
        let mut passed = 0;
        for _ in 0..9 {
            let response = file.ruled.send("GET /", &[("x-plan", "pro")]).await;
            passed += usize::from(response.status() == 200);
        }
        passed
    };
    assert_eq!(pro().await + file.drain("/").await, 5);
    let report = file.reload(&text(3));
    assert!(
        report.contains("  api, free: 2/60s is now 3/60s; all keys"),
        "{report}"
    );
    assert_eq!(pro().await + file.drain("/").await + pro().await, 5);
}

#[tokio::test]
async fn set_quota_of_the_handle_reports_its_effect() {
    let file = RulesFile::new(&rule("2/minute", ""));
    assert_eq!(file.drain("/").await, 2);
    let change = file.handle.set_quota("login", Some(Quota::per_minute(5)));
    let change = change.expect("a quota");
    assert!(!change.starts_afresh);
    assert_eq!(change.next_unit, Some(Duration::from_secs(12)));
    assert_eq!(file.drain("/").await, 0);
    // From there, not from the file.
    let change = file.handle.set_quota("login", Some(Quota::per_minute(6)));
    assert_eq!(change.expect("a quota").before, Quota::per_minute(5));

    // The file alone makes keys start afresh.
    let file = RulesFile::new(&rule("2/minute fixed_window", FRESH));
    assert_eq!(file.drain("/").await, 2);
    let five = Quota::per_minute(5).fixed_window();
    let change = file.handle.set_quota("login", Some(five));
    let change = change.expect("a quota");
    assert!(!change.starts_afresh && change.available == 3, "{change}");
    assert_eq!(file.drain("/").await, 3);
    let change = file.handle.set_quota("login", None);
    assert!(!change.expect("a quota").starts_afresh);
    assert_eq!(file.drain("/").await, 0);
    file.reload(&rule("5/minute fixed_window", FRESH));
    assert_eq!(file.drain("/").await, 5);
}

#[test]
fn other_words_are_faults_with_a_remedy() {
    for (value, part) in [
        (
            "frehs",
            "`on_change` is \"keep\" or \"fresh\", not \"frehs\"",
        ),
        ("true", "`on_change` is \"keep\" or \"fresh\", not \"true\""),
        ("[fresh]", "`on_change` is \"keep\" or \"fresh\""),
    ] {
        let text = rule("5/minute", &format!(", on_change: {value}"));
        let error = Rules::builder()
            .parse(&text, Format::Yaml)
            .expect_err(value);
        let reported = error.to_string();
        assert!(reported.contains(part), "{reported}");
        assert!(
            value != "frehs" || reported.contains("did you mean \"fresh\"?"),
            "{reported}"
        );
    }
    let text = "rules: [{name: a, action: allow, on_change: fresh}]";
    let error = Rules::builder()
        .parse(text, Format::Yaml)
        .expect_err("no limit");
    assert!(
        error.to_string().contains("`on_change` is of no use"),
        "{error}"
    );
}

/// Whoever waits for a unit of the old limit stands in nobody's way, and gets it.
#[tokio::test(start_paused = true)]
async fn nobody_stands_behind_those_who_wait_for_the_old_limit() {
    let text = |quota: &str| {
        format!("rules: [{{name: login, key: global, quota: {quota}, wait: 1m, on_change: fresh}}]")
    };
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("rules.yaml");
    fs::write(&path, text("2/minute")).expect("a file");
    let store = LocalStore::builder().clock(TokioClock::new()).build();
    let rules = Rules::builder().store(store.expect("a store")).read(&path);
    let layer = RulesLayer::new(rules.expect("rules"));
    let handle = layer.handle();
    let ruled = Ruled::new(layer, ManualClock::new());
    let start = Instant::now();
    assert_eq!([ruled.get("/").await, ruled.get("/").await], [200, 200]);
    let waits = async {
        assert_eq!(ruled.get("/").await, 200);
        start.elapsed()
    };
    let others = async {
        sleep(Duration::from_secs(1)).await;
        fs::write(&path, text("5/minute")).expect("a file");
        handle.reload().expect("rules");
        for _ in 0..5 {
            assert_eq!(ruled.get("/").await, 200);
        }
        start.elapsed()
    };
    let (waited, at) = tokio::join!(waits, others);
    assert_eq!(at, Duration::from_secs(1), "all five at once");
    assert_eq!(waited.as_secs(), 30);
}
