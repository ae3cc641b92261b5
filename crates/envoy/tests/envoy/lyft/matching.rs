//! Rows 1 to 5: the limit of a descriptor, and its counter.

use super::test_support::{Bench, rules};

/// Row 1: key and value are looked up with an underscore between them.
#[tokio::test]
async fn key_with_underscore_is_a_key_and_a_value() {
    let bench = Bench::new(
        "domain: rl
descriptors:
  - {key: a_b, rate_limit: {unit: minute, requests_per_unit: 7}}
  - {key: c, value: d, rate_limit: {unit: minute, requests_per_unit: 8}}
",
    );
    for (descriptor, limit) in [
        ("a_b", Some(7)),
        ("a_b=anything", Some(7)),
        ("a=b", Some(7)),
        ("c=d", Some(8)),
        ("c_d", Some(8)),
        ("c_d=anything", Some(8)),
        ("a", None),
        ("a=c", None),
        ("c", None),
    ] {
        assert_eq!(bench.limit(descriptor).await, limit, "{descriptor}");
    }
}

#[test]
fn ambiguous_rule_is_a_warning() {
    let text = "domain: rl
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: a_b
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 2}
";
    let rules = rules(text);
    let [warning] = rules.warnings() else {
        panic!("{:?}", rules.warnings());
    };
    assert_eq!((warning.code(), warning.line()), ("W31", Some(5)));
    assert!(warning.is_warning());
}

