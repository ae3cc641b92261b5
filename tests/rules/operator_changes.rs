//! Operators' hands: rules that are switched off, quotas that are changed, keys that are inspected.

use std::fs;

use tempfile::TempDir;
use tower_ratelimit::{
    Key, LocalStore, Quota,
    clock::ManualClock,
    observe::TopKeys,
    rules::{Format, Rules, RulesHandle, RulesLayer},
};

use super::layer::{Ruled, store};

const RULES: &str = "rules:
  - {name: first, match: {path: /}, key: global, quota: 2/hour}
  - {name: second, match: {path: /}, key: global, quota: 4/hour}
";

struct Bench {
    directory: TempDir,
    ruled: Ruled,
    handle: RulesHandle,
}

impl Bench {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, RULES).expect("a file");
        let clock = ManualClock::new();
        let rules = Rules::builder().store(store(&clock)).read(&path);
        let layer = RulesLayer::new(rules.expect("rules"));
        let handle = layer.handle();
        Self {
            directory,
            ruled: Ruled::new(layer, clock),
            handle,
        }
    }

    async fn get(&self) -> u16 {
        self.ruled.get("/").await
    }
}

#[tokio::test]
async fn rule_that_is_off_is_as_if_it_were_not_there() {
    let bench = Bench::new();
    for status in [200, 200, 429] {
        assert_eq!(bench.get().await, status);
    }
    bench.handle.set_enabled(Some("first"), false);
    assert!(!bench.handle.rules().is_enabled("first"));
    assert!(bench.handle.rules().is_enabled("second"));
    // The other rule was not charged for the denied request.
    for status in [200, 200, 429] {
        assert_eq!(bench.get().await, status);
    }
    bench.handle.reload().expect("rules");
    assert!(!bench.handle.rules().is_enabled("first"), "after a reload");
    bench.handle.set_enabled(None, false);
    assert_eq!(bench.get().await, 200);
    // All are on again, but for the one that was switched off by itself.
    bench.handle.set_enabled(None, true);
    assert_eq!(bench.get().await, 429);
    bench.handle.set_enabled(Some("second"), false);
    assert_eq!(bench.get().await, 200);
    bench.handle.set_enabled(Some("first"), true);
    assert_eq!(bench.get().await, 429, "its counts stayed");
}

#[tokio::test]
async fn changed_quota_lasts_until_the_rules_are_read_again() {
    let bench = Bench::new();
    for status in [200, 200, 429] {
        assert_eq!(bench.get().await, status);
    }
    let more = Quota::per_hour(3);
    bench
        .handle
        .set_quota("first", Some(more))
        .expect("a quota");
    bench.handle.set_quota("first", None).expect("the file's");
    assert_eq!(bench.get().await, 429);
    bench
        .handle
        .set_quota("second", Some(Quota::per_hour(1)))
        .expect("a quota");
    assert_eq!(bench.get().await, 429);
    let first = bench.handle.rules().limiter_of("first").expect("a limiter");
    first.reset(&Key::global()).await.expect("a decision");
    assert_eq!(bench.get().await, 429, "by the second");
    bench.handle.reload().expect("rules");
    assert_eq!(bench.get().await, 200);
    for (policy, quota) in [
        ("third", Quota::per_hour(3)),
        ("first", Quota::per_hour(3).fixed_window()),
        ("first", Quota::per_hour(0)),
    ] {
        assert!(bench.handle.set_quota(policy, Some(quota)).is_err());
    }
}

#[test]
fn rule_has_its_place_and_its_limiter() {
    let bench = Bench::new();
    let rules = bench.handle.rules();
    let place = rules.place_of("second").expect("a place");
    let file = bench.directory.path().join("rules.yaml");
    assert_eq!(place, format!("{}:3", file.display()));
    assert!(rules.place_of("third").is_none() && rules.limiter_of("third").is_none());
    let limits: Vec<_> = rules
        .policies()
        .map(|policy| (policy.name(), policy.limit()))
        .collect();
    assert_eq!(limits, [("first", 2), ("second", 4)]);
}

#[test]
fn denials_of_no_layer_are_among_the_top() {
    let top = TopKeys::new();
    for _ in 0..2 {
        top.denied(&Key::from("eve"), "by hand");
    }
    let report = top.report(1);
    assert_eq!(report.keys()[0].count(), 2);
    assert_eq!(report.keys()[0].policy(), "by hand");
}

#[test]
fn files_have_the_hashes_that_other_programs_give_them() {
    const TEXT: &str = "rules: [{name: a, key: global, quota: 1/s}]\n";
    const SHA256: &str = "97d98efdc40281b68ed464947d739cd7cf808af14135a8c6337da51a80469edb";
    let directory = TempDir::new().expect("a directory");
    let paths = ["one.yaml", "two.json"].map(|name| directory.path().join(name));
    fs::write(&paths[0], TEXT).expect("a file");
    fs::write(&paths[1], r#"{"rules": []}"#).expect("a file");
    let rules = Rules::builder().read_all(&paths).expect("rules");
    fs::write(&paths[0], "").expect("a file");
    let files: Vec<_> = rules.files().collect();
    assert_eq!(files[0], (paths[0].to_str().expect("a name"), SHA256));
    assert_eq!(files[1].0, paths[1].to_str().expect("a name"));
    assert!(files.len() == 2 && files[1].1 != SHA256);
    let rules = Rules::builder().parse(TEXT, Format::Yaml).expect("rules");
    assert_eq!(rules.files().count(), 0);
}

#[tokio::test]
async fn the_table_of_the_rules_is_available_also_after_a_reload() {
    let bench = Bench::new();
    let keys = || {
        let rules = bench.handle.rules();
        rules.local_store().expect("a table").tracked_keys()
    };
    assert_eq!(keys(), 0);
    bench.get().await;
    // One for each rule.
    assert_eq!(keys(), 2);
    bench.handle.reload().expect("rules");
    bench.handle.set_enabled(Some("first"), false);
    assert_eq!(keys(), 2);
    // Rules without a store in the application have one, too.
    let own = Rules::builder().parse(RULES, Format::Yaml).expect("rules");
    assert_eq!(own.local_store().map(LocalStore::tracked_keys), Some(0));
}
