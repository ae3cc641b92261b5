//! The decision vectors, run through whatever limiter counts by the same rules.

use std::{collections::BTreeMap, error::Error as _, time::Duration};

use serde_json::Value;
use tower_ratelimit::{
    Decision, Key, Limiter, Quota,
    clock::{ManualClock, Timestamp},
    decision::{Op, Policy},
};

use super::vector_files;

/// Limiters that the vectors are run through.
pub trait Subject {
    type Limiter: Limiter;

    /// A limiter that nobody has used, for the vector of this name.
    fn limiter(&self, name: &str, quotas: Vec<Quota>, clock: ManualClock) -> Self::Limiter;

    fn set_quota(&self, limiter: &Self::Limiter, name: &str, quota: Quota);
}

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

pub const THE_ONE_KEY: &str = "the one key";

/// Fields for the reader.
const PROSE: [&str; 5] = ["semantics", "source", "provenance", "tags", "note"];

pub fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} in {of}"))
}

pub fn number(of: &Value, field: &str) -> u64 {
    of[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} in {of}"))
}

/// A field that is a number for one quota and a list for several; none where it is left out.
pub fn numbers(of: &Value, field: &str) -> Vec<u64> {
    let one = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{field} in {of}"));
    match of.get(field) {
        None => Vec::new(),
        Some(Value::Array(several)) => several.iter().map(one).collect(),
        Some(value) => vec![one(value)],
    }
}

/// Runs all vectors.
///
/// # Panics
///
/// With the step that was answered otherwise.
pub async fn every_vector_holds(subject: &impl Subject) {
    let mut counts = BTreeMap::new();
    let mut steps = 0;
    for vector in &vector_files::group("decisions.json", "vectors") {
        *counts
            .entry(text(vector, "algorithm").to_owned())
            .or_insert(0) += 1;
        let name = text(vector, "name");
        if NOT_COVERED.iter().all(|(uncovered, _)| *uncovered != name) {
            steps += run(subject, vector).await;
        }
    }
    let expected = COUNTS.map(|(algorithm, count)| (algorithm.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(steps, 470);
}

/// Runs a vector and returns the number of its steps.
async fn run(subject: &impl Subject, vector: &Value) -> usize {
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
    let limiter = subject.limiter(name, quotas, clock.clone());
    spend_down_to_initial(subject, vector, &limiter).await;
    let steps = vector["steps"].as_array().expect("a list");
    for (index, step) in steps.iter().enumerate() {
        only_has(step, &["t_ms", "op", "cost", "key", "limit", "expect"]);
        clock.set(at(number(step, "t_ms")));
        if step.get("limit").is_some() {
            let changed = quota(vector, 0, number(step, "limit"));
            subject.set_quota(&limiter, "default", changed);
        }
        check(
            &decided(&limiter, step["key"].as_str(), op(step)).await,
            &step["expect"],
            &format!("{name}, step {index}"),
        );
    }
    steps.len()
}

/// A field that nothing reads would promise more than the test checks.
pub fn only_has(object: &Value, known: &[&str]) {
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
async fn spend_down_to_initial<S: Subject>(subject: &S, vector: &Value, limiter: &S::Limiter) {
    let initial = numbers(vector, "initial");
    if initial.is_empty() {
        return;
    }
    let quotas = quotas(vector);
    let names: Vec<_> = limiter.policies().iter().map(Policy::name).collect();
    for (index, level) in initial.iter().enumerate() {
        let missing = quotas[index].capacity() - level;
        let lowered = quotas[index].burst(missing);
        subject.set_quota(limiter, names[index], lowered);
    }
    decided(limiter, None, Op::Hit(u64::MAX)).await;
    for (name, quota) in names.iter().zip(&quotas) {
        subject.set_quota(limiter, name, *quota);
    }
    let started = decided(limiter, None, Op::Peek(0)).await;
    let levels = started.quotas().map(|quota| quota.remaining());
    assert!(levels.eq(initial.into_iter().map(Some)), "{started:?}");
}

/// The vectors' epoch may be any edge of a day.
pub fn at(millis: u64) -> Timestamp {
    Timestamp::from_secs(20_000 * 86_400).saturating_add(Duration::from_millis(millis))
}

async fn decided(limiter: &impl Limiter, key: Option<&str>, op: Op) -> Decision {
    let key = Key::from(key.unwrap_or(THE_ONE_KEY));
    let decision = limiter.apply(&key, op.clone()).await;
    decision.unwrap_or_else(|error| panic!("{op:?}: {error}: {:?}", error.source()))
}

fn op(step: &Value) -> Op {
    let cost = number(step, "cost");
    match step.get("op").map(|_| text(step, "op")) {
        None => Op::Acquire(cost),
        Some("peek") => Op::Peek(cost),
        Some("at_most") => Op::AcquireUpTo(cost),
        Some("refund") => Op::Refund(cost, None),
        Some("reset") => Op::Reset,
        Some(op) => panic!("the operation {op} is not mapped"),
    }
}

pub fn check(decision: &Decision, expect: &Value, what: &str) {
    let quotas = decision.quotas();
    for (field, expected) in expect.as_object().expect("an object") {
        let found = match field.as_str() {
            "allowed" => Value::from(decision.is_allowed()),
            "remaining" => Value::from(quotas.clone().filter_map(|quota| quota.remaining()).min()),
            "shed" => Value::from(decision.is_shed()),
            "blocked" => Value::from(decision.is_blocked()),
            "taken" => Value::from(decision.charged()),
            "delay_ms" => Value::from(whole_millis(decision.delay())),
            "limit" => Value::from(decision.binding().limit()),
            "retry_after_us" => {
                let wait = decision.retry_after().map(|wait| wait.as_micros() as u64);
                Value::from(wait)
            }
            "retry_after_ms" => Value::from(decision.retry_after().map(whole_millis)),
            "reset_after_ms" => Value::from(decision.binding().reset_after().map(whole_millis)),
            "violated" => {
                let denied = quotas
                    .clone()
                    .enumerate()
                    .filter(|(_, quota)| quota.is_denied());
                Value::from(denied.map(|(index, _)| index).collect::<Vec<_>>())
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
