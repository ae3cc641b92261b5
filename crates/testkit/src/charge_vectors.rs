//! The vectors of charges and what becomes of them, run through whatever limiter counts by the same
//! rules.

use std::{collections::BTreeMap, error::Error as _, time::Duration};

use serde_json::Value;
use tower_ratelimit::{
    Key, Limiter, Priority, Quota,
    clock::{ManualClock, Timestamp},
    decision::{Op, Receipt},
    limiter::Tier,
};

use super::{
    decision_vectors::{Subject, THE_ONE_KEY, at, check, number, only_has, text},
    vector_files,
};

/// A limiter to be made.
pub struct Setup {
    pub quotas: Vec<Quota>,
    /// Those besides the default one.
    pub tiers: Vec<(&'static str, Vec<Quota>)>,
    pub block_for: Option<Duration>,
}

/// Limiters that have tiers and blocks.
pub trait Tiered: Subject {
    /// Vectors that do not hold for such a limiter, by design.
    const LEFT_OUT: &'static [&'static str] = &[];

    /// A limiter that nobody has used, for the vector of this name.
    fn tiered(&self, name: &str, setup: Setup, clock: ManualClock) -> Self::Limiter;
}

/// The names of tiers in the vectors.
const TIERS: [&str; 3] = ["small", "large", "writes"];

/// Runs all vectors.
///
/// # Panics
///
/// With the step that was answered otherwise.
pub async fn every_vector_holds(subject: &impl Tiered) {
    all_hold(subject, "charges.json", (48, 250)).await;
}

/// Runs the vectors of quotas that follow the calendar.
///
/// # Panics
///
/// With the step that was answered otherwise.
pub async fn every_calendar_vector_holds(subject: &impl Tiered) {
    all_hold(subject, "calendar.json", (16, 71)).await;
}

/// Runs the vectors of quotas that vary by the time of day.
///
/// # Panics
///
/// With the step that was answered otherwise.
pub async fn every_varying_vector_holds(subject: &impl Tiered) {
    all_hold(subject, "varying.json", (10, 55)).await;
}

/// Runs the vectors of quotas that vary by the time of day of a zone.
///
/// # Panics
///
/// With the step that was answered otherwise.
pub async fn every_vector_of_zones_holds(subject: &impl Tiered) {
    all_hold(subject, "varying_in_zones.json", (11, 58)).await;
}

/// Runs the vectors of a file, which has this many vectors and steps.
async fn all_hold(subject: &impl Tiered, file: &str, expected: (usize, usize)) {
    let vectors = vector_files::group(file, "vectors");
    let mut steps = 0;
    for vector in &vectors {
        steps += run(subject, vector).await;
    }
    assert_eq!((vectors.len(), steps), expected);
}

/// Runs a vector and returns the number of its steps.
async fn run<S: Tiered>(subject: &S, vector: &Value) -> usize {
    let known = ["name", "why", "quotas", "tiers", "block_for_ms", "steps"];
    only_has(vector, &known);
    let name = text(vector, "name");
    if S::LEFT_OUT.contains(&name) {
        return vector["steps"].as_array().map_or(0, Vec::len);
    }
    let clock = ManualClock::at(at(0));
    let limiter = subject.tiered(name, setup(vector), clock.clone());
    let first = limiter.policies()[0].name();
    let mut receipts = BTreeMap::new();
    let steps = vector["steps"].as_array().expect("a list");
    for (index, step) in steps.iter().enumerate() {
        let what = format!("{name}, step {index}");
        only_has(
            step,
            &[
                "t_ms", "at", "civil", "op", "cost", "share", "tier", "as", "of", "quota", "expect",
            ],
        );
        clock.set(instant(step));
        if text(step, "op") == "set" {
            subject.set_quota(&limiter, first, quota(text(step, "quota")));
            continue;
        }
        let key = Key::from(THE_ONE_KEY);
        let in_class = (&tier(step), class(step));
        let decision = crate::apply_in_class(&limiter, in_class, &key, op(step, &receipts)).await;
        let decision =
            decision.unwrap_or_else(|error| panic!("{what}: {error}: {:?}", error.source()));
        check(&decision, &step["expect"], &what);
        if let Some(name) = step.get("as").and_then(Value::as_str) {
            receipts.insert(name.to_owned(), decision.receipt());
        }
    }
    steps.len()
}

/// The time of a step, which the calendar's vectors have as a date.
fn instant(step: &Value) -> Timestamp {
    match step.get("at") {
        Some(_) => utc(text(step, "at")),
        None => at(number(step, "t_ms")),
    }
}

