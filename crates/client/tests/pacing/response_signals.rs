//! The table of signals on the page `crates/client/docs/clients.md`, row by row.

use std::time::Duration;

use testkit::wall_clock_jumps::BothClocks;
use tower_ratelimit::{
    Key,
    clock::{ManualClock, Timestamp},
};
use tower_ratelimit_client::{Advice, Learn, Pacer, PacerEvent};

use super::{api, head, millis, seconds};

/// 2023-11-14T22:13:20Z.
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// The state of a destination after a response.
#[derive(Debug, PartialEq)]
struct After {
    advice: Advice,
    paused_for: Option<Duration>,
    left: Option<(u64, Duration)>,
}

fn after(learn: Learn, status: u16, lines: &[(&str, &str)]) -> After {
    let clock = ManualClock::at(NOW);
    let pacer = Pacer::learning_builder()
        .clock(clock)
        .seed(1)
        .learn(learn)
        .build()
        .unwrap();
    let mut turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
    let (status, headers) = head(status, lines);
    let advice = turn.learn(status, &headers);
    let stats = pacer.stats(&api());
    After {
        advice,
        paused_for: stats.paused_for,
        left: stats.left,
    }
}

fn pause(wait: Duration) -> After {
    After {
        advice: Advice::RetryAfter(wait),
        paused_for: Some(wait),
        left: None,
    }
}

fn left(units: u64, window: Duration) -> After {
    After {
        left: Some((units, window)),
        ..nothing()
    }
}

const fn nothing() -> After {
    After {
        advice: Advice::Done,
        paused_for: None,
        left: None,
    }
}

