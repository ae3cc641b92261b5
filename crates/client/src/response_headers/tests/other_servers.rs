//! Fields of other servers, and of malicious ones.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use http::{HeaderMap, HeaderValue};
use tower_ratelimit::clock::Timestamp;

use super::map;
use crate::response_headers::{self, Grpc, Refill, ReportedQuota, reported_quota::MAX_QUOTAS};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

fn lone(lines: &[(&str, &str)]) -> ReportedQuota {
    match &*response_headers::quotas(&map(lines), NOW) {
        [quota] => *quota,
        several => panic!("{several:?} of {lines:?}"),
    }
}

#[test]
fn each_draft_is_read() {
    let quota = |refill| ReportedQuota {
        remaining: 50,
        window: seconds(5),
        refill,
        bucket: None,
    };
    let second = Some(Refill {
        window: Duration::from_secs(10),
        units: NonZeroU32::new(100).unwrap(),
    });
    for (lines, refill) in [
        (
            &[
                ("ratelimit", "\"a\";r=50;t=5"),
                ("ratelimit-policy", "\"a\";q=100;w=10"),
            ][..],
            second,
        ),
        (
            &[
                ("ratelimit", "\"a\";r=50;t=5"),
                ("ratelimit-policy", "\"b\";q=100;w=10"),
            ],
            None,
        ),
        (&[("ratelimit", "a;r=50;t=5")], None),
        (
            &[
                ("ratelimit", "limit=100, remaining=50, reset=5"),
                ("ratelimit-policy", "100;w=10"),
            ],
            second,
        ),
        (
            &[
                ("ratelimit-limit", "100, 100;w=10"),
                ("ratelimit-remaining", "50"),
                ("ratelimit-reset", "5"),
                ("ratelimit-policy", "100;w=10"),
            ],
            second,
        ),
        (
            &[("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "5")],
            None,
        ),
        (
            &[
                ("x-rate-limit-remaining", "50"),
                ("x-rate-limit-reset", "1700000005"),
            ],
            None,
        ),
    ] {
        assert_eq!(lone(lines), quota(refill), "{lines:?}");
    }
}

#[test]
fn the_newest_draft_wins() {
    let both = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "99"),
        ("ratelimit", "\"a\";r=50;t=5"),
    ];
    assert_eq!(lone(&both).remaining, 50);
}

#[test]
fn quotas_of_other_units_than_requests_are_ignored() {
    let lines = [
        (
            "ratelimit",
            "\"bytes\";r=0;t=60, \"slots\";r=1, \"a\";r=9;t=3",
        ),
        (
            "ratelimit-policy",
            "\"bytes\";q=9;qu=\"content-bytes\";w=1, \"slots\";q=2;qu=\"concurrent-requests\"",
        ),
    ];
    assert_eq!(lone(&lines).remaining, 9);
}

#[test]
fn requests_are_a_unit_by_both_of_its_names() {
    for unit in ["requests", "request"] {
        let policy = format!("\"a\";q=9;w=3;qu=\"{unit}\"");
        let lines = [
            ("ratelimit", "\"a\";r=9;t=3"),
            ("ratelimit-policy", &*policy),
        ];
        assert_eq!(lone(&lines).remaining, 9);
    }
}

#[test]
fn the_most_restrictive_quota_is_first() {
    let line =
        "\"a\";r=0;t=1, \"b\";r=0, \"c\";r=0;t=1, \"d\";r=0;t=1, \"e\";r=2;t=7, \"f\";r=0;t=60";
    let quotas = response_headers::quotas(&map(&[("ratelimit", line)]), NOW);
    let windows: Vec<_> = quotas.iter().map(|quota| quota.window).collect();
    assert_eq!(windows, [60, 1, 1, 1].map(seconds));
}

#[test]
fn dates_are_counted_from_the_servers_own_clock() {
    // The server's clock, and so its date, is a day behind.
    let headers = map(&[
        ("date", "Mon, 13 Nov 2023 22:13:20 GMT"),
        ("retry-after", "Mon, 13 Nov 2023 22:13:50 GMT"),
        ("x-ratelimit-remaining", "1"),
        ("x-ratelimit-reset", "1699913610"),
    ]);
    assert_eq!(response_headers::retry_after(&headers, NOW), seconds(30));
    assert_eq!(
        response_headers::quotas(&headers, NOW)[0].window,
        seconds(10)
    );
}

