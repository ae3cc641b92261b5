//! `tests/vectors/http.json`, against the real renderer.

use std::{fs, time::Duration};

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::{IETF, header_map, lines};
use crate::{
    clock::{ManualClock, Timestamp},
    decision::{Decision, Policy, QuotaStatus, Unit},
    headers::{Headers, Renderer, ResetFormat},
    key::Key,
    limiter::{Limiter, LocalLimiter},
    quota::Quota,
};

fn group(name: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/http.json");
    let vectors: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    vectors[name].as_array().unwrap().clone()
}

fn headers_of(profile: &Value) -> Headers {
    match profile.as_str().unwrap() {
        "draft-11" | "any" => IETF,
        "x-ratelimit-epoch" => Headers::none()
            .x_ratelimit(Some(ResetFormat::EpochSeconds))
            .retry_after(true),
        other => panic!("no headers for {other}"),
    }
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

fn text(value: &Value) -> &'static str {
    value.as_str().unwrap().to_owned().leak()
}

fn pairs(fields: &Value) -> Vec<(&str, &str)> {
    let fields = fields.as_array().unwrap().iter();
    fields
        .map(|field| (field[0].as_str().unwrap(), field[1].as_str().unwrap()))
        .collect()
}

fn policy(input: &Value) -> Policy {
    let policy = Policy::new(text(&input["name"]), input["q"].as_u64().unwrap());
    let policy = match input["qu"].as_str() {
        None => policy,
        Some("concurrent-requests") => policy.with_unit(Unit::ConcurrentRequests),
        Some(other) => panic!("no unit {other}"),
    };
    match millis(&input["window_ms"]) {
        Some(window) => policy.with_window(window),
        None => policy,
    }
}

/// The unrounded `t` of a vector is the wait, if the policy denied and a wait can help.
fn status<'a>(policy: &'a Policy, input: &Value, case: &Value) -> QuotaStatus<'a> {
    let mut status = QuotaStatus::new(policy).with_remaining(input["remaining"].as_u64().unwrap());
    let window = millis(&input["reset_ms"]);
    if let Some(window) = window {
        status = status.with_effective_window(window);
    }
    let violated = case["violated"]
        .as_array()
        .is_none_or(|names| names.contains(&input["name"]));
    if case["denied"] == true && violated {
        let jitter = millis(&case["jitter_ms"]).unwrap_or_default();
        let wait = window.map(|window| window - jitter);
        status = status.with_denial(wait.filter(|_| case["never"] != true));
    }
    status
}

fn decision(policies: &[Policy], case: &Value) -> Decision {
    let inputs = case["policies"].as_array().unwrap();
    let statuses = policies.iter().zip(inputs);
    let mut statuses: Vec<_> = statuses.map(|(p, input)| status(p, input, case)).collect();
    let now = case["now_epoch_ms"].as_u64().unwrap_or_default();
    let at = Timestamp::from_micros(now * 1_000);
    let single = statuses.len() == 1;
    match (case["denied"] == true, single) {
        (true, true) => Decision::denied(at, statuses.remove(0)),
        (true, false) => Decision::denied(at, statuses),
        (false, true) => Decision::allowed(1, at, statuses.remove(0)),
        (false, false) => Decision::allowed(1, at, statuses),
    }
}

#[test]
fn single_responses_match_the_vectors() {
    for vector in group("emit") {
        let case = &vector["input"];
        let inputs = case["policies"].as_array().unwrap().iter();
        let policies: Vec<_> = inputs.map(policy).collect();
        let mut decision = decision(&policies, case);
        if case["denied"] == true {
            let wait = millis(&case["retry_after_ms"]);
            assert_eq!(decision.retry_after(), wait, "{}", vector["id"]);
        }
        decision.lengthen(millis(&case["jitter_ms"]).unwrap_or_default());

        let status = StatusCode::from_u16(vector["status"].as_u64().unwrap() as u16).unwrap();
        let mut map = HeaderMap::new();
        Renderer::new(&headers_of(&vector["profile"]), &[&policies])
            .apply(&decision, status, &mut map);
        let expected = super::pairs(&pairs(&vector["headers"]));
        assert_eq!(lines(&map), expected, "{}", vector["id"]);
    }
}

