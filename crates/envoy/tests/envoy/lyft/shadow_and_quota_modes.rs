//! Rows 9 to 11, 14 and 15: shadow and quota modes, limits that replace others, headers, metadata.

use tower_ratelimit_envoy::{
    HeaderSet,
    protobuf_messages::{
        Code, RateLimitOverride, RateLimitResponse, Struct, Unit, Value, ValueKind,
    },
};

use super::test_support::{Bench, modes, passes, reported, request};

const MODES: &str = "domain: rl
descriptors:
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: quota
    quota_mode: yes
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: other
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: free
    rate_limit: {unlimited: true}
";

/// Row 9: counted, and OK with nothing left.
#[tokio::test]
async fn shadowed_limit_is_counted_and_passes() {
    let bench = Bench::new(MODES);
    assert_eq!(reported(&bench.call(&["shadow=1"]).await), [(true, 0)]);
    for _ in 0..3 {
        let response = bench.call(&["shadow=1"]).await;
        assert!(passes(&response));
        assert_eq!(reported(&response), [(true, 0)]);
    }
    let unshadowed = MODES.replace("shadow_mode: true", "shadow_mode: false");
    bench.limits.set_rules(super::test_support::rules(
        &unshadowed.replace(": 1}", ": 5}"),
    ));
    assert_eq!(
        reported(&bench.call(&["shadow=1"]).await),
        [(true, 0)],
        "all five count"
    );
    assert!(!passes(&bench.call(&["shadow=1"]).await));
}

#[tokio::test]
async fn global_shadow_mode_leaves_the_statuses() {
    let bench = Bench::with(MODES, modes(|modes| modes.shadow = true));
    bench.call(&["plain=1"]).await;
    let response = bench.call(&["plain=1"]).await;
    assert!(passes(&response));
    assert_eq!(reported(&response), [(false, 0)]);
}

/// Row 10: quotas are over when all of them are.
#[tokio::test]
async fn quotas_are_over_together() {
    let bench = Bench::new(MODES);
    assert!(passes(&bench.call(&["quota=1 +2", "other=1"]).await));
    assert!(!passes(&bench.call(&["quota=1"]).await), "the only one");
    assert!(
        !passes(&bench.call(&["quota=1", "other=2 +6"]).await),
        "both"
    );
    let beside = bench.call(&["quota=1", "plain=1"]).await;
    assert!(!passes(&beside), "all quotas, of which there is one");
    assert!(
        !passes(&bench.call(&["quota=2", "plain=1"]).await),
        "no quota"
    );
}

/// Row 10: all except unlimited ones, also those that match nothing.
#[tokio::test]
async fn global_quota_mode_takes_in_what_matches_nothing() {
    let bench = Bench::with(MODES, modes(|modes| modes.quota = true));
    assert!(passes(&bench.call(&["plain=1 +2", "unmatched"]).await));
    assert!(!passes(&bench.call(&["plain=1"]).await));
    assert!(
        !passes(&bench.call(&["plain=1", "free=1"]).await),
        "that is no quota"
    );
    assert!(passes(&bench.call(&["free=1"]).await));
    assert!(passes(&bench.call(&["plain=1", "shadow=1 +9"]).await));
}

const REPLACES: &str = "domain: rl
descriptors:
  - key: base
    rate_limit: {name: base, unit: minute, requests_per_unit: 1}
  - key: vip
    rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: base}, {name: other}]}
  - key: free
    rate_limit: {unlimited: true, name: free, replaces: [{name: base}]}
  - key: never
    rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: free}]}
  - key: one
    rate_limit: {name: one, unit: minute, requests_per_unit: 0, replaces: [{name: two}]}
  - key: two
    rate_limit: {name: two, unit: minute, requests_per_unit: 0, replaces: [{name: one}]}
";

/// Row 11: replaced limits are not counted.
#[tokio::test]
async fn replaced_limits_do_not_count() {
    let bench = Bench::new(REPLACES);
    for _ in 0..3 {
        for descriptors in [["base=1", "vip=1"], ["free=1", "base=1"]] {
            let response = bench.call(&descriptors).await;
            let at = usize::from(descriptors[0] != "base=1");
            assert_eq!(response.statuses[at].current_limit, None);
            assert_eq!(reported(&response)[at], (true, 0));
        }
    }
    assert_eq!(
        reported(&bench.call(&["base=1"]).await),
        [(true, 0)],
        "the first that counts"
    );
    let both = bench.call(&["one=1", "two=1"]).await;
    assert!(passes(&both), "each drops the other");
    assert!(!passes(&bench.call(&["one=1"]).await));
    let unlimited = bench.call(&["free=1", "never=1"]).await;
    assert_eq!(unlimited.statuses[0].limit_remaining, u32::MAX);
}

fn headers(response: &RateLimitResponse) -> Vec<(&str, &str)> {
    let headers = response.response_headers_to_add.iter();
    headers
        .map(|header| (header.key.as_str(), header.value.as_str()))
        .collect()
}