#[test]
fn the_longest_of_several_waits_counts() {
    for lines in [
        &[
            ("retry-after", "3"),
            ("retry-after", "soon"),
            ("retry-after", "7"),
        ][..],
        &[("retry-after", "3, soon, 7, 5")],
        &[("retry-after", "3, Tue, 14 Nov 2023 22:13:27 GMT,, 5")],
    ] {
        let wait = response_headers::retry_after(&map(lines), NOW);
        assert_eq!(wait, seconds(7), "{lines:?}");
    }
}

/// Reddit's form.
#[test]
fn remaining_units_with_a_fraction_are_rounded_down() {
    for (remaining, expected) in [
        ("3.0", Some(3)),
        ("0.9", Some(0)),
        ("3.", None),
        (".5", None),
    ] {
        for (name, reset) in [
            ("ratelimit-remaining", "ratelimit-reset"),
            ("x-ratelimit-remaining", "x-ratelimit-reset"),
            (
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
            ),
            ("x-rate-limit-remaining", "x-rate-limit-reset"),
        ] {
            let headers = map(&[(name, remaining), (reset, "30")]);
            let quotas = response_headers::quotas(&headers, NOW);
            let units = quotas.first().map(|quota| quota.remaining);
            assert_eq!(units, expected, "{name}: {remaining}");
            let units = response_headers::legacy_remaining(&headers);
            assert_eq!(units, expected, "{name}: {remaining}");
        }
    }
    let bucket = lone(&[
        ("x-ratelimit-limit-requests", "60.5"),
        ("x-ratelimit-remaining-requests", "30.0"),
        ("x-ratelimit-reset-requests", "30s"),
    ]);
    assert_eq!(bucket.bucket, NonZeroU64::new(60));
    let dictionary = lone(&[("ratelimit", "limit=9.0, remaining=3.0, reset=5")]);
    assert_eq!((dictionary.remaining, dictionary.window), (3, seconds(5)));
}

/// A gateway appends its own fields to those of the server behind it.
#[test]
fn the_least_of_several_numbers_counts_with_the_reset_at_its_place() {
    for (remaining, resets, expected) in [
        (&["991, 98"][..], &["5, 60"][..], Some((98, 60))),
        (&["98, 991"], &["5, 60"], Some((98, 5))),
        (&["991", "98"], &["5", "60"], Some((98, 60))),
        (&["98", "991"], &["5, 60"], Some((98, 5))),
        // Equal numbers: the longer reset.
        (&["0, 0"], &["60, 5"], Some((0, 60))),
        // The places are unknown.
        (&["991, 98"], &["5"], Some((98, 5))),
        (&["98"], &["5, 60"], Some((98, 60))),
        (&["98, 991"], &["soon, 60"], Some((98, 60))),
        // A value that is no number restricts nothing.
        (&["-1, 98"], &["5, 60"], Some((98, 60))),
        (&["991,, 98"], &["5, 60,"], Some((98, 60))),
        (
            &["98, 991"],
            &["Tue, 14 Nov 2023 22:13:27 GMT, 60"],
            Some((98, 7)),
        ),
        (
            &["991", "98"],
            &["5", "Tuesday, 14-Nov-23 22:13:27 GMT"],
            Some((98, 7)),
        ),
        (&["-1, x"], &["5, 60"], None),
        (&[","], &["5, 60"], None),
        (&["991, 98"], &["soon"], None),
    ] {
        for (name, reset) in [
            ("ratelimit-remaining", "ratelimit-reset"),
            ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ] {
            let lines = remaining.iter().map(|value| (name, *value));
            let lines: Vec<_> = lines
                .chain(resets.iter().map(|value| (reset, *value)))
                .collect();
            let headers = map(&lines);
            let quotas = response_headers::quotas(&headers, NOW);
            let quota = quotas.first().map(|quota| (quota.remaining, quota.window));
            let expected = expected.map(|(units, window)| (units, seconds(window)));
            assert_eq!(quota, expected, "{lines:?}");
        }
    }
    let headers = map(&[("x-ratelimit-remaining", "9, 0")]);
    assert_eq!(response_headers::legacy_remaining(&headers), Some(0));
    let dictionary = "limit=999, remaining=991, reset=5, limit=99, remaining=98, reset=60";
    let dictionary = lone(&[("ratelimit", dictionary)]);
    assert_eq!((dictionary.remaining, dictionary.window), (98, seconds(60)));
}

#[test]
fn the_limit_is_at_the_place_of_the_least_remaining_units() {
    let bucket = lone(&[
        ("x-ratelimit-limit-requests", "1000"),
        ("x-ratelimit-limit-requests", "100"),
        ("x-ratelimit-remaining-requests", "991, 40"),
        ("x-ratelimit-reset-requests", "1s, 1m0s"),
    ]);
    assert_eq!(
        (bucket.remaining, bucket.bucket),
        (40, NonZeroU64::new(100))
    );
    assert_eq!(bucket.refill.map(|refill| refill.units.get()), Some(60));
}

