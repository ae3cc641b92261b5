//! Quotas as text: what is read, what is printed, and errors about the rest.

use std::time::Duration;

use proptest::{option::weighted, prelude::*};
use tower_ratelimit::{
    ConfigErrorKind as Kind, Limiter as _, LocalLimiter, Quota,
    quota::{IntoQuotas as _, QuotaList},
};

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
        let message = error.to_string();
        assert!(
            message.contains(&format!("unknown unit {unit:?}")),
            "{message}"
        );
        let known = "d, day, days, h, hour, hours, m, min, minute, minutes, s, sec, second, \
                     seconds, ms, us, ns";
        assert!(message.contains(known), "{message}");
    }
}

#[test]
fn other_words_for_rates_have_a_remedy() {
    for (text, remedy) in [
        ("10/2weeks", "; a week is 7d"),
        (
            "10/3 months",
            "; months differ in length: 30d is the nearest period",
        ),
        ("10/years", "; a year is 365d"),
        ("10/minu", "; did you mean \"minute\"?"),
        ("10/Hour", "; did you mean \"hour\"?"),
        ("10/mins", "; did you mean \"min\"?"),
        ("10/minit", "; did you mean \"minute\"?"),
        ("10/hous", "; did you mean \"hour\"?"),
        ("10/hrs", "; did you mean \"h\"?"),
        ("10r/s", "; did you mean \"10/s\"?"),
        (
            "10 requests/minute burst 5",
            "; did you mean \"10/minute burst 5\"?",
        ),
        (
            "10/second; 1000/hour",
            "; several quotas in one text are `QuotaList`",
        ),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.ends_with(remedy), "{error}");
    }
    for text in ["10/fortnight", "10/µs", "10x/s", "r/s", "10r/weeks"] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }
}

