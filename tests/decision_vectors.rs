//! The decision vectors, which come from other limiters' documentation and tests.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use serde_json::Value;
use tower_ratelimit::{Decision, Key, LocalLimiter, ManualClock, Quota, Timestamp};

/// Algorithms of the vectors that no quota has yet. One that gets built moves out of this list.
const NOT_BUILT: [&str; 9] = [
    "fixed_window",
    "leaky_bucket_queue",
    "multi_fixed_window",
    "multi_token_bucket",
    "multi_token_bucket_interval",
    "sliding_window_buckets",
    "sliding_window_counter",
    "sliding_window_log",
    "token_bucket_interval",
];

fn vectors() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/decisions.json");
    let text = fs::read_to_string(path).expect("the vectors are there");
    let file: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    file["vectors"].as_array().expect("a list").clone()
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} in {of}"))
}

fn number(of: &Value, field: &str) -> u64 {
    of[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} in {of}"))
}

#[test]
fn token_bucket() {
    let all = vectors();
    let of_token_bucket = all
        .iter()
        .filter(|vector| text(vector, "algorithm") == "token_bucket");
    let mut count = 0;
    for vector in of_token_bucket {
        run(vector);
        count += 1;
    }
    assert_eq!(count, 26);
}

#[test]
fn every_other_algorithm_is_listed() {
    let all = vectors();
    let names: BTreeSet<_> = all.iter().map(|vector| text(vector, "algorithm")).collect();
    let mut listed = BTreeSet::from(NOT_BUILT);
    listed.insert("token_bucket");
    assert_eq!(names, listed);
}

fn run(vector: &Value) {
    let name = text(vector, "name");
    only_has(
        vector,
        &[
            "name",
            "algorithm",
            "limit",
            "window_ms",
            "burst",
            "semantics",
            "source",
            "provenance",
            "tags",
            "steps",
        ],
    );
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(quota(vector))
        .max_keys(8)
        .clock(clock.clone())
        .build()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    for (index, step) in vector["steps"]
        .as_array()
        .expect("a list")
        .iter()
        .enumerate()
    {
        only_has(step, &["t_ms", "op", "cost", "key", "expect"]);
        clock.set(at(number(step, "t_ms")));
        check(
            &decide(&limiter, step),
            &step["expect"],
            &format!("{name}, step {index}"),
        );
    }
}

/// A field that nothing reads would make the test say more than it checks.
fn only_has(object: &Value, known: &[&str]) {
    let fields = object.as_object().expect("an object");
    for field in fields.keys() {
        assert!(known.contains(&field.as_str()), "{field} in {object}");
    }
}

fn quota(vector: &Value) -> Quota {
    let window = Duration::from_millis(number(vector, "window_ms"));
    let quota = Quota::per(number(vector, "limit"), window);
    match vector.get("burst") {
        Some(burst) => quota.burst(burst.as_u64().expect("a number")),
        None => quota,
    }
}

/// The vectors' epoch may be any edge of a day.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_secs(20_000 * 86_400).saturating_add(Duration::from_millis(millis))
}

fn decide(limiter: &LocalLimiter, step: &Value) -> Decision {
    let key = Key::from(step["key"].as_str().unwrap_or("the one key"));
    let cost = number(step, "cost");
    match step.get("op").map(|_| text(step, "op")) {
        None => limiter.acquire(&key, cost),
        Some("peek") => limiter.peek(&key, cost),
        Some("at_most") => limiter.acquire_up_to(&key, cost),
        Some(op) => panic!("the operation {op} is not mapped"),
    }
}

fn check(decision: &Decision, expect: &Value, what: &str) {
    for (field, expected) in expect.as_object().expect("an object") {
        let found = match field.as_str() {
            "allowed" => Value::from(decision.is_allowed()),
            "remaining" => Value::from(decision.remaining()),
            "taken" => Value::from(decision.charged()),
            "retry_after_ms" => Value::from(decision.retry_after().map(whole_millis)),
            "reset_after_ms" => Value::from(decision.binding().reset_after().map(whole_millis)),
            other => panic!("{what}: the field {other} is not mapped"),
        };
        assert_eq!(found, *expected, "{what}: {field}");
    }
}

fn whole_millis(duration: Duration) -> u64 {
    let micros = u64::try_from(duration.as_micros()).expect("less than 584,000 years");
    micros.div_ceil(1_000)
}
