//! The groups of `tests/vectors/http.json` about fields that clients read.

use std::{fs, time::Duration};

use serde_json::Value;
use tower_ratelimit::clock::Timestamp;

use super::map;
use crate::response_headers::{self, rate_limit, structured_list};

fn group(name: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/http.json");
    let vectors: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    vectors[name].as_array().unwrap().clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The lines of a vector's field, joined as `quotas` does.
fn joined(field: &str, vector: &Value) -> String {
    let lines: Vec<_> = match &vector["lines"] {
        Value::Array(lines) => lines.iter().map(text).collect(),
        _ => vec![text(&vector["value"])],
    };
    let lines: Vec<_> = lines.iter().map(|line| (field, *line)).collect();
    let name = field.parse().unwrap();
    response_headers::field_values::joined(&map(&lines), &name)
        .map_or_else(String::new, |text| text.into_owned())
}

/// Re-encodes, since padding and pad bits may differ.
fn canonical(bytes: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let lenient = base64::engine::GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    BASE64_STANDARD.encode(lenient.decode(bytes).unwrap())
}

#[test]
fn valid_limit_fields_are_read() {
    for vector in group("parse_ratelimit_valid") {
        let text = joined("ratelimit", &vector);
        let items = rate_limit::limit_items(&text);
        let expected = vector["expect"].as_array().unwrap();
        assert_eq!(items.len(), expected.len(), "{}", vector["id"]);
        for (item, expected) in items.iter().zip(expected) {
            assert_eq!(item.name, self::text(&expected["name"]), "{}", vector["id"]);
            assert_eq!(
                Some(item.remaining),
                expected["r"].as_u64(),
                "{}",
                vector["id"]
            );
            assert_eq!(item.window, expected["t"].as_u64(), "{}", vector["id"]);
        }
        let mut keys = Vec::new();
        let _ = structured_list::members(&text, |member| {
            if let Some(structured_list::BareItem::Bytes(pk)) = member.parameter("pk") {
                keys.push(canonical(pk));
            }
        });
        let expected = expected.iter().filter_map(|item| item["pk_b64"].as_str());
        assert_eq!(keys, expected.collect::<Vec<_>>());
    }
}

#[test]
fn malformed_limit_fields_are_ignored() {
    for vector in group("parse_ratelimit_invalid") {
        let text = joined("ratelimit", &vector);
        assert!(
            rate_limit::limit_items(&text).is_empty(),
            "{}",
            vector["id"]
        );
        let is_list = !text.is_empty() && structured_list::members(&text, |_| {}).is_some();
        let dropped = self::text(&vector["expect"]);
        assert_eq!(is_list, dropped == "item-ignored", "{}", vector["id"]);
    }
}

#[test]
fn policy_fields_are_read() {
    for vector in group("parse_policy_valid") {
        let text = joined("ratelimit-policy", &vector);
        let items = rate_limit::policy_items(&text);
        let expected = vector["expect"].as_array().unwrap();
        assert_eq!(items.len(), expected.len(), "{}", vector["id"]);
        for (item, expected) in items.iter().zip(expected) {
            assert_eq!(item.name.as_deref(), expected["name"].as_str());
            assert_eq!(Some(item.quota), expected["q"].as_u64());
            assert_eq!(item.window, expected["w"].as_u64());
            assert_eq!(item.unit, self::text(&expected["qu"]));
        }
    }
    for vector in group("parse_policy_invalid") {
        let text = joined("ratelimit-policy", &vector);
        let named = rate_limit::policy_items(&text);
        // An Integer, as in the drafts 04 to 07, is a policy without a name.
        assert!(
            named.iter().all(|policy| policy.name.is_none()),
            "{}",
            vector["id"]
        );
    }
}

#[test]
fn retry_after() {
    for vector in group("retry_after") {
        let now = Timestamp::from_secs(vector["now_epoch_s"].as_u64().unwrap());
        let wait =
            response_headers::retry_after(&map(&[("retry-after", text(&vector["value"]))]), now);
        let expected = match &vector["expect"] {
            // `learned_limits.rs` caps the pause, not the parser.
            Value::String(cap) if cap == "cap" => Some(Duration::from_secs(1_000_000)),
            seconds => seconds.as_f64().map(Duration::from_secs_f64),
        };
        assert_eq!(wait, expected, "{vector}");
    }
}

#[test]
fn legacy_reset() {
    for vector in group("legacy_reset") {
        let now = Timestamp::from_secs(vector["now_epoch_s"].as_u64().unwrap());
        let lines = [
            (text(&vector["header"]), text(&vector["value"])),
            ("x-ratelimit-remaining", "3"),
        ];
        let quotas = response_headers::quotas(&map(&lines), now);
        let window = quotas.first().and_then(|quota| quota.window);
        let expected = vector["expect_delta_s"].as_u64().map(Duration::from_secs);
        assert_eq!(window, expected, "{vector}");
    }
}

#[test]
fn fields_that_the_library_writes_are_read_back() {
    for vector in group("emit") {
        let fields = vector["headers"].as_array().unwrap().iter();
        let lines: Vec<_> = fields
            .map(|field| (text(&field[0]), text(&field[1])))
            .collect();
        let quotas = response_headers::quotas(&map(&lines), Timestamp::from_secs(1_700_000_000));
        let policies = vector["input"]["policies"].as_array().unwrap();
        let counts = |policy: &&Value| policy["qu"].is_null();
        let mut remaining: Vec<_> = policies
            .iter()
            .filter(counts)
            .filter_map(|policy| policy["remaining"].as_u64())
            .map(|remaining| remaining.min(999_999_999_999_999))
            .collect();
        remaining.sort_unstable();
        if lines.iter().any(|(name, _)| *name == "ratelimit") {
            let reported: Vec<_> = quotas.iter().map(|quota| quota.remaining).collect();
            assert_eq!(reported, remaining, "{}", vector["id"]);
        }
    }
}
