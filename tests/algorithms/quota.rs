//! Quotas: what they accept, and errors about the rest.

use std::time::Duration;

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
    for (quota, kind, message) in cases {
        let error = quota.check().expect_err("accepted");
        assert_eq!(error.kind(), kind, "{quota:?}");
        assert!(error.to_string().contains(message), "{error}");
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
        (log(65_000).debt(537), Some(Kind::LogLimit), "65537"),
        (Quota::per_second(1).unit("micro-usd/2"), None, ""),
        (Quota::per_second(1).unit(""), Some(Kind::Unit), "1 to 32"),
        (
            Quota::per_second(1).unit("two words"),
            Some(Kind::Unit),
            "two words",
        ),
        (
            Quota::per_second(1).unit("a-name-of-thirty-three-characters"),
            Some(Kind::Unit),
            "1 to 32",
        ),
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
    for (quota, kind, message) in cases {
        assert_eq!(kind_of(quota), kind, "{quota:?}");
        let built = LocalLimiter::try_new(quota);
        match (quota.check(), built) {
            (Ok(()), Ok(_)) => {}
            (Err(error), Err(refused)) => {
                assert_eq!(error, refused);
                assert!(error.to_string().contains(message), "{message}: {error}");
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
fn constructors_take_n_per_period() {
    let per_second = Quota::per_second(20);
    assert_eq!((per_second.limit(), per_second.period().as_secs()), (20, 1));
    assert_eq!(Quota::per_minute(1).period().as_secs(), 60);
    assert_eq!(Quota::per_hour(1).period().as_secs(), 3_600);
    assert_eq!(Quota::per_day(1).period().as_secs(), 86_400);
    assert_eq!(Quota::per_second(10).capacity(), 10);
    assert_eq!(Quota::per_second(10).burst(20).capacity(), 20);
}