#[test]
fn each_signal_has_its_effect() {
    // A `google.rpc.Status` with a `RetryInfo` of 0 s.
    let details = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaLgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxICCgA";
    let date = ("date", "Tue, 14 Nov 2023 22:00:00 GMT");
    type Row<'r> = (u16, &'r [(&'r str, &'r str)], After);
    let rows: &[Row<'_>] = &[
        // 429 or 503 with Retry-After.
        (429, &[("retry-after", "7")], pause(seconds(7))),
        (503, &[("retry-after", "7")], pause(seconds(7))),
        (
            429,
            &[("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT")],
            pause(seconds(30)),
        ),
        (
            429,
            &[("retry-after", "Tue, 14 Nov 2023 22:00:30 GMT"), date],
            pause(seconds(30)),
        ),
        (
            429,
            &[("retry-after", "7"), ("ratelimit", "\"a\";r=0;t=99")],
            pause(seconds(7)),
        ),
        (429, &[("retry-after", "1000000")], pause(seconds(3_600))),
        // Without it: the longest of the quotas that have nothing left.
        (
            429,
            &[("ratelimit", "\"a\";r=0;t=5, \"b\";r=0;t=60, \"c\";r=1;t=99")],
            pause(seconds(60)),
        ),
        (
            429,
            &[(
                "ratelimit",
                "\"a\";r=0;t=1, \"b\";r=0;t=1, \"c\";r=0;t=1, \"d\";r=0;t=1, \"e\";r=0;t=3600",
            )],
            pause(seconds(3_600)),
        ),
        (503, &[("ratelimit", "\"a\";r=0;t=5")], pause(seconds(5))),
        (
            429,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1700000030"),
            ],
            pause(seconds(30)),
        ),
        (503, &[], nothing()),
        // Any failure with a wait.
        (418, &[("retry-after", "7")], pause(seconds(7))),
        (420, &[("retry-after", "7")], pause(seconds(7))),
        (430, &[("retry-after-ms", "1500")], pause(millis(1_500))),
        (413, &[("retry-after", "7")], pause(seconds(7))),
        (500, &[("retry-after", "7")], pause(seconds(7))),
        (599, &[("retry-after", "7")], pause(seconds(7))),
        (418, &[("retry-after", "soon")], nothing()),
        (418, &[], nothing()),
        (201, &[("retry-after", "7")], nothing()),
        // A wait that cannot be read.
        (429, &[("retry-after", "soon")], pause(seconds(5))),
        (429, &[("retry-after-ms", "-1")], pause(seconds(5))),
        (
            429,
            &[("retry-after", "soon"), ("ratelimit", "\"a\";r=0;t=99")],
            pause(seconds(99)),
        ),
        (
            200,
            &[GRPC, ("grpc-status", "8"), ("retry-after", "soon")],
            pause(seconds(5)),
        ),
        // 403 in the form of GitHub.
        (403, &[("retry-after", "60")], pause(seconds(60))),
        (
            403,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1700000030"),
            ],
            pause(seconds(30)),
        ),
        (403, &[], nothing()),
        (
            403,
            &[("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "30")],
            left(9, seconds(30)),
        ),
        // Any other response with fields.
        (
            200,
            &[("ratelimit", "\"a\";r=50;t=30")],
            left(50, seconds(30)),
        ),
        (
            404,
            &[("ratelimit", "\"a\";r=50;t=30")],
            left(50, seconds(30)),
        ),
        (
            200,
            &[("ratelimit", "\"a\";r=0;t=30")],
            left(0, seconds(30)),
        ),
        (
            200,
            &[("ratelimit", "\"a\";r=5;t=86400")],
            left(5, seconds(600)),
        ),
        (
            200,
            &[("ratelimit", "\"a\";r=50;t=30, \"b\";r=2;t=9")],
            left(2, seconds(9)),
        ),
        (200, &[("ratelimit", "\"a\";r=50")], nothing()),
        // gRPC.
        (
            200,
            &[
                GRPC,
                ("grpc-status", "8"),
                ("grpc-retry-pushback-ms", "1500"),
            ],
            pause(millis(1_500)),
        ),
        (
            200,
            &[
                ("content-type", "application/grpc+proto"),
                ("grpc-status", "14"),
                ("grpc-retry-pushback-ms", "1500"),
            ],
            pause(millis(1_500)),
        ),
        (
            200,
            &[
                GRPC,
                ("grpc-status", "8"),
                ("grpc-status-details-bin", details),
            ],
            After {
                paused_for: None,
                ..pause(Duration::ZERO)
            },
        ),
        (
            200,
            &[GRPC, ("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")],
            After {
                advice: Advice::DoNotRetry,
                ..nothing()
            },
        ),
        (
            200,
            &[GRPC, ("grpc-status", "8"), ("grpc-retry-pushback-ms", "x")],
            After {
                advice: Advice::DoNotRetry,
                ..nothing()
            },
        ),
        // Status 8 is a refusal with any other field, and may have the fields of a 429.
        (
            200,
            &[GRPC, ("grpc-status", "8"), ("retry-after", "7")],
            pause(seconds(7)),
        ),
        (
            200,
            &[
                GRPC,
                ("grpc-status", "8"),
                ("ratelimit", "\"a\";r=0;t=5, \"b\";r=1;t=99"),
            ],
            pause(seconds(5)),
        ),
        (200, &[GRPC, ("grpc-status", "14")], nothing()),
        (
            200,
            &[GRPC, ("grpc-status", "0"), ("ratelimit", "\"a\";r=5;t=9")],
            left(5, seconds(9)),
        ),
        // No gRPC without its content type.
        (
            200,
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "1500")],
            nothing(),
        ),
        (
            200,
            &[
                ("content-type", "application/json"),
                ("grpc-status", "8"),
                ("grpc-retry-pushback-ms", "-1"),
            ],
            nothing(),
        ),
        (
            429,
            &[
                ("retry-after", "7"),
                ("grpc-status", "8"),
                ("grpc-retry-pushback-ms", "-1"),
            ],
            pause(seconds(7)),
        ),
        // The reset is seconds, a time since the epoch in seconds or milliseconds, or a date.
        (
            200,
            &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "30")],
            left(3, seconds(30)),
        ),
        (
            200,
            &[
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "1700000030"),
            ],
            left(3, seconds(30)),
        ),
        (
            200,
            &[
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "1700000030000"),
            ],
            left(3, seconds(30)),
        ),
        (
            200,
            &[
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "Tue, 14 Nov 2023 22:13:50 GMT"),
            ],
            left(3, seconds(30)),
        ),
        (
            200,
            &[
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "1699999230"),
                date,
            ],
            left(3, seconds(30)),
        ),
        (
            200,
            &[
                ("x-rate-limit-remaining", "3"),
                ("x-rate-limit-reset", "30"),
            ],
            left(3, seconds(30)),
        ),
        (
            200,
            &[("ratelimit-remaining", "3"), ("ratelimit-reset", "30")],
            left(3, seconds(30)),
        ),
        (
            200,
            &[("ratelimit", "limit=9, remaining=3, reset=30")],
            left(3, seconds(30)),
        ),
        // Ignored fields.
        (429, &[("retry-after", "7"), ("age", "3")], nothing()),
        (
            200,
            &[("ratelimit", "\"a\";r=0;t=30"), ("age", "3")],
            nothing(),
        ),
        (
            200,
            &[("ratelimit", "\"a\";r=0;t=30"), ("age", "0")],
            left(0, seconds(30)),
        ),
        (
            302,
            &[("ratelimit", "\"a\";r=0;t=30"), ("retry-after", "7")],
            nothing(),
        ),
        (200, &[("ratelimit", "\"a\";r=0;t=30,")], nothing()),
        (200, &[("retry-after", "7")], nothing()),
        (200, &[], nothing()),
    ];
    for (status, lines, expected) in rows {
        assert_eq!(
            after(Learn::all(), *status, lines),
            *expected,
            "{status} {lines:?}"
        );
        // A pacer that learns from nothing is never paused.
        let deaf = after(Learn::nothing(), *status, lines);
        assert_eq!(
            (deaf.paused_for, deaf.left),
            (None, None),
            "{status} {lines:?}"
        );
    }
}

