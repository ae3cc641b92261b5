//! The decision vectors, which come from other limiters' documentation and tests, and the worked
//! cases of the design.

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::vectors;
use serde_json::Value;
use tower_ratelimit::{
    Clock, Decision, Key, LocalLimiter, ManualClock, Quota, QuotaStatus, Timestamp,
};

/// How many vectors each algorithm has.
const COUNTS: [(&str, usize); 10] = [
    ("fixed_window", 14),
    ("leaky_bucket_queue", 3),
    ("multi_fixed_window", 2),
    ("multi_token_bucket", 1),
    ("multi_token_bucket_interval", 1),
    ("sliding_window_buckets", 2),
    ("sliding_window_counter", 10),
    ("sliding_window_log", 8),
    ("token_bucket", 26),
    ("token_bucket_interval", 5),
];

/// Vectors that a limiter's semantics do not cover, each with the reason.
const NOT_COVERED: [(&str, &str); 0] = [];

const THE_ONE_KEY: &str = "the one key";

/// Fields that are there for the reader.
const PROSE: [&str; 5] = ["semantics", "source", "provenance", "tags", "note"];

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

/// A field that is a number for one quota and a list for several; none where it is left out.
fn numbers(of: &Value, field: &str) -> Vec<u64> {
    let one = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{field} in {of}"));
    match of.get(field) {
        None => Vec::new(),
        Some(Value::Array(several)) => several.iter().map(one).collect(),
        Some(value) => vec![one(value)],
    }
}

