//! Quotas: what they accept, and what they say about the rest.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{ConfigErrorKind as Kind, Limiter, LocalLimiter, Quota};

fn kind_of(quota: Quota) -> Option<Kind> {
    quota.check().err().map(|error| error.kind())
}

#[test]
fn nonsense_is_a_named_error() {
    let minute = Duration::from_secs(60);
    let forever = Duration::from_secs(u64::MAX);
    let cases = [
        (Quota::per_second(0), Kind::Limit, "limit of 0"),
        (Quota::per(1, Duration::ZERO), Kind::Period, "period of 0"),
        (Quota::per_second(1).burst(0), Kind::Burst, "burst of 0"),
        (
            Quota::per_second(1_000_001),
            Kind::Rate,
            "a million a second",
        ),
        (
            Quota::per(u64::MAX, minute),
            Kind::Rate,
            "a million a second",
        ),
        (Quota::per(1, forever), Kind::Overflow, "18 years"),
        (Quota::per_day(1).burst(10_000), Kind::Overflow, "18 years"),
        (
            Quota::per_second(1).burst(u64::MAX),
            Kind::Overflow,
            "18 years",
        ),
        (
            Quota::per_second(1).named(""),
            Kind::Name,
            "printable ASCII",
        ),
        (
            Quota::per_second(1).named("naïve"),
            Kind::Name,
            "printable ASCII",
        ),
        (
            Quota::per_second(1).named("a\nb"),
            Kind::Name,
            "printable ASCII",
        ),
    ];
    for (quota, kind, said) in cases {
        let error = quota.check().expect_err("accepted");
        assert_eq!(error.kind(), kind, "{quota:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn settings_of_other_algorithms_are_named_errors() {
    let quota = Quota::per_minute(6);
    let ms = Duration::from_millis;
    let other = [
        quota.leaky_bucket(3),
        quota.fixed_window(),
        quota.sliding_window(),
        quota.sliding_log(),
    ];
    for quota in other {
        assert_eq!(kind_of(quota), None, "{quota:?}");
        let error = quota.burst(6).check().expect_err("no bucket");
        assert_eq!(error.kind(), Kind::Burst, "{quota:?}");
        assert!(error.to_string().contains("only a token bucket"), "{error}");
        let error = quota.refill_every(ms(1)).check().expect_err("no bucket");
        assert_eq!(error.kind(), Kind::RefillStep, "{quota:?}");
        assert!(error.to_string().contains("only a token bucket"), "{error}");
    }
    for quota in [quota, other[0], other[1], other[3]] {
        let error = quota.slices(1).check().expect_err("no window that slides");
        assert_eq!(error.kind(), Kind::Slices, "{quota:?}");
        assert!(error.to_string().contains("only a sliding"), "{error}");
    }
}

#[test]
fn slices_steps_and_logs_have_their_edges() {
    let window = |period| Quota::per(1, period).sliding_window();
    let minute = Duration::from_secs(60);
    let (micro, nano) = (Duration::from_micros(1), Duration::from_nanos(1));
    let log = |limit| Quota::per_day(limit).sliding_log();
    let cases = [
        (window(minute).slices(1), None, ""),
        (window(minute).slices(1_000), None, ""),
        (window(minute).slices(0), Some(Kind::Slices), "slices(0)"),
        (
            window(minute).slices(1_001),
            Some(Kind::Slices),
            "slices(1001)",
        ),
        (window(minute).slices(7), Some(Kind::Slices), "whole number"),
        (window(7 * micro).slices(7), None, ""),
        (
            window(6 * micro).slices(7),
            Some(Kind::Slices),
            "whole number",
        ),
        (window(minute + nano), Some(Kind::Slices), "whole number"),
        (Quota::per(1, minute + nano).fixed_window(), None, ""),
        (Quota::per(1, minute + nano).sliding_log(), None, ""),
        (log(65_536), None, ""),
        (log(65_537), Some(Kind::LogLimit), "65537"),
        (log(65_536).soft(1), Some(Kind::LogLimit), "66191"),
        (Quota::per_second(1).refill_every(micro), None, ""),
        (
            Quota::per_second(1).refill_every(Duration::ZERO),
            Some(Kind::RefillStep),
            "every 0 seconds",
        ),
        (
            Quota::per_second(1).refill_every(micro + nano),
            Some(Kind::RefillStep),
            "whole number",
        ),
        (
            Quota::per_second(1).refill_every(Duration::from_secs(u64::MAX)),
            Some(Kind::Overflow),
            "18 years",
        ),
        (
            Quota::per_second(1).leaky_bucket(u64::MAX),
            Some(Kind::Overflow),
            "18 years",
        ),
        (
            Quota::per(1, Duration::MAX).fixed_window(),
            Some(Kind::Overflow),
            "18 years",
        ),
        (Quota::per_second(1).soft(1_000), None, ""),
        (
            Quota::per_second(1).soft(1_001),
            Some(Kind::Soft),
            "1000 percent",
        ),
        (
            Quota::per_second(1).soft(u32::MAX),
            Some(Kind::Soft),
            "1000 percent",
        ),
    ];
    for (quota, kind, said) in cases {
        assert_eq!(kind_of(quota), kind, "{quota:?}");
        let built = LocalLimiter::try_new(quota);
        match (quota.check(), built) {
            (Ok(()), Ok(_)) => {}
            (Err(error), Err(refused)) => {
                assert_eq!(error, refused);
                assert!(error.to_string().contains(said), "{said}: {error}");
            }
            (checked, built) => panic!("{quota:?}: {checked:?}, {built:?}"),
        }
    }
}

fn names<const N: usize>(quotas: [Quota; N]) -> Result<Vec<String>, (Kind, String)> {
    let limiter = LocalLimiter::try_new(quotas);
    let limiter = limiter.map_err(|error| (error.kind(), error.to_string()))?;
    let policies = limiter.policies().iter();
    Ok(policies.map(|policy| policy.name().to_owned()).collect())
}

#[test]
fn unnamed_quotas_of_a_list_are_named_after_their_rate() {
    let stacked = [Quota::per_second(10), Quota::per_day(10_000)];
    assert_eq!(
        names(stacked),
        Ok(vec!["10-per-1s".into(), "10000-per-86400s".into()])
    );
    let mixed = [
        Quota::per(5, Duration::from_millis(250)).fixed_window(),
        Quota::per_hour(5).named("login"),
    ];
    assert_eq!(names(mixed), Ok(vec!["5-per-250ms".into(), "login".into()]));
    assert_eq!(names([Quota::per_second(10)]), Ok(vec!["default".into()]));
    assert_eq!(
        names([Quota::per_second(10).named("api")]),
        Ok(vec!["api".into()])
    );
}

#[test]
fn two_of_one_name_or_none_at_all_are_named_errors() {
    let doubles = [
        ([Quota::per_second(1); 2], "1-per-1s"),
        (
            [Quota::per_second(1), Quota::per_second(1).fixed_window()],
            "1-per-1s",
        ),
        (
            [
                Quota::per_second(1).named("api"),
                Quota::per_hour(9).named("api"),
            ],
            "api",
        ),
        (
            [Quota::per_second(1), Quota::per_hour(9).named("1-per-1s")],
            "1-per-1s",
        ),
    ];
    for (quotas, name) in doubles {
        let (kind, text) = names(quotas).expect_err("two of one name");
        assert_eq!(kind, Kind::QuotaList);
        assert!(text.contains(&format!("{name:?}")), "{text}");
    }
    let (kind, text) = names([]).expect_err("none");
    assert_eq!(kind, Kind::QuotaList);
    assert!(text.contains("no quota at all"), "{text}");
    // One that makes no sense is found wherever it stands.
    let (kind, _) = names([Quota::per_second(1), Quota::per_second(0)]).expect_err("0");
    assert_eq!(kind, Kind::Limit);
}

#[test]
fn the_edges_of_what_makes_sense_are_accepted() {
    assert_eq!(kind_of(Quota::per_second(1_000_000)), None);
    assert_eq!(kind_of(Quota::per(1, Duration::from_micros(1))), None);
    assert_eq!(kind_of(Quota::per_day(1).burst(6_000)), None);
    assert_eq!(
        kind_of(Quota::per_second(1).named("a \"quoted\" name")),
        None
    );
}

#[test]
fn constructors_say_n_per_period() {
    let per_second = Quota::per_second(20);
    assert_eq!((per_second.limit(), per_second.period().as_secs()), (20, 1));
    assert_eq!(Quota::per_minute(1).period().as_secs(), 60);
    assert_eq!(Quota::per_hour(1).period().as_secs(), 3_600);
    assert_eq!(Quota::per_day(1).period().as_secs(), 86_400);
    assert_eq!(Quota::per_second(10).capacity(), 10);
    assert_eq!(Quota::per_second(10).burst(20).capacity(), 20);
}

#[test]
fn rates_are_read_as_people_write_them() {
    let accepted = [
        ("100/minute", Quota::per_minute(100)),
        ("5/10s", Quota::per(5, Duration::from_secs(10))),
        ("1/day", Quota::per_day(1)),
        ("7 / 2 hours", Quota::per(7, Duration::from_secs(7_200))),
        ("3/250ms", Quota::per(3, Duration::from_millis(250))),
        ("3/m", Quota::per_minute(3)),
    ];
    for (text, quota) in accepted {
        assert_eq!(text.parse(), Ok(quota), "{text}");
    }
}

#[test]
fn other_texts_are_refused_with_an_example() {
    let refused = [
        "",
        "/",
        "10",
        "10/",
        "/s",
        "-1/s",
        "+1/s",
        "1.5/s",
        "10 per second",
        "10/s/s",
        "10/1.5s",
        "१०/s",
    ];
    for text in refused {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(error.kind(), Kind::Syntax, "{text}");
        assert!(error.to_string().contains("100/minute"), "{error}");
    }
    assert_eq!(
        "0/s".parse::<Quota>().map_err(|e| e.kind()),
        Err(Kind::Limit)
    );
    assert_eq!(
        "1/0s".parse::<Quota>().map_err(|e| e.kind()),
        Err(Kind::Period)
    );
}

#[test]
fn an_unknown_unit_is_named_with_the_known_ones() {
    for (text, unit) in [
        ("10/fortnight", "fortnight"),
        ("10/2 weeks", "weeks"),
        ("10/M", "M"),
        ("10/µs", "µs"),
    ] {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(error.kind(), Kind::Syntax, "{text}");
        let said = error.to_string();
        assert!(said.contains(&format!("unknown unit {unit:?}")), "{said}");
        let known = "d, day, days, h, hour, hours, m, min, minute, minutes, s, sec, second, \
                     seconds, ms, us, ns";
        assert!(said.ends_with(known), "{said}");
    }
}

#[test]
fn a_number_that_is_too_large_is_named() {
    for (text, number) in [
        ("99999999999999999999/s", "99999999999999999999"),
        ("10/99999999999999999999s", "99999999999999999999"),
        ("10/18446744073709551615d", "18446744073709551615d"),
    ] {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(error.kind(), Kind::Overflow, "{text}");
        let said = error.to_string();
        assert!(said.starts_with(&format!("{number:?}")), "{said}");
        assert!(said.contains("18 years"), "{said}");
    }
    // Large, but a number: refused for what it means.
    let error = "1/18446744073709551615s"
        .parse::<Quota>()
        .expect_err("18 years");
    assert_eq!(error.kind(), Kind::Overflow);
}

#[test]
fn messages_are_short_however_long_the_text_is() {
    let (nines, word) = ("9".repeat(100_000), "x".repeat(100_000));
    for text in [
        nines.clone(),
        format!("{nines}/s"),
        format!("1/{nines}s"),
        format!("1/{word}"),
    ] {
        let said = text.parse::<Quota>().expect_err("too long").to_string();
        assert!(said.len() < 250, "{said}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC*") {
        let _ = text.parse::<Quota>();
    }

    #[test]
    fn what_is_displayed_can_be_read(limit in 1..1_000_000_u64, nanos in 1..1_u64 << 55) {
        let quota = Quota::per(limit, Duration::from_nanos(nanos));
        let read = quota.to_string().parse::<Quota>();
        // Both or neither: the text of a quota that makes no sense is refused as the quota is.
        prop_assert_eq!(read, quota.check().map(|()| quota));
    }
}

#[cfg(feature = "serde")]
mod serde {
    use std::time::Duration;

    use tower_ratelimit::{OwnedQuota, Quota};

    fn read(json: &str) -> Result<OwnedQuota, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_string_or_a_table() {
        assert_eq!(
            read(r#""100/minute""#).unwrap(),
            Quota::per_minute(100).into()
        );
        assert_eq!(
            read(r#"{"rate": "10/s", "burst": 20, "name": "api"}"#).unwrap(),
            Quota::per_second(10).burst(20).named("api").into(),
        );
        assert_eq!(
            read(r#"{"rate": "10/s"}"#).unwrap(),
            Quota::per_second(10).into()
        );
    }

    #[test]
    fn quota_without_a_name_is_read_as_one() {
        let read = serde_json::from_str::<Quota>;
        assert_eq!(read(r#""100/minute""#).unwrap(), Quota::per_minute(100));
        let burst = read(r#"{"rate": "10/s", "burst": 20}"#).unwrap();
        assert_eq!(burst, Quota::per_second(10).burst(20));
        let error = read(r#"{"rate": "10/s", "name": "api"}"#).unwrap_err();
        let said = "cannot own the name \"api\"; deserialize an `OwnedQuota` instead";
        assert!(error.to_string().contains(said), "{error}");
    }

    #[test]
    fn what_is_written_can_be_read() {
        for quota in [
            Quota::per_minute(100),
            Quota::per_second(10).burst(20),
            Quota::per_day(1).named("daily"),
            Quota::per_day(1).fixed_window(),
            Quota::per_second(5).leaky_bucket(20).named("queue"),
            Quota::per_minute(5).sliding_window().slices(6).soft(50),
            Quota::per_minute(5).sliding_log(),
            Quota::per_minute(3).refill_every(Duration::from_secs(20)),
        ] {
            let json = serde_json::to_string(&quota).unwrap();
            assert_eq!(read(&json).unwrap(), quota.into(), "{json}");
            let owned = serde_json::to_string(&read(&json).unwrap()).unwrap();
            assert_eq!(owned, json);
        }
        assert_eq!(
            serde_json::to_string(&Quota::per_minute(100)).unwrap(),
            r#""100/60s""#
        );
    }

    #[test]
    fn nonsense_says_what_is_wrong() {
        for (json, said) in [
            (r#""10/fortnight""#, "unknown unit"),
            (r#"{"rate": "10/s", "burst": 0}"#, "burst of 0"),
            (r#"{"rate": "10/s", "name": ""}"#, "printable ASCII"),
            (r#"{"rate": "10/s", "brust": 5}"#, "unknown field"),
            (r#"{"burst": 5}"#, "missing field `rate`"),
            ("7", "expected a quota"),
            (r#"{"rate": "1/s", "algorithm": "magic"}"#, "sliding_window"),
            (
                r#"{"rate": "1/s", "algorithm": "leaky_bucket"}"#,
                "needs one",
            ),
            (r#"{"rate": "1/s", "queue": 3}"#, "only a leaky bucket"),
            (
                r#"{"rate": "1/s", "algorithm": "fixed_window", "burst": 3}"#,
                "token bucket",
            ),
            (r#"{"rate": "1/s", "refill_every": "soon"}"#, "soon"),
        ] {
            let error = read(json).expect_err(json).to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
