//! Tests of the fields, and what they share.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Headers, IetfDraft, Renderer};
use crate::{
    clock::Timestamp,
    decision::{Decision, Policy, QuotaStatus, QuotaStatuses},
};

const IETF: Headers = Headers::none()
    .ietf(Some(IetfDraft::Draft11))
    .retry_after(true);

const PER_MINUTE: Policy = Policy::new("default", 100).with_window(Duration::from_secs(60));

/// `remaining` of [`PER_MINUTE`], which is all a client may use for half a minute.
fn left(remaining: u64) -> QuotaStatus<'static> {
    QuotaStatus::new(const { &PER_MINUTE })
        .with_remaining(remaining)
        .with_effective_window(Duration::from_secs(30))
}

fn denied_for(wait: Option<Duration>) -> QuotaStatus<'static> {
    QuotaStatus::new(const { &PER_MINUTE })
        .with_remaining(0)
        .with_denial(wait)
}

fn allowed(quotas: impl Into<QuotaStatuses>) -> Decision {
    Decision::allowed(1, Timestamp::from_secs(1_700_000_000), quotas)
}

fn denied(quotas: impl Into<QuotaStatuses>) -> Decision {
    Decision::denied(Timestamp::from_secs(1_700_000_000), quotas)
}

/// The fields after one renderer, in their order.
fn fields(headers: &Headers, policies: &[Policy], decision: &Decision) -> Vec<(String, String)> {
    added_to(&[], headers, policies, decision)
}

/// The fields after one renderer, on a response that has some.
fn added_to(
    present: &[(&str, &str)],
    headers: &Headers,
    policies: &[Policy],
    decision: &Decision,
) -> Vec<(String, String)> {
    let status = if decision.is_denied() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::OK
    };
    let mut map = header_map(present);
    Renderer::new(headers, &[policies]).apply(decision, status, &mut map);
    lines(&map)
}

fn header_map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    map
}

fn lines(map: &HeaderMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect()
}

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Tests of the fields that a response gets, and of their numbers.
mod numbers {
    use std::time::Duration;

    use super::{
        IETF, PER_MINUTE, allowed, denied, denied_for, fields, header_map, left, lines, pairs,
    };
    use crate::{
        decision::{Policy, QuotaStatus},
        headers::{
            Headers, LARGEST, Renderer, ResetFormat, config::draw, digits, number_value, short,
        },
    };

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_response_has_all_fields_by_default() {
        assert_eq!(
            fields(
                &Headers::default(),
                &[PER_MINUTE],
                &denied(denied_for(Some(SECOND * 7)))
            ),
            pairs(&[
                ("ratelimit-policy", "\"default\";q=100;w=60"),
                ("ratelimit", "\"default\";r=0;t=7"),
                ("x-ratelimit-limit", "100"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "7"),
                ("retry-after", "7"),
            ]),
        );
    }

    #[test]
    fn redirects_and_layers_without_headers_have_no_fields() {
        let denial = denied(denied_for(Some(SECOND)));
        assert_eq!(fields(&Headers::none(), &[PER_MINUTE], &denial), []);

        let headers = Headers::new().x_ratelimit_retry_after(true);
        let renderer = Renderer::new(&headers, &[&[PER_MINUTE]]);
        for status in [300, 302, 304, 308] {
            let mut map = header_map(&[]);
            renderer.apply(&denial, status.try_into().unwrap(), &mut map);
            assert_eq!(lines(&map), [], "{status}");
        }
    }

