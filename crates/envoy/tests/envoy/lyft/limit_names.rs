//! Row 13: the names of limits in statistics.

use tower_ratelimit_envoy::protobuf_messages::{RateLimitOverride, Unit};

use super::test_support::{descriptor, rules};

const RULES: &str = "domain: rl
descriptors:
  - key: plain
    rate_limit: &limit {unit: minute, requests_per_unit: 1}
    descriptors:
      - {key: inner, value: x, rate_limit: *limit}
  - {key: detailed, detailed_metric: true, value_to_metric: true, rate_limit: *limit}
  - {key: reported, value_to_metric: true, rate_limit: *limit}
  - {key: star, value: a*, rate_limit: *limit}
  - {key: star, value: b*, value_to_metric: true, rate_limit: *limit}
  - key: star
    value: c*
    value_to_metric: true
    share_threshold: true
    rate_limit: *limit
    descriptors:
      - {key: user, detailed_metric: true, rate_limit: *limit}
";

#[test]
fn names_are_the_paths_of_keys() {
    let rules = rules(RULES);
    for (text, name) in [
        ("plain", Some("rl.plain")),
        ("plain=secret", Some("rl.plain")),
        ("plain=secret,inner=x", Some("rl.plain.inner_x")),
        ("plain,inner=y", None),
        ("detailed=7", Some("rl.detailed_7")),
        ("detailed", Some("rl.detailed_")),
        ("reported=7", Some("rl.reported_7")),
        ("reported", Some("rl.reported")),
        ("star=a1", Some("rl.star_a*")),
        ("star=b1", Some("rl.star_b1")),
        ("star=c1", Some("rl.star_c*")),
        ("star=c1,user=eve", Some("rl.star_c*.user_eve")),
        ("star=c1,user", Some("rl.star_c*.user")),
        ("unmatched", None),
        ("reported=10.0.0.1:80|x", Some("rl.reported_10_0_0_1_80_x")),
        ("reported=v1.2.3", Some("rl.reported_v1.2.3")),
        ("reported=1.2.3.4567.8", Some("rl.reported_1_2_3_4567.8")),
        ("reported=ä", Some("rl.reported_ä")),
    ] {
        let reported = rules.stats_name("rl", &descriptor(text));
        assert_eq!(reported.as_deref(), name, "{text}");
    }
    assert_eq!(rules.stats_name("other", &descriptor("plain")), None);
    let mut with_limit = descriptor("a=b,c");
    with_limit.limit = Some(RateLimitOverride {
        requests_per_unit: 1,
        unit: Unit::Day.into(),
        unit_multiplier: None,
    });
    assert_eq!(
        rules.stats_name("rl", &with_limit).as_deref(),
        Some("rl.a_b.c")
    );
}