#[test]
fn nested_responses_match_the_vectors() {
    let outer = Policy::new("outer", 100).with_window(Duration::from_secs(60));
    let status = QuotaStatus::new(&outer)
        .with_remaining(50)
        .with_effective_window(Duration::from_secs(30));
    let at = Timestamp::default();
    for vector in group("nested") {
        let (headers, decision) = match vector["id"].as_str().unwrap() {
            "nested-draft11" => (IETF, Decision::allowed(1, at, status)),
            "nested-retry-after" => {
                let wait = Some(Duration::from_secs(7));
                let denied = Decision::denied(at, status.with_denial(wait));
                (Headers::none().retry_after(true), denied)
            }
            other => panic!("{other} needs a decision"),
        };
        let renderer = Renderer::new(&headers, &[std::slice::from_ref(&outer)]);
        let mut alone = HeaderMap::new();
        renderer.apply(&decision, StatusCode::OK, &mut alone);
        assert_eq!(lines(&alone), super::pairs(&pairs(&vector["outer"])));

        let mut map = header_map(&pairs(&vector["inner"]));
        renderer.apply(&decision, StatusCode::OK, &mut map);
        for (name, expected) in pairs(&vector["expect_combined"]) {
            let lines = map.get_all(name).iter();
            let lines: Vec<_> = lines.map(|line| line.to_str().unwrap()).collect();
            assert_eq!(lines.join(", "), expected, "{}", vector["id"]);
        }
    }
}

#[test]
fn token_buckets_match_the_vectors() {
    for vector in group("gcra_mapping") {
        let number = |name: &str| vector[name].as_u64().unwrap();
        let interval = Duration::from_nanos(number("emission_interval_ns"));
        let quota = Quota::per(1, interval).burst(number("burst"));
        let clock = ManualClock::new();
        let builder = LocalLimiter::builder(quota).clock(clock.clone());
        let limiter = builder.build().unwrap();
        let used = number("tat_minus_now_ns") / number("emission_interval_ns");
        let key = Key::global();
        if used > 0 {
            limiter.hit(&key, used);
        }
        let decision = match number("cost") {
            0 => limiter.peek(&key, 0),
            cost => limiter.acquire(&key, cost),
        };
        check_bucket(&vector, limiter.policies(), &decision);
    }
}

fn check_bucket(vector: &Value, policies: &[Policy], decision: &Decision) {
    let id = &vector["id"];
    let expect = &vector["expect"];
    assert_eq!(decision.is_allowed(), expect["allowed"] == true, "{id}");
    let reset_after = Duration::from_nanos(expect["reset_after_ns"].as_u64().unwrap());
    assert_eq!(decision.binding().reset_after(), Some(reset_after), "{id}");
    let wait = expect["retry_after_ns"].as_u64().map(Duration::from_nanos);
    assert_eq!(
        decision.retry_after(),
        wait.or(Some(Duration::ZERO)),
        "{id}"
    );

    let (q, w) = (&expect["policy_q"], &expect["policy_w_s"]);
    let (r, t) = (&expect["remaining"], &expect["t_rate_capped_s"]);
    let mut expected = vec![
        ("ratelimit-policy", format!("\"default\";q={q};w={w}")),
        ("ratelimit", format!("\"default\";r={r};t={t}")),
        ("x-ratelimit-limit", q.to_string()),
        ("x-ratelimit-remaining", r.to_string()),
        ("x-ratelimit-reset", t.to_string()),
    ];
    if let Some(seconds) = expect["retry_after_s"].as_u64() {
        expected.push(("retry-after", seconds.to_string()));
    }
    let expected: Vec<_> = expected.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let fields = super::fields(&Headers::new(), policies, decision);
    assert_eq!(fields, super::pairs(&expected), "{id}");
}