#[test]
fn a_refusal_without_a_wait_pauses_for_a_random_time_that_doubles() {
    let clock = ManualClock::at(NOW);
    let pacer = Pacer::learning_builder()
        .clock(clock.clone())
        .seed(1)
        .build()
        .unwrap();
    let (status, headers) = head(429, &[]);
    let mut drawn = Vec::new();
    for refusals in 0..12_u32 {
        let mut turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
        let Advice::RetryAfter(wait) = turn.learn(status, &headers) else {
            panic!("not refused");
        };
        let most = millis(500)
            .saturating_mul(2_u32.pow(refusals))
            .min(seconds(20));
        assert!(wait <= most, "{wait:?} after {refusals}");
        drawn.push(wait);
        clock.advance(wait);
    }
    assert!(drawn.iter().max() > Some(&seconds(2)), "{drawn:?}");
    // An accepted request ends the row.
    let mut turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
    assert_eq!(turn.learn(head(200, &[]).0, &headers), Advice::Done);
    // After so many refusals others seem to share the limit: twice the longest spacing.
    clock.advance(seconds(10));
    let mut turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
    let Advice::RetryAfter(wait) = turn.learn(status, &headers) else {
        panic!("not refused");
    };
    assert!(wait <= millis(500), "{wait:?}");
}

#[test]
fn a_grpc_refusal_without_a_wait_pauses_for_a_random_time() {
    let (status, headers) = head(200, &[GRPC, ("grpc-status", "8")]);
    let clock = ManualClock::at(NOW);
    let pacer = Pacer::learning_builder().clock(clock).seed(1);
    let pacer = pacer.build().unwrap();
    let mut turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
    let Advice::RetryAfter(wait) = turn.learn(status, &headers) else {
        panic!("not refused");
    };
    assert!(wait > Duration::ZERO && wait <= millis(500), "{wait:?}");
    assert!(pacer.stats(&api()).paused_for.is_some());
}

/// The number of requests that are sent at once after a pause whose first request got this
/// response.
fn round_after(status: u16, lines: &[(&str, &str)]) -> usize {
    let clock = ManualClock::at(NOW);
    let pacer = Pacer::learning_builder().clock(clock.clone());
    let pacer = pacer.max_wait(Duration::ZERO).build().unwrap();
    pacer.pause(&api(), seconds(1));
    clock.advance(seconds(1));
    let mut probe = testkit::now(pacer.turn(&api(), 1)).unwrap();
    let (status, headers) = head(status, lines);
    assert_eq!(probe.learn(status, &headers), Advice::Done);
    let mut turns = Vec::new();
    while let Ok(turn) = testkit::now(pacer.turn(&api(), 1)) {
        turns.push(turn);
    }
    turns.len()
}

#[test]
fn any_response_but_a_failure_starts_the_next_round() {
    for (status, lines) in [
        (200, &[][..]),
        (404, &[]),
        // Their fields may be stale, but the request was not refused.
        (304, &[("ratelimit", "\"a\";r=0;t=30")]),
        (302, &[("retry-after", "7")]),
        (200, &[("age", "3"), ("ratelimit", "\"a\";r=0;t=30")]),
        // Not found, by a server that accepted the call.
        (200, &[GRPC, ("grpc-status", "5")]),
        (200, &[("grpc-status", "14")]),
    ] {
        assert_eq!(round_after(status, lines), 2, "{status} {lines:?}");
    }
    for (status, lines) in [
        (500, &[][..]),
        (503, &[]),
        // A refusal from a cache counts as a failure.
        (429, &[("age", "3"), ("retry-after", "7")]),
        (503, &[("age", "3"), ("retry-after", "7")]),
        // Trailers only: the status of HTTP is 200.
        (200, &[GRPC, ("grpc-status", "2")]),
        (200, &[GRPC, ("grpc-status", "4")]),
        (200, &[GRPC, ("grpc-status", "13")]),
        (200, &[GRPC, ("grpc-status", "14")]),
        (200, &[GRPC, ("grpc-status", "8"), ("age", "3")]),
    ] {
        assert_eq!(round_after(status, lines), 0, "{status} {lines:?}");
    }
}