#[test]
fn other_names_of_gmt_are_read() {
    for zone in ["GMT", "UTC", "+0000", "-0000"] {
        let date = |time| format!("Tue, 14 Nov 2023 {time} {zone}");
        let (sent, then) = (date("22:00:00"), date("22:00:30"));
        let lines = [
            ("date", &*sent),
            ("retry-after", &*then),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", &*then),
        ];
        let headers = map(&lines);
        assert_eq!(
            response_headers::retry_after(&headers, NOW),
            seconds(30),
            "{zone}"
        );
        assert_eq!(lone(&lines).window, seconds(30), "{zone}");
    }
    for other in ["CET", "+0100", "", "GMTUTC"] {
        let date = format!("Tue, 14 Nov 2023 22:13:50 {other}");
        let wait = response_headers::retry_after(&map(&[("retry-after", &date)]), NOW);
        assert_eq!(wait, None, "{other}");
    }
}

#[test]
fn waits_with_a_fraction_and_in_milliseconds() {
    for (lines, millis) in [
        (&[("retry-after", "1.5")][..], Some(1_500)),
        (&[("retry-after", "0.065")], Some(65)),
        (&[("retry-after", "1.")], None),
        (&[("retry-after", ".5")], None),
        (&[("retry-after", "1.5.2")], None),
        (&[("retry-after", "-1.5")], None),
        (&[("retry-after", "1e3")], None),
        (&[("retry-after-ms", "1250")], Some(1_250)),
        (&[("retry-after-ms", "12.5s")], None),
        // The exact wait and its rounding.
        (
            &[("retry-after-ms", "1250"), ("retry-after", "2")],
            Some(1_250),
        ),
        // A proxy on the way has its own limit.
        (
            &[("retry-after-ms", "1250"), ("retry-after", "60")],
            Some(60_000),
        ),
        (
            &[("retry-after-ms", "never"), ("retry-after", "2")],
            Some(2_000),
        ),
    ] {
        let expected = millis.map(Duration::from_millis);
        assert_eq!(
            response_headers::retry_after(&map(lines), NOW),
            expected,
            "{lines:?}"
        );
    }
}

#[test]
fn the_length_of_a_reset_is_read_before_its_instant() {
    let quota = lone(&[
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1700000099.123"),
        ("x-ratelimit-reset-after", "1.234"),
    ]);
    assert_eq!(quota.window, Some(Duration::from_millis(1_234)));
}

#[test]
fn requests_with_units_of_time() {
    for (reset, millis) in [
        ("1s", Some(1_000)),
        ("6m0s", Some(360_000)),
        ("88ms", Some(88)),
        ("2m59.56s", Some(179_560)),
        ("1h2m3s", Some(3_723_000)),
        ("20", Some(20_000)),
        ("", None),
        ("s", None),
        ("1s2", None),
        ("1 s", None),
        ("-1s", None),
        ("1parsec", None),
    ] {
        let lines = [
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", reset),
        ];
        let quotas = response_headers::quotas(&map(&lines), NOW);
        let window = quotas.first().and_then(|quota| quota.window);
        assert_eq!(window, millis.map(Duration::from_millis), "{reset:?}");
    }
}

#[test]
fn requests_come_back_one_by_one_where_the_limit_is_reported() {
    let lines = |remaining| {
        [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", remaining),
            ("x-ratelimit-reset-requests", "1m0s"),
        ]
    };
    let spent = lone(&lines("0"));
    assert_eq!((spent.remaining, spent.window), (0, seconds(1)));
    assert_eq!(lone(&lines("30")).window, seconds(60));
    // More units than the limit: the number of used ones is unknown.
    assert_eq!(lone(&lines("61")).refill, None);
}

#[test]
fn hostile_lengths_are_bounded() {
    let digits = "9".repeat(60);
    for reset in [&*digits, "99999999999999999999d9999999999999999999d"] {
        let lines = [
            ("x-ratelimit-limit-requests", &*digits),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", reset),
        ];
        assert!(lone(&lines).window.is_some(), "{reset}");
    }
    let long = "1s".repeat(4_000);
    let lines = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", &*long),
    ];
    assert!(response_headers::quotas(&map(&lines), NOW).is_empty());
    let fraction = format!("1.{}", "9".repeat(8_000));
    let wait = response_headers::retry_after(&map(&[("retry-after", &fraction)]), NOW);
    assert_eq!(wait, Some(Duration::new(1, 999_999_999)));
}

