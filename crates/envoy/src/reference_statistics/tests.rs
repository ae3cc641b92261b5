//! Statistics of requests that are decided.

use super::*;
use crate::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{Entry, RateLimitDescriptor, RateLimitRequest},
};

const RULES: &str = "domain: rl
descriptors:
  - {key: ten, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: user, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_log}}
  - {key: 'q*', rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: w, value: 'x*', rate_limit: {unit: year, requests_per_unit: 10}}
  - key: a
    descriptors: [{key: b, value: c, rate_limit: {unit: year, requests_per_unit: 10}}]
";

fn limits(modes: Modes) -> RateLimits {
    let store = tower_ratelimit::LocalStore::new();
    let limits = RateLimits::new(Counters::local(&store), modes);
    limits.set_rules(rules(RULES));
    limits
}

fn rules(text: &str) -> Rules {
    let rules = Rules::builder().parse([("rules.yaml", text)]);
    rules.expect("rules")
}

async fn call(limits: &RateLimits, entries: &[(&str, &str)], units: i64) {
    let request = request([(entries, units)]);
    limits.decide(&request).await.expect("a decision");
}

/// A request of these entries and units, which are given back if they are negative.
fn request<'d>(
    descriptors: impl IntoIterator<Item = (&'d [(&'d str, &'d str)], i64)>,
) -> RateLimitRequest {
    let descriptors = descriptors
        .into_iter()
        .map(|(entries, units)| descriptor(entries, units));
    RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: 0,
    }
}

fn descriptor(entries: &[(&str, &str)], units: i64) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        limit: None,
        hits_addend: Some(units.unsigned_abs()),
        is_negative_hits: units < 0,
    }
}

fn of(limits: &RateLimits, name: &str) -> [u64; COUNTS.len()] {
    let all = limits.statistics().all();
    let found = all.iter().find(|(known, _)| known.to_string() == name);
    found.unwrap_or_else(|| panic!("{name} of {all:?}")).1
}

/// Eight of ten are not near; units that cross a bound count on either side of it.
#[tokio::test]
async fn units_that_cross_a_bound_are_split() {
    let limits = limits(Modes::default());
    for key in ["ten", "log"] {
        let name = format!("rl.{key}");
        let mut expected = [0; COUNTS.len()];
        for (units, [over, near, within]) in [
            (7, [0, 0, 7]),
            (1, [0, 0, 1]),
            (0, [0, 0, 0]),
            (1, [0, 1, 1]),
            (3, [2, 1, 0]),
            (4, [4, 0, 0]),
        ] {
            // A log takes nothing of what does not fit.
            if key == "log" && units == 3 {
                break;
            }
            call(&limits, &[(key, "x")], units).await;
            for (count, more) in expected.iter_mut().zip([units as u64, over, near, within]) {
                *count += more;
            }
            assert_eq!(of(&limits, &name), expected, "{key} {units}");
        }
    }
    call(&limits, &[("ten", "y")], 12).await;
    assert_eq!(
        of(&limits, "rl.ten"),
        [28, 8, 4, 9, 0, 0],
        "from below both"
    );
    call(&limits, &[("ten", "x")], -3).await;
    assert_eq!(of(&limits, "rl.ten"), [28, 8, 4, 9, 0, 3]);
}

#[tokio::test]
async fn shadows_and_names() {
    let limits = limits(Modes::default().near_limit(0.5));
    call(&limits, &[("shadow", "x")], 2).await;
    call(&limits, &[("shadow", "x")], 1).await;
    assert_eq!(of(&limits, "rl.shadow"), [3, 1, 1, 2, 1, 0]);
    // Units that cross the limit are in shadow beyond it.
    call(&limits, &[("shadow", "y")], 1).await;
    call(&limits, &[("shadow", "y")], 5).await;
    assert_eq!(of(&limits, "rl.shadow"), [9, 5, 2, 3, 5, 0]);
    call(&limits, &[("a", "1"), ("b", "c")], 1).await;
    call(&limits, &[("free", "x")], 1).await;
    call(&limits, &[("unmatched", "x")], 1).await;
    let all = limits.statistics().all();
    let names = all.iter().map(|(name, _)| name);
    let labels: Vec<_> = names
        .map(|name| name.labels().map(|label| label.1))
        .collect();
    assert_eq!(labels, [["rl", "a", "b_c", ""], ["rl", "shadow", "", ""]]);
}

