//! Series as Prometheus reads them.

use std::collections::HashSet;

use tower_ratelimit::LocalStore;

use super::*;
use crate::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit},
    serve::Settings,
};

const RULES: &str = "domain: rl
descriptors:
  - {key: a, value: b, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: v, value: 'a:b', rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: v, value: a_b, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 100, algorithm: token_bucket, burst: 20}
  - key: one
    descriptors:
      - {key: b.c, rate_limit: {unit: year, requests_per_unit: 10}}
      - key: b
        descriptors:
          - {key: c, rate_limit: {unit: year, requests_per_unit: 10}}
          - key: c
            value: d
            descriptors: [{key: e, rate_limit: {unit: year, requests_per_unit: 10}}]
";

async fn call(limits: &RateLimits, entries: &[(&str, &str)], limit: Option<u32>) {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    let limit = limit.map(|requests_per_unit| RateLimitOverride {
        requests_per_unit,
        unit: Unit::Year.into(),
        unit_multiplier: None,
    });
    let request = RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: entries.collect(),
            limit,
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    limits.decide(&request).await.expect("a decision");
}

/// The series and their values; fails if a series occurs twice.
async fn series() -> Vec<(String, String)> {
    let limits = RateLimits::new(Counters::local(&LocalStore::new()), Modes::default());
    let rules = Rules::builder().parse([("rules.yaml", RULES)]);
    limits.set_rules(rules.expect("rules"));
    for (entries, limit) in [
        (&[("a", "b")][..], None),
        (&[("a", "b")], Some(3)),
        (&[("one", ""), ("b.c", "")], None),
        (&[("one", ""), ("b", ""), ("c", "")], None),
        (&[("one", ""), ("b", ""), ("c", "d"), ("e", "")], None),
    ] {
        call(&limits, entries, limit).await;
    }
    let source = Source::new(
        Settings::new(Vec::new()),
        limits,
        None,
        "the rules of /v1/auth",
        None,
    );
    source.set_enabled(Some("all"), false);
    let mut text = Text::default();
    self::limits(&mut text, &source);
    statistics(&mut text, &source);
    let text = text.into_string();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<_> = lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, value)| (series.to_owned(), value.to_owned()))
        .collect();
    let mut known = HashSet::new();
    for (series, _) in &series {
        assert!(known.insert(series), "{series} stands twice in {text}");
    }
    series
}

fn value<'s>(series: &'s [(String, String)], name: &str) -> Option<&'s str> {
    let found = series.iter().find(|(series, _)| series == name);
    found.map(|(_, value)| value.as_str())
}

/// Prometheus rejects a text with a duplicate.
#[tokio::test]
async fn no_series_stands_twice() {
    let series = series().await;
    let hits = |labels: &str| {
        let name = format!("ratelimit_service_rate_limit_total_hits{{domain=\"rl\",{labels}}}");
        value(&series, &name)
    };
    assert_eq!(hits(r#"key1="a_b""#), Some("2"), "also of an override");
    assert_eq!(hits(r#"key1="one",key2="b.c""#), Some("1"));
    assert_eq!(hits(r#"key1="one",key2="b",key3="c""#), Some("1"));
    assert_eq!(hits(r#"key1="one",key2="b",key3="c_d.e""#), Some("1"));
    let enabled = value(&series, r#"ratelimit_enabled{rule="all"}"#);
    assert_eq!(enabled, Some("0"), "a rule of that name is off");
}

#[tokio::test]
async fn limits_are_what_passes_at_once() {
    let series = series().await;
    let limit = |policy: &str| value(&series, &format!("ratelimit_limit{{policy=\"{policy}\"}}"));
    assert_eq!(limit("rl.a_b"), Some("10"));
    assert_eq!(
        limit("rl.v_a_b"),
        Some("5"),
        "the lesser of two of one name"
    );
    assert_eq!(limit("rl.bucket"), Some("20"));
    assert_eq!(limit("rl.free"), None, "it is unlimited");
}
