//! `tests/vectors/http.json`: the groups of what is read.

use std::{fs, time::Duration};

use serde_json::Value;

use super::map;
use crate::{
    clock::Timestamp,
    headers::read::{self, list, ratelimit},
};

fn group(name: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/http.json");
    let vectors: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    vectors[name].as_array().unwrap().clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// A field's text after its lines were put together, as `quotas` gets it.
fn joined(field: &str, vector: &Value) -> String {
    let lines: Vec<_> = match &vector["lines"] {
        Value::Array(lines) => lines.iter().map(text).collect(),
        _ => vec![text(&vector["value"])],
    };
    let lines: Vec<_> = lines.iter().map(|line| (field, *line)).collect();
    let name = field.parse().unwrap();
    read::joined(&map(&lines), &name).map_or_else(String::new, |text| text.into_owned())
}

/// Pad bits may be anything, and padding may be missing.
fn canonical(bytes: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let lenient = base64::engine::GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    BASE64_STANDARD.encode(lenient.decode(bytes).unwrap())
}

#[test]
fn available_units() {
    for vector in group("parse_ratelimit_valid") {
        let text = joined("ratelimit", &vector);
        let items = ratelimit::available(&text);
        let items: Vec<_> = items.iter().collect();
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
        let _ = list::members(&text, |member| {
            if let Some(list::Bare::Bytes(pk)) = member.parameter(list::Parameter::Pk) {
                keys.push(canonical(pk));
            }
        });
        let expected = expected.iter().filter_map(|item| item["pk_b64"].as_str());
        assert_eq!(keys, expected.collect::<Vec<_>>());
    }
}

#[test]
fn faulty_units() {
    for vector in group("parse_ratelimit_invalid") {
        let text = joined("ratelimit", &vector);
        assert!(
            ratelimit::available(&text).iter().next().is_none(),
            "{}",
            vector["id"]
        );
        let is_list = !text.is_empty() && list::members(&text, |_| {}).is_some();
        let dropped = self::text(&vector["expect"]);
        assert_eq!(is_list, dropped == "item-ignored", "{}", vector["id"]);
    }
}

#[test]
fn policies() {
    for vector in group("parse_policy_valid") {
        let text = joined("ratelimit-policy", &vector);
        let items = ratelimit::declared(&text);
        let items: Vec<_> = items.iter().collect();
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
        let named = ratelimit::declared(&text);
        // An Integer is what the drafts 04 to 07 have there, and is no policy with a name.
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
        let wait = read::retry_after(&map(&[("retry-after", text(&vector["value"]))]), now);
        let expected = match &vector["expect"] {
            // The cap is the pause's, see `client`.
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
        let told = read::quotas(&map(&lines), now);
        let window = told.first().and_then(|told| told.window);
        let expected = vector["expect_delta_s"].as_u64().map(Duration::from_secs);
        assert_eq!(window, expected, "{vector}");
    }
}

#[test]
fn the_renderers_own_fields_are_read_back() {
    for vector in group("emit") {
        let fields = vector["headers"].as_array().unwrap().iter();
        let lines: Vec<_> = fields
            .map(|field| (text(&field[0]), text(&field[1])))
            .collect();
        let told = read::quotas(&map(&lines), Timestamp::from_secs(1_700_000_000));
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
            let told: Vec<_> = told.iter().map(|told| told.remaining).collect();
            assert_eq!(told, remaining, "{}", vector["id"]);
        }
    }
}