/// Callers must not be able to create series without bound.
#[tokio::test]
async fn names_of_values_are_bounded() {
    let limits = limits(Modes::default());
    for value in 0..MOST_VALUES + 5 {
        call(&limits, &[("user", &value.to_string())], 1).await;
    }
    call(&limits, &[("user", "0")], 1).await;
    assert_eq!(limits.statistics().all().len(), MOST_VALUES + 1);
    assert_eq!(of(&limits, "rl.other")[0], 5);
    assert_eq!(of(&limits, "rl.user_0")[0], 2);
}

/// The values are the clients', of any length.
#[tokio::test]
async fn names_of_long_values_share_one() {
    let limits = limits(Modes::default());
    let fits = "x".repeat(LONGEST_VALUES - "rl.user_".len());
    call(&limits, &[("user", &fits)], 1).await;
    assert_eq!(of(&limits, &format!("rl.user_{fits}"))[0], 1);
    for longer in ["y", "z"] {
        call(&limits, &[("user", &format!("{fits}{longer}"))], 1).await;
    }
    assert_eq!(limits.statistics().all().len(), 2);
    assert_eq!(of(&limits, "rl.other")[0], 2);
    // The file's own names are no longer than the file.
    let key = "k".repeat(LONGEST_VALUES);
    limits.set_rules(rules(&RULES.replace("key: ten", &format!("key: {key}"))));
    call(&limits, &[(&key, "x")], 1).await;
    assert_eq!(of(&limits, &format!("rl.{key}"))[0], 1);
}

#[tokio::test]
async fn unused_names_are_dropped() {
    let limits = limits(Modes::default());
    let names = |limits: &RateLimits| {
        let all = limits.statistics().all();
        let names = all.iter().map(|(name, _)| name.to_string());
        names.collect::<Vec<_>>()
    };
    for value in ["1", "2"] {
        call(&limits, &[("user", value)], 1).await;
    }
    call(&limits, &[("ten", "x")], 1).await;
    limits.set_rules(rules(RULES));
    assert_eq!(names(&limits), ["rl.ten", "rl.user_1", "rl.user_2"]);
    call(&limits, &[("user", "2")], 1).await;
    limits.set_rules(rules(RULES));
    assert_eq!(names(&limits), ["rl.ten", "rl.user_2"]);
    assert_eq!(of(&limits, "rl.user_2")[0], 2, "it continues");
    limits.set_rules(rules(&RULES.replace("domain: rl", "domain: other")));
    assert_eq!(names(&limits), [""; 0]);
}

#[tokio::test]
async fn denied_requests_that_are_not_charged_count_once() {
    let limits = limits(Modes::default().charge_admitted(true));
    call(&limits, &[("ten", "x")], 9).await;
    call(&limits, &[("ten", "x")], 3).await;
    call(&limits, &[("ten", "x")], 1).await;
    assert_eq!(of(&limits, "rl.ten"), [13, 2, 3, 10, 0, 0]);
}

#[tokio::test]
async fn dry_runs_are_not_counted() {
    let limits = limits(Modes::default());
    for units in [1, 11, -5] {
        let request = request([(&[("ten", "x")][..], units)]);
        limits.dry_run(&request).await.expect("a decision");
    }
    assert!(limits.statistics().all().is_empty());
}

#[tokio::test]
async fn units_that_a_denied_request_would_give_back_are_none() {
    let limits = limits(Modes::default().charge_admitted(true));
    let both = [(&[("ten", "x")][..], 11), (&[("log", "x")][..], -5)];
    limits.decide(&request(both)).await.expect("a decision");
    assert_eq!(of(&limits, "rl.ten"), [11, 1, 2, 0, 0, 0]);
    let all = limits.statistics().all();
    assert!(!all.iter().any(|(name, _)| name.to_string() == "rl.log"));
}

/// Where a pattern has a `*` in the key, the name has the caller's key.
#[tokio::test]
async fn names_of_keys_that_a_pattern_covers_are_bounded() {
    let limits = limits(Modes::default());
    for key in 0..MOST_VALUES + 5 {
        call(&limits, &[(&format!("q{key}"), "")], 1).await;
    }
    assert_eq!(limits.statistics().all().len(), MOST_VALUES + 1);
    assert_eq!(of(&limits, "rl.other")[0], 5);
    // Values alone make no names.
    for value in ["x1", "x2"] {
        call(&limits, &[("w", value)], 1).await;
    }
    assert_eq!(of(&limits, "rl.w_x*")[0], 2);
}