/// Row 14: the descriptor with the least remaining; if limits are over, the last one that is no
/// quota.
#[tokio::test]
async fn headers_are_of_the_deciding_descriptor() {
    let rules = MODES.replace(
        "key: plain\n    rate_limit: {unit: minute",
        "key: plain\n    rate_limit: {unit: hour",
    );
    let bench = Bench::with(
        &rules,
        modes(|modes| modes.rls_headers = vec![HeaderSet::Envoy]),
    );
    let fields = |limit, remaining, reset| {
        [
            ("ratelimit-limit", limit),
            ("ratelimit-remaining", remaining),
            ("ratelimit-reset", reset),
        ]
    };
    let response = bench.call(&["other=1", "unmatched", "free=1"]).await;
    assert_eq!(headers(&response), fields("5", "4", "48"));
    let response = bench.call(&["other=1", "plain=1", "quota=1"]).await;
    assert_eq!(
        headers(&response),
        fields("1", "0", "3588"),
        "the first of the least"
    );
    let response = bench.call(&["plain=1", "quota=1", "other=1"]).await;
    assert_eq!(headers(&response), fields("1", "0", "3588"));
    let mut last = request(&["plain=1", "shadow=1 +5", "x=1", "quota=1"]);
    last.descriptors[2].limit = Some(RateLimitOverride {
        requests_per_unit: 0,
        unit: Unit::Day.into(),
        unit_multiplier: None,
    });
    let response = bench.decide(&last).await.unwrap();
    assert_eq!(
        headers(&response),
        fields("0", "0", "86388"),
        "the last that is no quota"
    );
    assert_eq!(headers(&bench.call(&["unmatched"]).await), []);
    assert_eq!(headers(&bench.call(&["free=1"]).await), []);
}

#[tokio::test]
async fn headers_are_those_of_the_settings() {
    let none = Bench::new(MODES);
    assert_eq!(headers(&none.call(&["plain=1"]).await), []);
    let sets = [HeaderSet::RetryAfter, HeaderSet::Draft11, HeaderSet::Legacy];
    let bench = Bench::with(MODES, modes(|modes| modes.rls_headers = sets.to_vec()));
    let about = |remaining| {
        let remaining: &str = remaining;
        [
            ("ratelimit-policy", "\"default\";q=1;w=60".to_owned()),
            ("ratelimit", format!("\"default\";r={remaining};t=48")),
            ("x-ratelimit-limit", "1".to_owned()),
            ("x-ratelimit-remaining", remaining.to_owned()),
            ("x-ratelimit-reset", "48".to_owned()),
        ]
    };
    let owned = |response: &RateLimitResponse| {
        let headers = headers(response).into_iter();
        headers
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    let as_owned =
        |fields: [(&str, String); 5]| fields.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let passed = bench.call(&["plain=1"]).await;
    assert_eq!(owned(&passed), as_owned(about("0")));
    let denied = bench.call(&["plain=1"]).await;
    let mut expected = vec![("retry-after".to_owned(), "48".to_owned())];
    expected.extend(as_owned(about("0")));
    assert_eq!(owned(&denied), expected, "only over the limit");
}

const METADATA: &str = "domain: rl
descriptors:
  - key: one
    quota_mode: true
    detailed_metric: true
    metadata: {service: {name: first, weight: 1.5, tags: [a, 2, true, ~]}, extra: 1}
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: two
    quota_mode: true
    metadata: {service: {name: second, port: 80}, more: yes}
    rate_limit: {unit: minute, requests_per_unit: 5}
";

fn field<'m>(metadata: &'m Struct, path: &str) -> Option<&'m ValueKind> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let kind = metadata.fields.get(first)?.kind.as_ref()?;
    match (kind, rest) {
        (kind, "") => Some(kind),
        (ValueKind::StructValue(inner), rest) => field(inner, rest),
        _ => None,
    }
}

/// Row 15: the request, and the metadata of the descriptors that passed: the first value counts.
#[tokio::test]
async fn metadata_is_that_of_the_descriptors_that_passed() {
    let text = |text: &str| ValueKind::StringValue(text.to_owned());
    let bench = Bench::with(METADATA, modes(|modes| modes.metadata = true));
    let response = bench.call(&["one=1", "two=1 +2"]).await;
    let metadata = response.dynamic_metadata.unwrap();
    assert_eq!(field(&metadata, "domain"), Some(&text("rl")));
    assert_eq!(field(&metadata, "hitsAddend"), None);
    assert_eq!(
        field(&metadata, "metadata.service.name"),
        Some(&text("first"))
    );
    assert_eq!(
        field(&metadata, "metadata.service.weight"),
        Some(&ValueKind::NumberValue(1.5))
    );
    assert_eq!(
        field(&metadata, "metadata.service.port"),
        Some(&ValueKind::NumberValue(80.0))
    );
    assert_eq!(
        field(&metadata, "metadata.more"),
        Some(&ValueKind::BoolValue(true))
    );
    let Some(ValueKind::ListValue(tags)) = field(&metadata, "metadata.service.tags") else {
        panic!("{metadata:?}");
    };
    assert_eq!(tags.values.len(), 4);
    let Some(ValueKind::ListValue(descriptors)) = field(&metadata, "descriptors") else {
        panic!("{metadata:?}");
    };
    let Value {
        kind: Some(ValueKind::StructValue(second)),
    } = &descriptors.values[1]
    else {
        panic!("{descriptors:?}");
    };
    assert_eq!(
        field(second, "hitsAddend"),
        Some(&ValueKind::NumberValue(2.0))
    );
    let Some(ValueKind::ListValue(entries)) = field(second, "entries") else {
        panic!("{second:?}");
    };
    assert_eq!(entries.values[0].kind, Some(text("two=1")));

    let response = bench.call(&["one=1", "two=1"]).await;
    assert_eq!(response.statuses[0].code(), Code::OverLimit);
    let metadata = response.dynamic_metadata.unwrap();
    assert_eq!(
        field(&metadata, "metadata.service.name"),
        Some(&text("second"))
    );
    assert_eq!(field(&metadata, "metadata.extra"), None);
    let quiet = Bench::new(METADATA).call(&["one=1"]).await;
    assert_eq!(quiet.dynamic_metadata, None);
}
