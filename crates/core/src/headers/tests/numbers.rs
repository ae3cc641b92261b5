//! Tests of the fields that a response gets, and of their numbers.

use std::time::Duration;

use super::{
    IETF, PER_MINUTE, allowed, denied, denied_for, fields, header_map, left, lines, pairs,
};
use crate::{
    decision::{Policy, QuotaStatus},
    headers::{
        Headers, Renderer, ResetFormat, config,
        texts::{LARGEST, digits, number_value, short},
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
    assert_eq!(config::draw(Duration::from_nanos(999)), Duration::ZERO);
    let mut seen = [0; 4];
    for _ in 0..1_000 {
        let drawn = config::draw(Duration::from_micros(3));
        seen[drawn.as_micros() as usize] += 1;
    }
    // Each step is expected 250 times; 100 is more than ten standard deviations away.
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    let most = Duration::from_secs(5);
    assert!((0..1_000).all(|_| Headers::new().jitter(most).draw_jitter() <= most));
    assert!(config::draw(Duration::MAX) > Duration::ZERO);
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