#[test]
fn refusals_of_requests_in_flight_together_count_as_one() {
    let clock = ManualClock::at(NOW);
    let pacer = Pacer::learning_builder()
        .clock(clock)
        .seed(1)
        .build()
        .unwrap();
    let turns: Vec<_> = (0..10)
        .map(|_| testkit::now(pacer.turn(&api(), 1)).unwrap())
        .collect();
    let (status, headers) = head(429, &[]);
    for mut turn in turns {
        let Advice::RetryAfter(wait) = turn.learn(status, &headers) else {
            panic!("not refused");
        };
        assert!(wait <= millis(500), "{wait:?}");
    }
}

#[test]
fn a_late_response_undoes_nothing() {
    let clock = ManualClock::at(NOW);
    let pacer = Pacer::learning_builder().clock(clock).build().unwrap();
    let [first, second, third] = [(); 3].map(|()| testkit::now(pacer.turn(&api(), 1)).unwrap());
    let learn = |mut turn: tower_ratelimit_client::Turn, line: &str| {
        let (status, headers) = head(200, &[("ratelimit", line)]);
        turn.learn(status, &headers);
        pacer.stats(&api()).left
    };
    // The server may have received neither of the others when it responded to the second.
    assert_eq!(learn(second, "\"a\";r=7;t=20"), Some((5, seconds(20))));
    assert_eq!(learn(first, "\"a\";r=100;t=99"), Some((5, seconds(20))));
    assert_eq!(learn(third, "\"a\";r=3;t=9"), Some((3, seconds(9))));
}

#[test]
fn requests_in_flight_are_subtracted_from_reported_units() {
    let reported = ("ratelimit", "\"a\";r=7;t=20");
    // The first is in flight. The third was sent later, although its response arrived earlier.
    for third in [head(200, &[]), head(500, &[])] {
        let clock = ManualClock::at(NOW);
        let pacer = Pacer::learning_builder().clock(clock).build().unwrap();
        let [_first, mut second, mut last] =
            [(); 3].map(|()| testkit::now(pacer.turn(&api(), 1)).unwrap());
        last.learn(third.0, &third.1);
        let (status, headers) = head(200, &[reported]);
        second.learn(status, &headers);
        assert_eq!(pacer.stats(&api()).left, Some((5, seconds(20))));
    }
    // Dropped turns are no longer in flight.
    let pacer = Pacer::learning_builder().clock(ManualClock::at(NOW));
    let pacer = pacer.build().unwrap();
    let [first, second, third] = [2, 3, 4].map(|cost| testkit::now(pacer.turn(&api(), cost)));
    drop((first, third));
    let (status, headers) = head(200, &[reported]);
    second.unwrap().learn(status, &headers);
    assert_eq!(pacer.stats(&api()).left, Some((3, seconds(20))));
    assert_eq!(pacer.stats(&api()).in_flight, 0);
}

#[test]
fn observers_receive_the_source_of_a_wait() {
    let events: std::sync::Arc<std::sync::Mutex<Vec<PacerEvent>>> = std::sync::Arc::default();
    let received = std::sync::Arc::clone(&events);
    let pacer = Pacer::learning_builder()
        .observer(move |event| received.lock().unwrap().push(*event))
        .build()
        .unwrap();
    let api = api().with_key(Key::from("secret"));
    let mut turn = testkit::now(pacer.turn(&api, 1)).unwrap();
    let (status, headers) = head(429, &[("retry-after", "99")]);
    turn.learn(status, &headers);
    let error = testkit::now(pacer.turn(&api, 1)).unwrap_err();
    let message = format!("{:?}", events.lock().unwrap());
    for word in [
        "Sent",
        "Throttled { wait: 99s, source: RetryAfter }",
        "Refused { kind: Paused }",
    ] {
        assert!(message.contains(word), "{word} in {message}");
    }
    // The pause, and at most half a second more.
    let message = error.to_string();
    let left = message.strip_prefix("https://api.example.com:443 is paused for another ");
    assert!(matches!(left, Some("99 s" | "100 s")), "{message}");
    assert!(!format!("{api:?}").contains("secret"));
}

/// A client that began with its clock 20 hours behind; the response has no `Date`.
#[test]
fn a_date_is_compared_with_the_wall() {
    let clock = BothClocks::at(1_700_000_000 - 20 * 3_600);
    clock.step(20);
    let pacer = Pacer::learning_builder().clock(clock).seed(1);
    let pacer = pacer.build().unwrap();
    let mut turn = testkit::now(pacer.turn(&api(), 1)).unwrap();
    let retry_after = ("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT");
    let (status, headers) = head(429, &[retry_after]);
    assert_eq!(
        turn.learn(status, &headers),
        Advice::RetryAfter(seconds(30))
    );
    assert_eq!(pacer.stats(&api()).paused_for, Some(seconds(30)));
}