#[test]
fn several_quotas_stand_in_one_text() {
    let quotas: QuotaList = "10/second; 1000/hour sliding_window ;5/m"
        .parse()
        .expect("quotas");
    assert_eq!(
        quotas.to_string(),
        "10/1s; 1000/3600s sliding_window; 5/60s"
    );
    assert_eq!(quotas.to_string().parse(), Ok(quotas.clone()));
    let limiter = LocalLimiter::try_new(quotas).expect("a limiter");
    let names = limiter
        .policies()
        .iter()
        .map(|policy| policy.name().to_owned());
    let expected = ["10-per-1s", "1000-per-3600s", "5-per-60s"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let one: QuotaList = "100/minute burst 200".parse().expect("a quota");
    let own = Quota::per_minute(100).burst(200);
    assert_eq!(one.into_quotas(), own.into_quotas());
    for (wrong, part) in [
        ("", "\"\" is no quota"),
        ("10/second;", "\"\" is no quota"),
        ("10/second; 1000/hours each", "unknown word \"each\""),
        ("10/second, 1000/hour", "no quota"),
    ] {
        let error = wrong.parse::<QuotaList>().expect_err(wrong).to_string();
        assert!(error.contains(part), "{error}");
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
        let message = error.to_string();
        assert!(message.starts_with(&format!("{number:?}")), "{message}");
        assert!(message.contains("18 years"), "{message}");
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
        format!("1/s {word}"),
        format!("1/s burst {nines}"),
        format!("1/s soft {word}"),
        format!("1/s refill_every {nines}s"),
        format!("1/s sliding_log{}sliding_log", " ".repeat(100_000)),
    ] {
        let message = text.parse::<Quota>().expect_err("too long").to_string();
        assert!(message.len() < 300, "{message}");
    }
}

#[test]
fn words_set_the_other_fields_of_a_quota() {
    let minute = Quota::per_minute(60);
    let step = Duration::from_secs(30);
    let accepted = [
        ("60/minute token_bucket", minute),
        ("60/minute burst 20", minute.burst(20)),
        ("60/minute refill_every 30s", minute.refill_every(step)),
        (
            "60/minute refill_every 30 seconds burst 5",
            minute.refill_every(step).burst(5),
        ),
        ("60/minute leaky_bucket queue 20", minute.leaky_bucket(20)),
        (
            "60/minute queue 20 soft 10 leaky-bucket",
            minute.leaky_bucket(20).soft(10),
        ),
        ("60/minute fixed_window", minute.fixed_window()),
        ("60/minute sliding_window", minute.sliding_window()),
        (
            "60/minute slices 6 sliding-window",
            minute.sliding_window().slices(6),
        ),
        ("60/minute sliding_log", minute.sliding_log()),
        ("60/minute soft 10%", minute.soft(10)),
        (
            "  60 / 1 minute \t soft\u{a0}10%  burst  7 ",
            minute.soft(10).burst(7),
        ),
        ("60/minute soft 0%", minute),
        ("60/minute debt 90", minute.debt(90)),
        ("60/minute unit tokens", minute.unit("tokens")),
        ("60/minute fixed_window debt 0", minute.fixed_window()),
        (
            "1/hour refill-every minute",
            Quota::per_hour(1).refill_every(Duration::from_secs(60)),
        ),
    ];
    for (text, quota) in accepted {
        assert_eq!(text.parse(), Ok(quota), "{text}");
    }
}

#[test]
fn an_error_names_the_word_its_place_and_what_is_accepted() {
    for (text, kind, message) in [
        (
            "1/s brust 20",
            Kind::Syntax,
            "unknown word \"brust\" at character 5 of \"1/s brust 20\"; accepted are burst, refill_every, ",
        ),
        ("1/s 20", Kind::Syntax, "unknown word \"20\" at character 5"),
        (
            "1/s Burst 20",
            Kind::Syntax,
            "unknown word \"Burst\" at character 5",
        ),
        (
            "1/s soft 10 %",
            Kind::Syntax,
            "unknown word \"%\" at character 13",
        ),
        (
            "1/s\u{a0}\u{a0}µ",
            Kind::Syntax,
            "unknown word \"µ\" at character 6",
        ),
        (
            "1/s burst",
            Kind::Syntax,
            "\"burst\" at character 5 of \"1/s burst\" needs a value after it; accepted is, for example, \"burst 20\"",
        ),
        (
            "1/s burst soft 10%",
            Kind::Syntax,
            "\"burst\" at character 5",
        ),
        (
            "1/s fixed_window varying 00:00 = 10",
            Kind::Syntax,
            "\"varying\" at character 18 of \"1/s fixed_window varying 00:00 = 10\" needs a value after it",
        ),
        ("1/s burst -1", Kind::Syntax, "\"burst 20\""),
        ("1/s soft ten%", Kind::Syntax, "\"soft 10%\""),
        ("1/s soft %", Kind::Syntax, "\"soft 10%\""),
        ("1/s refill_every", Kind::Syntax, "\"refill_every 30s\""),
        ("1/s refill_every 30", Kind::Syntax, "\"refill_every 30s\""),
        (
            "1/s refill_every 1.5s",
            Kind::Syntax,
            "\"refill_every 30s\"",
        ),
        (
            "1/s refill_every 2 weeks",
            Kind::Syntax,
            "unknown unit \"weeks\" at character 20",
        ),
        (
            "1/s burst 2 burst 2",
            Kind::Syntax,
            "\"burst\" at character 13 of \"1/s burst 2 burst 2\" appears twice; accepted is once",
        ),
        (
            "1/s soft 2% soft 2%",
            Kind::Syntax,
            "\"soft\" at character 13",
        ),
        (
            "1/s sliding_log fixed_window",
            Kind::Syntax,
            "\"fixed_window\" at character 17 of \"1/s sliding_log fixed_window\" is a second algorithm; accepted is one",
        ),
        (
            "1/s sliding_log sliding_log",
            Kind::Syntax,
            "is a second algorithm",
        ),
        (
            "1/s burst 18446744073709551616",
            Kind::Overflow,
            "\"18446744073709551616\" at character 11 of \"1/s burst 18446744073709551616\" is too large; accepted are as many as",
        ),
        (
            "1/s sliding_window slices 4294967296",
            Kind::Overflow,
            "is too large; accepted are 1 to 1000",
        ),
        (
            "1/s soft 4294967296",
            Kind::Overflow,
            "is too large; accepted are 0% to 1000%",
        ),
        (
            "1/s leaky_bucket",
            Kind::Queue,
            "queue: a leaky bucket needs one, such as \"queue 20\"",
        ),
        (
            "1/s queue 20",
            Kind::Queue,
            "queue: only a leaky bucket has one",
        ),
        (
            "1/s fixed_window queue 20",
            Kind::Queue,
            "queue: only a leaky bucket has one",
        ),
        (
            "1/s fixed_window burst 20",
            Kind::Burst,
            "only a token bucket has a burst",
        ),
        (
            "1/s sliding_log refill_every 1s",
            Kind::RefillStep,
            "refill_every: only a token bucket",
        ),
        (
            "1/s slices 5",
            Kind::Slices,
            "only a sliding window has slices",
        ),
        (
            "1/s soft 1001%",
            Kind::Soft,
            "accepted are 0 to 1000 percent",
        ),
        ("1/s burst 0", Kind::Burst, "burst of 0"),
    ] {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(error.kind(), kind, "{text}: {error}");
        assert!(error.to_string().contains(message), "{text}: {error}");
    }
}

#[test]
fn text_has_what_differs_from_a_plain_bucket() {
    for (quota, text) in [
        (Quota::per_minute(100), "100/60s"),
        (
            Quota::per_minute(100).named("api").burst(100),
            "100/60s burst 100",
        ),
        (Quota::per(1, Duration::from_millis(1_500)), "1/1500ms"),
        (
            Quota::per_second(5)
                .refill_every(Duration::from_secs(2))
                .burst(9)
                .soft(50),
            "5/1s burst 9 refill_every 2s soft 50%",
        ),
        (
            Quota::per_second(5).leaky_bucket(0),
            "5/1s leaky_bucket queue 0",
        ),
        (
            Quota::per_second(5).sliding_window().slices(1),
            "5/1s sliding_window slices 1",
        ),
        (Quota::per_second(5).debt(7).soft(1), "5/1s soft 1% debt 7"),
        (
            Quota::per_second(5).unit("kB").debt(7),
            "5/1s debt 7 unit kB",
        ),
    ] {
        assert_eq!(quota.to_string(), text);
    }
}

/// The least and the greatest accepted numbers, and what lies around them.
fn quotas() -> impl Strategy<Value = Quota> {
    let limit = prop_oneof![0..20_u64, 0..1_000_000_u64, Just(u64::MAX)];
    let period = prop_oneof![
        (0..100_u64).prop_map(Duration::from_secs),
        (0..1_u64 << 60).prop_map(Duration::from_nanos),
        (0..1_u64 << 50).prop_map(Duration::from_micros),
    ];
    let number = || weighted(0.5, prop_oneof![0..50_u64, any::<u64>()]);
    let small = || weighted(0.5, prop_oneof![0..20_u32, 0..1_100_u32]);
    let step = weighted(0.5, prop_oneof![0..100_u64, 0..1_u64 << 40]);
    let rate = (limit, period, 0..5_u8);
    (rate, number(), number(), step, small(), small()).prop_map(quota_of)
}

type Parts = (
    (u64, Duration, u8),
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u32>,
    Option<u32>,
);

/// Half of the words do not stand with a drawn algorithm, so each is left out where it must not be,
/// except that every eighth queue lets them all in.
fn quota_of(((limit, period, algorithm), burst, queue, step, slices, soft): Parts) -> Quota {
    let all = queue.is_some_and(|queue| queue % 8 == 0);
    let rate = Quota::per(limit, period);
    let mut quota = match algorithm {
        0 => rate,
        1 => rate.leaky_bucket(queue.unwrap_or(3)),
        2 => rate.fixed_window(),
        3 => rate.sliding_window(),
        _ => rate.sliding_log(),
    };
    if let Some(burst) = burst.filter(|_| all || algorithm == 0) {
        quota = quota.burst(burst);
    }
    if let Some(step) = step.filter(|_| all || algorithm == 0) {
        quota = quota.refill_every(Duration::from_micros(step));
    }
    if let Some(slices) = slices.filter(|_| all || algorithm == 3) {
        quota = quota.slices(slices);
    }
    quota.soft(soft.unwrap_or(0))
}

proptest! {
    /// Both or neither: the text of a quota that makes no sense is refused as the quota is.
    #[test]
    fn text_of_every_quota_reads_as_the_quota(
        quota in quotas(),
        debt in prop_oneof![2 => Just(0), 2 => 0..50_u64, 1 => any::<u64>()],
        unit in proptest::option::of(prop_oneof![Just("tokens"), Just("micro-usd")]),
    ) {
        let quota = quota.debt(debt);
        let quota = unit.map_or(quota, |unit| quota.unit(unit));
        let text = quota.to_string();
        prop_assert_eq!(text.parse(), quota.check().map(|()| quota), "{}", text);
    }

    #[test]
    fn parsing_never_panics(text in "\\PC*") {
        let _ = text.parse::<Quota>();
    }
}

#[cfg(feature = "serde")]
mod serde {
    use std::time::Duration;

    use tower_ratelimit::{
        Quota,
        quota::{IntoQuotas as _, OwnedQuota, QuotaList},
    };

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
        let message = "cannot own the name \"api\"; deserialize an `OwnedQuota` instead";
        assert!(error.to_string().contains(message), "{error}");
    }

    #[test]
    fn several_are_a_text_or_a_list() {
        let read = serde_json::from_str::<QuotaList>;
        let expected: QuotaList = "10/second; 1000/hour".parse().unwrap();
        for text in [
            r#""10/second; 1000/hour""#,
            r#"["10/second", {"rate": "1000/hour"}]"#,
            r#"["10/second;1000/hour"]"#,
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        let named = read(r#"{"rate": "10/s", "name": "api"}"#).unwrap();
        let api = Quota::per_second(10).named("api");
        assert_eq!(named.into_quotas(), api.into_quotas());
        let written = serde_json::to_string(&expected).unwrap();
        assert_eq!(read(&written).unwrap(), expected);
        let error = read("[]").unwrap_err().to_string();
        assert!(error.contains("an empty list of quotas"), "{error}");
        assert!(
            read("10")
                .unwrap_err()
                .to_string()
                .contains("10/second; 1000/hour")
        );
    }

    #[test]
    fn words_stand_in_texts_and_tables_alike() {
        let burst = Quota::per_second(10).burst(20);
        assert_eq!(read(r#""10/s burst 20""#).unwrap(), burst.into());
        assert_eq!(
            read(r#"{"rate": "10/s burst 20", "name": "api"}"#).unwrap(),
            burst.named("api").into()
        );
        assert_eq!(
            read(r#"{"rate": "10/s sliding-window", "slices": 5}"#).unwrap(),
            Quota::per_second(10).sliding_window().slices(5).into()
        );
        let hyphen = read(r#"{"rate": "10/s", "algorithm": "fixed-window"}"#);
        assert_eq!(hyphen.unwrap(), Quota::per_second(10).fixed_window().into());
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
    fn invalid_text_names_the_fault() {
        for (json, message) in [
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
            (
                r#"{"rate": "1/s", "refill_every": "soon"}"#,
                "unknown unit \"soon\"",
            ),
            (
                r#"{"rate": "1/s", "refill_every": "1s 2s"}"#,
                "is no period; accepted is",
            ),
            (
                r#"{"rate": "1/s", "refill_every": "1/s"}"#,
                "\"1/s\" is no period",
            ),
            (
                r#"{"rate": "1/s burst 2", "burst": 2}"#,
                "burst appears twice",
            ),
            (
                r#"{"rate": "1/s sliding_log", "algorithm": "token_bucket"}"#,
                "algorithm appears twice",
            ),
            (r#""1/s brust 2""#, "unknown word \"brust\" at character 5"),
            (
                r#"{"rate": "5/s sliding_window", "slices": 5000000000}"#,
                "slices: \"5000000000\" is too large; accepted are ",
            ),
        ] {
            let error = read(json).expect_err(json).to_string();
            assert!(error.contains(message), "{json}: {error}");
        }
    }
}