/// A time in UTC, such as `2026-03-31T22:00:00Z`, with or without a fraction of a second.
pub fn utc(text: &str) -> Timestamp {
    let parts = text.trim_end_matches('Z').split(['-', 'T', ':', '.']);
    let parts: Vec<u64> = parts.map(|part| part.parse().expect("a number")).collect();
    let [year, month, day, hour, minute, second, ..] = parts[..] else {
        panic!("{text} is no time");
    };
    let is_leap = |year: u64| {
        year.is_multiple_of(400) || (year.is_multiple_of(4) && !year.is_multiple_of(100))
    };
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30];
    let years = (1970..year).map(|year| 365 + u64::from(is_leap(year)));
    let days = years.chain(months.into_iter().take(month as usize - 1));
    let days: u64 = days.sum::<u64>() + day - 1;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let micros = parts.get(6).copied().unwrap_or(0);
    Timestamp::from_micros(seconds * 1_000_000 + micros)
}

fn setup(vector: &Value) -> Setup {
    let list = |list: &Value| -> Vec<Quota> {
        let texts = list.as_array().expect("a list").iter();
        let quotas = texts.map(|text| quota(text.as_str().expect("a text")));
        let quotas: Vec<_> = quotas.collect();
        match quotas.as_slice() {
            [_] => quotas,
            _ => quotas
                .into_iter()
                .zip(["first", "second"])
                .map(named)
                .collect(),
        }
    };
    let tiers = vector.get("tiers").and_then(Value::as_object);
    let tiers = tiers.into_iter().flatten();
    Setup {
        quotas: list(&vector["quotas"]),
        tiers: tiers
            .map(|(name, quotas)| (known(name), list(quotas)))
            .collect(),
        block_for: vector
            .get("block_for_ms")
            .map(|_| Duration::from_millis(number(vector, "block_for_ms"))),
    }
}

fn named((quota, name): (Quota, &'static str)) -> Quota {
    quota.named(name)
}

fn known(name: &str) -> &'static str {
    let known = TIERS.into_iter().find(|known| *known == name);
    known.unwrap_or_else(|| panic!("no tier is named {name:?}"))
}

fn tier(step: &Value) -> Tier {
    let name = step.get("tier").and_then(Value::as_str);
    name.map_or(Tier::DEFAULT, |name| Tier::named(known(name)))
}

fn class(step: &Value) -> Priority {
    step.get("share").map_or(Priority::CRITICAL, |_| {
        let share = u8::try_from(number(step, "share")).ok();
        share.and_then(Priority::share).expect("a share")
    })
}

/// A rate, and words for the rest.
fn quota(text: &str) -> Quota {
    let mut words = text.split(' ');
    let rate = words.next().expect("a rate");
    let rate: Quota = rate
        .parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    words.fold(rate, |quota, word| {
        let (word, number) = word.split_once('=').unwrap_or((word, "0"));
        if ["in", "starting_on", "varying"].contains(&word) {
            let text = format!("{quota} {word} {number}");
            return text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let number: u64 = number.parse().expect("a number");
        match word {
            "burst" => quota.burst(number),
            "every_ms" => quota.refill_every(Duration::from_millis(number)),
            "queue" => quota.leaky_bucket(number),
            "fixed" => quota.fixed_window(),
            "slices" => quota
                .sliding_window()
                .slices(u32::try_from(number).expect("a few")),
            "log" => quota.sliding_log(),
            "debt" => quota.debt(number),
            "soft" => quota.soft(u32::try_from(number).expect("percent")),
            other => panic!("{text}: the word {other} is not mapped"),
        }
    })
}

fn op(step: &Value, receipts: &BTreeMap<String, Receipt>) -> Op {
    let receipt = step.get("of").map(|_| receipts[text(step, "of")].clone());
    let cost = || number(step, "cost");
    match text(step, "op") {
        "acquire" => Op::Acquire(cost()),
        "reserve" => Op::Reserve(cost()),
        "deny" => Op::Deny(cost()),
        "peek" => Op::Peek(cost()),
        "at_most" => Op::AcquireUpTo(cost()),
        "hit" => Op::Hit(cost()),
        "spend" => Op::Spend(cost()),
        "refund" => Op::Refund(cost(), receipt),
        "settle" => Op::Settle(cost(), receipt.expect("a settlement is of a decision")),
        "block" => Op::Block(Duration::from_millis(cost())),
        "reset" => Op::Reset,
        other => panic!("the operation {other} is not mapped"),
    }
}