    #[test]
    fn fields_report_no_more_than_the_limiter() {
        assert_eq!(
            fields(
                &Headers::new(),
                &[PER_MINUTE],
                &allowed(QuotaStatus::new(&PER_MINUTE))
            ),
            pairs(&[
                ("ratelimit-policy", "\"default\";q=100;w=60"),
                ("x-ratelimit-limit", "100"),
            ]),
        );
        let day = Policy::new("day", 5_000);
        let known = QuotaStatus::new(&day).with_remaining(4_999);
        assert_eq!(
            fields(
                &Headers::new(),
                &[PER_MINUTE, day.clone()],
                &allowed(vec![QuotaStatus::new(&PER_MINUTE), known])
            ),
            pairs(&[
                ("ratelimit-policy", "\"default\";q=100;w=60, \"day\";q=5000"),
                ("ratelimit", "\"day\";r=4999"),
                ("x-ratelimit-limit", "5000"),
                ("x-ratelimit-remaining", "4999"),
            ]),
        );
    }

    #[test]
    fn single_fields_report_the_binding_quota() {
        let day = Policy::new("day", 5_000).with_window(SECOND * 86_400);
        let wait = Duration::from_micros(3_599_000_001);
        let status = QuotaStatus::new(&day)
            .with_remaining(1)
            .with_denial(Some(wait));
        let fields = fields(
            &Headers::new().x_ratelimit_retry_after(true),
            &[PER_MINUTE, day.clone()],
            &denied(vec![denied_for(Some(SECOND)), status]),
        );
        assert_eq!(
            fields[1..],
            pairs(&[
                ("ratelimit", "\"default\";r=0;t=1, \"day\";r=1;t=3600"),
                ("x-ratelimit-limit", "5000"),
                ("x-ratelimit-remaining", "1"),
                ("x-ratelimit-reset", "3600"),
                ("retry-after", "3600"),
                ("x-ratelimit-retry-after", "3600"),
            ]),
        );
    }

    #[test]
    fn a_denial_that_never_passes_has_no_wait() {
        let never = denied(vec![denied_for(Some(SECOND)), denied_for(None)]);
        let headers = Headers::none()
            .retry_after(true)
            .x_ratelimit_retry_after(true);
        assert_eq!(fields(&headers, &[PER_MINUTE, PER_MINUTE], &never), []);
    }

    #[test]
    fn a_changed_limit_is_reported_as_decided() {
        for limit in [7, 7_000] {
            let policy = Policy::new("default", limit);
            let changed = QuotaStatus::new(&policy).with_remaining(7);
            let legacy = Headers::none().x_ratelimit(Some(ResetFormat::DeltaSeconds));
            assert_eq!(
                fields(&legacy, &[PER_MINUTE], &allowed(changed)),
                pairs(&[
                    ("x-ratelimit-limit", &limit.to_string()),
                    ("x-ratelimit-remaining", "7"),
                ]),
            );
        }
    }

    #[test]
    fn an_epoch_reset_is_rounded_up_once() {
        let legacy = Headers::none().x_ratelimit(Some(ResetFormat::EpochSeconds));
        let fields = fields(&legacy, &[PER_MINUTE], &allowed(left(1)));
        assert_eq!(fields[2].1, "1700000030");
    }

    #[test]
    fn the_wait_of_a_denial_is_never_zero() {
        let at_once = denied(denied_for(Some(Duration::ZERO)));
        let waits = |reset| {
            let headers = Headers::new()
                .x_ratelimit(Some(reset))
                .x_ratelimit_retry_after(true);
            let fields = fields(&headers, &[PER_MINUTE], &at_once);
            [1, 4, 5, 6].map(|field: usize| fields[field].1.clone())
        };
        let status = "\"default\";r=0;t=1";
        assert_eq!(waits(ResetFormat::DeltaSeconds), [status, "1", "1", "1"]);
        let next_second = "1700000001";
        assert_eq!(
            waits(ResetFormat::EpochSeconds),
            [status, next_second, "1", "1"]
        );
    }

