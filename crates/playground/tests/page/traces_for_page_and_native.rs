//! The decision vectors, and random traces, in a form for both sides.

use playground::Lane;
use serde_json::{Value, json};
use testkit::{
    decision_vectors::{number, text},
    vector_files,
};
use tower_ratelimit::clock::Timestamp;

/// 2026-01-02T00:00Z, the start of a daily window.
const EPOCH: u64 = 1_767_312_000_000_000;

/// One quota, and its requests.
pub(crate) struct Trace {
    pub(crate) quota: String,
    /// Time, client and cost of each request.
    pub(crate) steps: Vec<(u64, u32, u32)>,
    /// The fields that a vector expects of each step.
    pub(crate) expected: Vec<Value>,
}

impl Trace {
    /// The results of the native crate.
    pub(crate) fn native(&self) -> Vec<String> {
        let mut lane =
            Lane::new(&self.quota).unwrap_or_else(|error| panic!("{}: {error}", self.quota));
        let mut answers = vec![lane.quota()];
        answers.extend(self.steps.iter().map(|(at, client, cost)| {
            lane.decide(Timestamp::from_micros(*at), *client, u64::from(*cost))
        }));
        answers
    }

    pub(crate) fn json(&self) -> Value {
        json!([self.quota, self.steps])
    }
}

/// A function for the page that returns a trace's results, as [`Trace::native`] does.
pub(crate) const ASK: &str = "const ask = ([quota, steps]) => [playground.core.lane(0, quota), \
    ...steps.map(([at, client, cost]) => playground.core.decide(0, at, client, cost))];";

/// The vectors that a lane supports: one quota, and requests only.
pub(crate) fn of_vectors() -> Vec<Trace> {
    let all = vector_files::group("decisions.json", "vectors");
    let traces: Vec<_> = all.iter().filter_map(of_vector).collect();
    // One more or one less is a mistake of the filter.
    assert_eq!(traces.len(), 53);
    traces
}

fn of_vector(vector: &Value) -> Option<Trace> {
    let steps = vector["steps"].as_array()?;
    let asks = |step: &Value| step.get("op").is_none() && step.get("limit").is_none();
    if vector.get("initial").is_some() || !steps.iter().all(asks) {
        return None;
    }
    let one = |field| vector.get(field).and_then(Value::as_u64);
    let window = one("window_ms")?;
    let burst = |word: &str| one("burst").map_or(String::new(), |burst| format!(" {word} {burst}"));
    let words = match text(vector, "algorithm") {
        "token_bucket" => burst("burst"),
        "token_bucket_interval" => format!("{} refill_every {window}ms", burst("burst")),
        "leaky_bucket_queue" => format!(" leaky_bucket{}", burst("queue")),
        "fixed_window" => " fixed_window".to_owned(),
        "sliding_window_counter" => " sliding_window".to_owned(),
        "sliding_window_buckets" => {
            format!(
                " sliding_window slices {}",
                window / number(vector, "bucket_ms")
            )
        }
        "sliding_window_log" => " sliding_log".to_owned(),
        _ => return None,
    };
    let client = |step: &Value| match step["key"].as_str() {
        None => 1,
        Some(key) => u32::from(key.as_bytes()[0]),
    };
    let step = |step: &Value| {
        let cost = u32::try_from(number(step, "cost")).expect("a cost");
        (EPOCH + number(step, "t_ms") * 1_000, client(step), cost)
    };
    Some(Trace {
        quota: format!("{}/{window}ms{words}", one("limit")?),
        steps: steps.iter().map(step).collect(),
        expected: steps.iter().map(|step| step["expect"].clone()).collect(),
    })
}

/// Asserts that the results, the quota's first, match the vector.
pub(crate) fn holds(trace: &Trace, answers: &[String]) {
    let answers = &answers[1..];
    assert_eq!(answers.len(), trace.steps.len());
    for (answer, expected) in answers.iter().zip(&trace.expected) {
        let answer: Value = serde_json::from_str(answer).expect("JSON");
        let millis = |field: &str| match answer[field].as_u64() {
            Some(micros) => json!(micros.div_ceil(1_000)),
            None => Value::Null,
        };
        for (field, expected) in expected.as_object().expect("an object") {
            let found = match field.as_str() {
                "allowed" => json!(answer["status"] == 200),
                "remaining" => answer["remaining"].clone(),
                "delay_ms" => millis("delay"),
                "retry_after_ms" => millis("retry_after"),
                "reset_after_ms" => millis("reset_after"),
                other => panic!("the field {other} is not mapped"),
            };
            assert_eq!(found, *expected, "{}: {field} in {answer}", trace.quota);
        }
    }
}

/// A random trace: every algorithm, times that stand still, leap and meet windows' edges.
pub(crate) fn random(seed: u64) -> Trace {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let limit = 1 + random.below(20);
    let period = [100, 1_000, 2_500, 10_000, 60_000, 3_600_000][random.below(6) as usize];
    let words = match random.below(7) {
        0 => String::new(),
        1 => format!(" burst {}", 1 + random.below(30)),
        2 => format!(" refill_every {}ms", period / (1 + random.below(4))),
        3 => format!(" leaky_bucket queue {}", random.below(10)),
        4 => " fixed_window".to_owned(),
        5 => format!(
            " sliding_window slices {}",
            [1, 2, 5, 10][random.below(4) as usize]
        ),
        _ => " sliding_log".to_owned(),
    };
    // One of several clients may be evicted after its time, chosen by hashes that differ in each process. A
    // clock that steps back would show the difference.
    let clients = 1 + random.below(3);
    let soft = if random.below(5) == 0 {
        " soft 20%"
    } else {
        ""
    };
    let mut at = EPOCH + random.below(86_400_000_000);
    let steps = (0..10 + random.below(20)).map(|_| {
        let period = period * 1_000;
        at += match random.below(5) {
            0 => 0,
            1 => random.below(1_000),
            2 => random.below(2 * period),
            3 => period - at % period,
            _ => random.below(2 * period / limit),
        };
        let steps_back = clients == 1 && random.below(10) == 0;
        let now = if steps_back {
            at - random.below(period)
        } else {
            at
        };
        (
            now,
            1 + random.below(clients) as u32,
            [1, 1, 1, 2, 0, 30][random.below(6) as usize],
        )
    });
    Trace {
        steps: steps.collect(),
        quota: format!("{limit}/{period}ms{words}{soft}"),
        expected: Vec::new(),
    }
}

/// A random sequence, equal on all machines.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}