#[test]
fn every_vector_holds() {
    let mut counts = BTreeMap::new();
    let mut steps = 0;
    for vector in &vectors::group("decisions.json", "vectors") {
        *counts
            .entry(text(vector, "algorithm").to_owned())
            .or_insert(0) += 1;
        let name = text(vector, "name");
        if NOT_COVERED.iter().all(|(uncovered, _)| *uncovered != name) {
            steps += run(vector);
        }
    }
    let expected = COUNTS.map(|(algorithm, count)| (algorithm.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(steps, 470);
}

/// Runs a vector and says how many steps it had.
fn run(vector: &Value) -> usize {
    let name = text(vector, "name");
    let known = [
        "name",
        "algorithm",
        "limit",
        "window_ms",
        "bucket_ms",
        "burst",
        "initial",
        "admission",
        "steps",
    ];
    only_has(vector, &[&known[..], &PROSE].concat());
    if let Some(rule) = vector.get("admission") {
        assert_eq!(rule, "floor", "{name}: the weighted count is rounded down");
    }
    let quotas = quotas(vector);
    let clock = ManualClock::at(at(0));
    let limiter = LocalLimiter::builder(quotas.clone())
        .max_keys(8)
        .clock(clock.clone())
        .build()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    spend_down_to_initial(vector, &limiter);
    let steps = vector["steps"].as_array().expect("a list");
    for (index, step) in steps.iter().enumerate() {
        only_has(step, &["t_ms", "op", "cost", "key", "limit", "expect"]);
        clock.set(at(number(step, "t_ms")));
        if step.get("limit").is_some() {
            let changed = quota(vector, 0, number(step, "limit"));
            limiter.set_quota("default", changed).expect("a good quota");
        }
        check(
            &decide(&limiter, step),
            &step["expect"],
            &format!("{name}, step {index}"),
        );
    }
    steps.len()
}

/// A field that nothing reads would make the test say more than it checks.
fn only_has(object: &Value, known: &[&str]) {
    let fields = object.as_object().expect("an object");
    for field in fields.keys() {
        assert!(known.contains(&field.as_str()), "{field} in {object}");
    }
}

fn quotas(vector: &Value) -> Vec<Quota> {
    let limits = numbers(vector, "limit").into_iter().enumerate();
    limits
        .map(|(index, limit)| quota(vector, index, limit))
        .collect()
}

/// The quota at `index` with this limit.
fn quota(vector: &Value, index: usize, limit: u64) -> Quota {
    let window = Duration::from_millis(numbers(vector, "window_ms")[index]);
    let burst = numbers(vector, "burst").get(index).copied();
    let with_burst = |quota: Quota| burst.map_or(quota, |burst| quota.burst(burst));
    let quota = Quota::per(limit, window);
    match text(vector, "algorithm") {
        "token_bucket" | "multi_token_bucket" => with_burst(quota),
        "token_bucket_interval" | "multi_token_bucket_interval" => {
            with_burst(quota.refill_every(window))
        }
        "leaky_bucket_queue" => quota.leaky_bucket(burst.expect("a queue")),
        "fixed_window" | "multi_fixed_window" => quota.fixed_window(),
        "sliding_window_counter" => quota.sliding_window(),
        "sliding_window_buckets" => {
            let bucket = u128::from(number(vector, "bucket_ms"));
            let slices = window.as_millis() / bucket;
            quota
                .sliding_window()
                .slices(u32::try_from(slices).expect("so many"))
        }
        "sliding_window_log" => quota.sliding_log(),
        other => panic!("the algorithm {other} is not mapped"),
    }
}

/// Brings each quota to the level it starts at. What is charged is charged to all of them, so they
/// are exhausted while their bursts are what is to be missing: then nothing more can be.
fn spend_down_to_initial(vector: &Value, limiter: &LocalLimiter) {
    let initial = numbers(vector, "initial");
    if initial.is_empty() {
        return;
    }
    let key = Key::from(THE_ONE_KEY);
    let quotas = quotas(vector);
    let names = limiter.peek(&key, 0);
    let names: Vec<_> = names.quotas().iter().map(QuotaStatus::name).collect();
    for (index, level) in initial.iter().enumerate() {
        let missing = quotas[index].capacity() - level;
        let lowered = quotas[index].burst(missing);
        limiter.set_quota(names[index], lowered).expect("one left");
    }
    limiter.hit(&key, u64::MAX);
    for (name, quota) in names.iter().zip(&quotas) {
        limiter.set_quota(name, *quota).expect("as it was");
    }
    let started = limiter.peek(&key, 0);
    let levels = started.quotas().iter().map(QuotaStatus::remaining);
    assert!(levels.eq(initial.into_iter().map(Some)), "{started:?}");
}

/// The vectors' epoch may be any edge of a day.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_secs(20_000 * 86_400).saturating_add(Duration::from_millis(millis))
}

fn decide(limiter: &LocalLimiter, step: &Value) -> Decision {
    let key = Key::from(step["key"].as_str().unwrap_or(THE_ONE_KEY));
    let cost = number(step, "cost");
    match step.get("op").map(|_| text(step, "op")) {
        None => limiter.acquire(&key, cost),
        Some("peek") => limiter.peek(&key, cost),
        Some("at_most") => limiter.acquire_up_to(&key, cost),
        Some("refund") => limiter.refund(&key, cost, None),
        Some("reset") => limiter.reset(&key),
        Some(op) => panic!("the operation {op} is not mapped"),
    }
}

fn check(decision: &Decision, expect: &Value, what: &str) {
    let quotas = decision.quotas();
    for (field, expected) in expect.as_object().expect("an object") {
        let found = match field.as_str() {
            "allowed" => Value::from(decision.is_allowed()),
            "remaining" => Value::from(quotas.iter().filter_map(QuotaStatus::remaining).min()),
            "taken" => Value::from(decision.charged()),
            "delay_ms" => Value::from(whole_millis(decision.delay())),
            "retry_after_ms" => Value::from(decision.retry_after().map(whole_millis)),
            "reset_after_ms" => Value::from(decision.binding().reset_after().map(whole_millis)),
            "violated" => {
                let denied = (0..quotas.len()).filter(|index| quotas[*index].is_denied());
                Value::from(denied.collect::<Vec<_>>())
            }
            other => panic!("{what}: the field {other} is not mapped"),
        };
        assert_eq!(found, *expected, "{what}: {field}");
    }
}

fn whole_millis(duration: Duration) -> u64 {
    let micros = u64::try_from(duration.as_micros()).expect("less than 584,000 years");
    micros.div_ceil(1_000)
}

/// A limiter, its clock at `hour` o'clock, and the key that is used.
fn worked(quota: Quota, hour: u64) -> (LocalLimiter, ManualClock, Key) {
    let clock = ManualClock::at(at(hour * 3_600_000));
    let limiter = LocalLimiter::builder(quota)
        .max_keys(8)
        .clock(clock.clone())
        .build()
        .expect("a good quota");
    (limiter, clock, Key::from(THE_ONE_KEY))
}

/// Whether each of the instants, in seconds from the clock's first one, admits one unit.
fn admitted(limiter: &LocalLimiter, clock: &ManualClock, key: &Key, seconds: &[u64]) -> Vec<bool> {
    let start = clock.now();
    let at = |seconds: &u64| start.saturating_add(Duration::from_secs(*seconds));
    let admits = |seconds| {
        clock.set(at(seconds));
        limiter.acquire(key, 1).is_allowed()
    };
    seconds.iter().map(admits).collect()
}

#[test]
fn sliding_window_of_7_a_minute() {
    let (limiter, clock, key) = worked(Quota::per_minute(7).sliding_window(), 1);
    assert!(limiter.acquire(&key, 5).is_allowed());
    clock.advance(Duration::from_secs(60));
    assert!(limiter.acquire(&key, 3).is_denied(), "all 5 still weigh");
    clock.advance(Duration::from_secs(18));
    assert!(limiter.acquire(&key, 3).is_allowed());
    assert!(limiter.acquire(&key, 1).is_allowed());
    assert!(limiter.acquire(&key, 1).is_denied());
}

#[test]
fn sliding_window_of_100_an_hour() {
    let (limiter, clock, key) = worked(Quota::per_hour(100).sliding_window(), 1);
    assert!(limiter.acquire(&key, 84).is_allowed());
    clock.advance(Duration::from_secs(3_600 + 900));
    let counted = limiter.acquire(&key, 36);
    assert_eq!((counted.is_allowed(), counted.remaining()), (true, Some(1)));
    assert!(limiter.acquire(&key, 1).is_allowed());
    assert!(limiter.acquire(&key, 1).is_denied());
}

#[test]
fn sliding_log_of_2_a_minute() {
    let (limiter, clock, key) = worked(Quota::per_minute(2).sliding_log(), 1);
    assert_eq!(
        admitted(&limiter, &clock, &key, &[1, 30, 50, 100]),
        [true, true, false, true]
    );
}

#[test]
fn fixed_window_of_5_a_minute_lets_10_pass_around_its_edge() {
    let (limiter, clock, key) = worked(Quota::per_minute(5).fixed_window(), 2);
    let (before, after) = (58, 62);
    let seconds = [[before; 6], [after; 6]].concat();
    let six = [true, true, true, true, true, false];
    assert_eq!(
        admitted(&limiter, &clock, &key, &seconds),
        [six, six].concat()
    );
}

#[test]
fn token_bucket_of_3_a_minute_refilled_on_the_minute() {
    let minute = Duration::from_secs(60);
    let (limiter, clock, key) = worked(Quota::per_minute(3).refill_every(minute), 10);
    assert_eq!(
        admitted(&limiter, &clock, &key, &[0, 10, 35, 45, 60, 60, 60, 60]),
        [true, true, true, false, true, true, true, false]
    );
}