const ORDER: &str = "domain: rl
descriptors:
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: path
    value: /a/*
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    value: /a/b*
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /a/b
    rate_limit: {unit: minute, requests_per_unit: 4}
";

/// Row 2: the exact text, then patterns in the order of the file, then the key.
#[tokio::test]
async fn exact_then_first_pattern_then_key() {
    let bench = Bench::new(ORDER);
    for (descriptor, limit) in [
        ("path=/a/b", 4),
        ("path=/a/bc", 2),
        ("path=/a/", 2),
        ("path=/b", 1),
        ("path", 1),
    ] {
        assert_eq!(bench.limit(descriptor).await, Some(limit), "{descriptor}");
    }
}

/// Row 2: a branch that fails deeper has no alternative.
#[tokio::test]
async fn nothing_is_tried_again() {
    let bench = Bench::new(
        "domain: rl
descriptors:
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
  - key: a
    value: x*
    descriptors:
      - {key: c, rate_limit: {unit: minute, requests_per_unit: 2}}
  - key: a
    value: xy
    descriptors:
      - {key: d, rate_limit: {unit: minute, requests_per_unit: 3}}
",
    );
    for (descriptor, limit) in [
        ("a=q,b", Some(1)),
        ("a=xz,c", Some(2)),
        ("a=xz,b", None),
        ("a=xy,d", Some(3)),
        ("a=xy,c", None),
        ("a=xy,b", None),
    ] {
        assert_eq!(bench.limit(descriptor).await, limit, "{descriptor}");
    }
}

/// Row 3: only a limit at the last entry counts.
#[tokio::test]
async fn depth_has_to_be_the_same() {
    let bench = Bench::new(
        "domain: rl
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1}
    descriptors:
      - key: b
        descriptors:
          - {key: c, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: none}
",
    );
    for (descriptor, limit) in [
        ("a=1", Some(1)),
        ("a=1,b=1", None),
        ("a=1,b=1,c=1", Some(3)),
        ("a=1,b=1,c=1,d=1", None),
        ("a=1,x=1", None),
        ("none=1", None),
        ("x=1", None),
    ] {
        assert_eq!(bench.limit(descriptor).await, limit, "{descriptor}");
    }
    let unlimited = bench.status("x=1").await;
    assert_eq!(
        (unlimited.limit_remaining, unlimited.duration_until_reset),
        (0, None)
    );
    let elsewhere = tower_ratelimit_envoy::protobuf_messages::RateLimitRequest {
        domain: "elsewhere".to_owned(),
        ..super::test_support::request(&["a=1"])
    };
    let response = bench.decide(&elsewhere).await.unwrap();
    assert_eq!(response.statuses[0].current_limit, None);
}

/// Row 4: `*` anywhere, also in keys, matches any characters or none.
#[tokio::test]
async fn stars_stand_for_any_characters() {
    let bench = Bench::new(
        "domain: rl
descriptors:
  - {key: p, value: a*b*c, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q*, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: r, value: '*', rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: s_, rate_limit: {unit: minute, requests_per_unit: 4}}
",
    );
    for (descriptor, limit) in [
        ("p=abc", Some(1)),
        ("p=a-b-b-c", Some(1)),
        ("p=acb", None),
        ("p=xabc", None),
        ("p=abcx", None),
        // Equal to the pattern.
        ("p=a*b*c", Some(1)),
        ("q1=x", Some(2)),
        ("q", Some(2)),
        ("r=", Some(3)),
        ("r=anything", Some(3)),
        // An empty value leaves the underscore.
        ("s", Some(4)),
        ("s=x", None),
    ] {
        assert_eq!(bench.limit(descriptor).await, limit, "{descriptor}");
    }
}

/// Row 5: the counter is that of the entries and the unit, whichever rule counts.
#[tokio::test]
async fn counters_belong_to_entries_and_not_to_rules() {
    let text = |requests: u32, unit: &str| {
        format!(
            "domain: rl
descriptors:
  - {{key: a, rate_limit: {{unit: {unit}, requests_per_unit: {requests}}}}}
"
        )
    };
    let bench = Bench::new(&text(10, "minute"));
    assert_eq!(bench.status("a=1").await.limit_remaining, 9);
    assert_eq!(bench.status("a=2").await.limit_remaining, 9);
    bench.limits.set_rules(rules(&text(5, "MINUTE")));
    assert_eq!(bench.status("a=1").await.limit_remaining, 3);
    bench.limits.set_rules(rules(&text(5, "Hour")));
    assert_eq!(bench.status("a=1").await.limit_remaining, 4);
    bench.limits.set_rules(rules(&text(5, "minute")));
    assert_eq!(bench.status("a=1").await.limit_remaining, 2);
}

/// Unlike the reference, where both would be `a_b_c_`.
#[tokio::test]
async fn entries_that_read_alike_are_counted_apart() {
    let bench = Bench::new(
        "domain: rl
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: a_b, value: c, rate_limit: {unit: minute, requests_per_unit: 5}}
",
    );
    assert_eq!(bench.status("a=b_c").await.limit_remaining, 4);
    assert_eq!(bench.status("a_b=c").await.limit_remaining, 4);
}

/// Row 5: a shared threshold counts by the pattern, also with a deeper limit.
#[tokio::test]
async fn shared_patterns_are_counted_together() {
    let bench = Bench::new(
        "domain: rl
descriptors:
  - key: files
    value: doc*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 5}
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 7}}
  - key: files
    value: img*
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: '*z'
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 5}
",
    );
    let mut left = Vec::new();
    for descriptor in ["files=doc1", "files=doc2", "files=img1", "files=img2"] {
        left.push(bench.status(descriptor).await.limit_remaining);
    }
    assert_eq!(left, [4, 3, 4, 4]);
    // A key equal to the pattern has not matched it as a pattern.
    left.clear();
    for descriptor in ["*z=1", "*z=2", "y=1z", "y=2z"] {
        left.push(bench.status(descriptor).await.limit_remaining);
    }
    assert_eq!(left, [4, 4, 4, 3]);
    left.clear();
    for descriptor in [
        "files=doc1,user=x",
        "files=doc2,user=x",
        "files=doc2,user=y",
    ] {
        left.push(bench.status(descriptor).await.limit_remaining);
    }
    assert_eq!(left, [6, 5, 6]);
}