    #[test]
    fn names_of_any_characters_are_valid_fields() {
        let long = "n".repeat(300);
        let odd = Policy::new("d\u{e9}j\u{e0}\n\"vu\"", 1);
        let policies = [Policy::owned(&long, 1), odd];
        let statuses = policies
            .each_ref()
            .map(|policy| QuotaStatus::new(policy).with_remaining(1));
        let expected = format!("\"{long}\";r=1, \"d?j??\\\"vu\\\"\";r=1");
        let decision = allowed(statuses.to_vec());
        assert_eq!(fields(&IETF, &policies, &decision)[1].1, expected);
        // A decision about quotas that the limiter did not announce is rendered like any other.
        assert_eq!(
            fields(&IETF, &[], &decision),
            fields(&IETF, &policies, &decision),
        );
    }

    #[test]
    fn numbers_are_written_as_text() {
        for number in [0, 9, 10, 99, 100, 999, 1_000, 12_034, 1_000_000, LARGEST] {
            let text = number.to_string();
            assert_eq!(digits(number, <[u8]>::to_vec), text.as_bytes());
            assert_eq!(number_value(number), text.as_str());
            assert_eq!(short(number), (number < 1_000).then_some(text.as_str()));
        }
        for number in [LARGEST + 1, u64::MAX] {
            assert_eq!(digits(number, <[u8]>::to_vec), b"999999999999999");
            assert_eq!(number_value(number), "999999999999999");
        }
    }

    #[test]
    fn jitter_reaches_every_step_up_to_the_most() {
        assert_eq!(Headers::new().draw_jitter(), Duration::ZERO);
        assert_eq!(draw(Duration::from_nanos(999)), Duration::ZERO);
        let mut seen = [0; 4];
        for _ in 0..1_000 {
            let drawn = draw(Duration::from_micros(3));
            seen[drawn.as_micros() as usize] += 1;
        }
        // Each step is expected 250 times; 100 is more than ten standard deviations away.
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        let most = Duration::from_secs(5);
        assert!((0..1_000).all(|_| Headers::new().jitter(most).draw_jitter() <= most));
        assert!(draw(Duration::MAX) > Duration::ZERO);
    }

    #[test]
    fn jitter_lengthens_every_wait_alike() {
        let mut denial = denied(vec![
            denied_for(Some(SECOND)),
            left(5),
            denied_for(Some(SECOND * 3)),
            denied_for(None),
        ]);
        denial.lengthen(Duration::from_millis(2_500));
        let waits: Vec<_> = denial.quotas().map(|quota| quota.retry_after()).collect();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(waits, [millis(3_500), None, millis(5_500), None]);
    }
}

/// Tests of responses that have fields already.
mod merge {
    use std::time::Duration;

    use super::{PER_MINUTE, added_to, allowed, denied, denied_for, left, pairs};
    use crate::{
        decision::{Policy, QuotaStatus, Unit},
        headers::{Headers, ResetFormat},
    };

    const LEGACY: Headers = Headers::none().x_ratelimit(Some(ResetFormat::DeltaSeconds));