#[test]
fn offsets_of_dates_count() {
    for (date, expected) in [
        ("2023-11-14T23:13:50+01:00", seconds(30)),
        ("2023-11-14t17:13:50.5-05:00", seconds(30)),
        (
            "2024-02-29T00:00:00Z",
            seconds(1_709_164_800 - 1_700_000_000),
        ),
        ("1969-12-31T23:59:59Z", None),
        ("1970-01-01T00:00:00+01:00", None),
        ("2023-13-14T22:13:50Z", None),
        ("2023-11-14T22:13:50", None),
        ("2023-11-14T22:13Z", None),
    ] {
        let headers = map(&[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", date)]);
        let quotas = response_headers::quotas(&headers, NOW);
        assert_eq!(
            quotas.first().and_then(|quota| quota.window),
            expected,
            "{date}"
        );
    }
}

#[test]
fn hostile_numbers_are_bounded() {
    let mut headers = HeaderMap::new();
    for n in 0..10_000 {
        let line = HeaderValue::try_from(format!("\"p{n}\";r=0;t=999999999999999")).unwrap();
        headers.append("ratelimit", line);
    }
    assert!(response_headers::quotas(&headers, NOW).is_empty());

    let many: Vec<_> = (0..60).map(|n| format!("\"{n}\";r={n}")).collect();
    let quotas = response_headers::quotas(&map(&[("ratelimit", &many.join(", "))]), NOW);
    let remaining: Vec<_> = quotas.iter().map(|quota| quota.remaining).collect();
    assert_eq!(remaining, [0, 1, 2, 3]);
    assert_eq!(quotas.len(), MAX_QUOTAS);

    let text = "9".repeat(40);
    let longest = response_headers::retry_after(&map(&[("retry-after", &text)]), NOW);
    assert_eq!(longest, Some(Duration::from_secs(u64::MAX)));
    let quota = lone(&[
        ("x-ratelimit-remaining", &text),
        ("x-ratelimit-reset", &text),
    ]);
    assert_eq!(quota.remaining, u64::MAX);
    assert_eq!(
        lone(&[("ratelimit", "\"a\";r=0;t=999999999999999")]).window,
        seconds(999_999_999_999_999)
    );
}

#[test]
fn grpc_fields_are_read() {
    // Each is a `google.rpc.Status` of code 8: with a `RetryInfo` without a delay, and with one of
    // 7.5 s.
    let no_delay = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaLgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxICCgA";
    let delay = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIBxCAyrXuAQ";
    let wait = |millis| Some(Grpc::RetryAfter(Duration::from_millis(millis)));
    for (lines, expected) in [
        (
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "1500")][..],
            wait(1_500),
        ),
        (
            &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "0")],
            wait(0),
        ),
        (
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")],
            Some(Grpc::DoNotRetry),
        ),
        (
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "007")],
            Some(Grpc::DoNotRetry),
        ),
        (
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "+7")],
            Some(Grpc::DoNotRetry),
        ),
        (
            &[
                ("grpc-status", "8"),
                ("grpc-retry-pushback-ms", "3000000000"),
            ],
            Some(Grpc::DoNotRetry),
        ),
        (
            &[("grpc-status", "5"), ("grpc-retry-pushback-ms", "1500")],
            None,
        ),
        (&[("grpc-status", "8")], Some(Grpc::Exhausted)),
        (
            &[("grpc-status", "8"), ("grpc-status-details-bin", "????")],
            Some(Grpc::Exhausted),
        ),
        (
            &[("grpc-status", "8"), ("grpc-status-details-bin", no_delay)],
            wait(0),
        ),
        (
            &[("grpc-status", "14"), ("grpc-status-details-bin", delay)],
            wait(7_500),
        ),
        // Status 8 alone means that the limit is used up, 14 does not.
        (&[("grpc-status", "14")], Some(Grpc::Failed)),
        (
            &[("grpc-status", "13"), ("grpc-retry-pushback-ms", "1500")],
            Some(Grpc::Failed),
        ),
        (&[("grpc-retry-pushback-ms", "1500")], None),
    ] {
        let mut headers = map(lines);
        assert_eq!(response_headers::grpc(&headers), None, "{lines:?}");
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        assert_eq!(response_headers::grpc(&headers), expected, "{lines:?}");
        let web = HeaderValue::from_static("application/grpc-web");
        headers.insert("content-type", web);
        assert_eq!(response_headers::grpc(&headers), None, "{lines:?}");
    }
}