    const OURS: [(&str, &str); 3] = [
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "50"),
        ("x-ratelimit-reset", "30"),
    ];

    fn set_after(present: &[(&str, &str)], remaining: u64) -> Vec<(String, String)> {
        let mut fields = added_to(present, &LEGACY, &[PER_MINUTE], &allowed(left(remaining)));
        fields.sort();
        fields
    }

    #[test]
    fn the_set_with_less_remaining_stays() {
        let theirs = |remaining| {
            [
                ("x-ratelimit-limit", "5"),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", "1"),
            ]
        };
        assert_eq!(set_after(&theirs("51"), 50), pairs(&OURS));
        assert_eq!(set_after(&theirs("49"), 50), pairs(&theirs("49")));
        assert_eq!(set_after(&theirs("50"), 50), pairs(&theirs("50")));
    }

    /// Reddit's form.
    #[test]
    fn a_fraction_of_remaining_units_does_not_count() {
        for (remaining, stays) in [("51.0", false), ("50.9", true), ("49.9", true)] {
            let theirs = [
                ("x-ratelimit-limit", "600.0"),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", "1"),
            ];
            let expected = if stays { pairs(&theirs) } else { pairs(&OURS) };
            assert_eq!(set_after(&theirs, 50), expected, "{remaining}");
        }
    }

    #[test]
    fn a_set_with_an_unreadable_remaining_stays() {
        for remaining in [
            "",
            "many",
            "+99",
            "99.",
            ".99",
            "99.5.5",
            "99,9",
            "99.-5",
            "99999999999999999999999",
        ] {
            let theirs = [("x-ratelimit-remaining", remaining)];
            assert_eq!(set_after(&theirs, 50), pairs(&theirs), "{remaining}");
        }
        let twice = [
            ("x-ratelimit-remaining", "99"),
            ("x-ratelimit-remaining", "98"),
        ];
        let mut expected = pairs(&twice);
        expected.sort();
        assert_eq!(set_after(&twice, 50), expected);
    }

    #[test]
    fn a_whole_set_replaces_a_part_of_one() {
        assert_eq!(set_after(&[("x-ratelimit-limit", "5")], 50), pairs(&OURS));
        assert_eq!(set_after(&[("x-ratelimit-reset", "1")], 50), pairs(&OURS));
        assert_eq!(
            set_after(&[("x-ratelimit-remaining", "51")], 50),
            pairs(&OURS)
        );
    }

    #[test]
    fn sets_are_never_mixed() {
        let theirs = [
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", "1"),
        ];
        let unknown = allowed(QuotaStatus::new(&PER_MINUTE));
        assert_eq!(
            added_to(&theirs, &LEGACY, &[PER_MINUTE], &unknown),
            pairs(&theirs),
        );

        let in_flight = Policy::new("flight", 8).with_unit(Unit::ConcurrentRequests);
        let lower = allowed(QuotaStatus::new(&in_flight).with_remaining(3));
        assert_eq!(
            added_to(&theirs, &LEGACY, &[in_flight], &lower),
            pairs(&[("x-ratelimit-limit", "8"), ("x-ratelimit-remaining", "3")]),
        );
    }

    #[test]
    fn other_fields_stay() {
        let theirs = [
            ("x-ratelimit-resource", "core"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ];
        let fields = set_after(&theirs, 50);
        assert!(pairs(&theirs).iter().all(|field| fields.contains(field)));
        assert!(pairs(&OURS).iter().all(|field| fields.contains(field)));
    }

    #[test]
    fn the_longer_wait_stays() {
        let headers = Headers::none()
            .retry_after(true)
            .x_ratelimit_retry_after(true);
        let denial = denied(denied_for(Some(Duration::from_secs(7))));
        for name in ["retry-after", "x-ratelimit-retry-after"] {
            let wait_after = |theirs: &str| {
                let fields = added_to(&[(name, theirs)], &headers, &[PER_MINUTE], &denial);
                let mut waits = fields.into_iter().filter(|field| field.0 == name);
                let wait = waits.next().map(|field| field.1);
                assert_eq!(waits.next(), None);
                wait.unwrap_or_default()
            };
            assert_eq!(wait_after("3"), "7");
            assert_eq!(wait_after("7"), "7");
            assert_eq!(wait_after("60"), "60");
            assert_eq!(wait_after("6.9"), "7");
            assert_eq!(wait_after("7.5"), "7.5");
            for unreadable in ["Wed, 21 Oct 2026 07:28:00 GMT", "soon", "-1", ""] {
                assert_eq!(wait_after(unreadable), unreadable);
            }
            let twice = [(name, "3"), (name, "4")];
            assert_eq!(
                added_to(&twice, &headers, &[PER_MINUTE], &denial)
                    .into_iter()
                    .filter(|field| field.0 == name)
                    .collect::<Vec<_>>(),
                pairs(&twice)
            );
        }
    }
}

/// `tests/vectors/http.json`, against the real renderer.
mod vectors {
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
        let mut status =
            QuotaStatus::new(policy).with_remaining(input["remaining"].as_u64().unwrap());
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
}
