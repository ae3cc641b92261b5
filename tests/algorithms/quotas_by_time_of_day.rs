//! Quotas that vary by the time of day: texts, errors, fields, and what they share a counter with.
//! `tests/vectors/varying.json` has their edges.

use std::time::Duration;

use testkit::charge_vectors::utc;
use tower_ratelimit::{
    ConfigErrorKind as Kind, Limiter, LocalLimiter, LocalStore, Quota,
    clock::ManualClock,
    decision::Op,
    limiter::{RequestQuota, Tier},
    quota::TimeOfDay,
};

use super::{alice, fields, limiter_at};

const TEN_MINUTES: Duration = Duration::from_secs(600);
const MORNING: TimeOfDay = TimeOfDay::at(8, 0);

/// Five at night and twenty by day.
const QUOTA: Quota = Quota::per(20, TEN_MINUTES)
    .sliding_window()
    .varying(&[(TimeOfDay::MIDNIGHT, 5), (MORNING, 20)]);

#[test]
fn a_text_is_the_quota_and_the_quota_the_text() {
    let seconds = TimeOfDay::at(23, 59).with_second(30);
    for (text, quota) in [
        ("20/600s sliding_window varying 00:00=5/08:00=20", QUOTA),
        (
            "7/30s fixed_window soft 10% varying 00:00=7/23:59:30=1",
            Quota::per(7, Duration::from_secs(30))
                .fixed_window()
                .soft(10)
                .try_varying(&[(TimeOfDay::MIDNIGHT, 7), (seconds, 1)])
                .expect("good limits"),
        ),
    ] {
        assert_eq!(text.parse(), Ok(quota));
        assert_eq!(quota.to_string(), text);
        #[cfg(feature = "serde")]
        {
            let json = serde_json::to_value(quota).expect("a quota");
            let read = serde_json::from_value::<Quota>(json);
            assert_eq!(read.expect("a quota"), quota);
        }
    }
    assert_eq!((QUOTA.limit(), QUOTA.capacity()), (20, 20));
    assert_eq!(QUOTA.varying_limits().map(<[_]>::len), Some(2));
}

#[cfg(feature = "serde")]
#[test]
fn a_table_has_a_field_for_the_limits() {
    let table = serde_json::json!({
        "rate": "20/10m", "algorithm": "sliding_window", "varying": "00:00=5/08:00=20"
    });
    let read = serde_json::from_value::<Quota>(table);
    assert_eq!(read.expect("a table"), QUOTA);
}

#[test]
fn a_wrong_list_is_named() {
    let window = Quota::per(20, TEN_MINUTES).fixed_window();
    let day = |hours: &[(u8, u8, u64)]| -> Vec<_> {
        let entries = hours.iter();
        let entries = entries.map(|(hour, minute, limit)| (TimeOfDay::at(*hour, *minute), *limit));
        entries.collect()
    };
    let many: Vec<_> = (0..289).map(|at| (0, at as u8, 1)).collect();
    for (quota, list, part) in [
        (window, &[][..], "0 times; accepted are 1 to 288"),
        (window, &many, "289 times; accepted are 1 to 288"),
        (
            window,
            &[(8, 0, 5)],
            "the first time is 08:00; accepted is 00:00",
        ),
        (
            window,
            &[(0, 0, 5), (9, 0, 5), (8, 0, 5)],
            "08:00 follows 09:00",
        ),
        (
            window,
            &[(0, 0, 5), (9, 0, 5), (9, 0, 6)],
            "09:00 appears twice",
        ),
        (
            window,
            &[(0, 0, 5), (9, 0, 0)],
            "from 09:00 on is 0; accepted are 1 to 4294967295",
        ),
        (
            window,
            &[(0, 0, 1 << 32)],
            "is 4294967296; accepted are 1 to 4294967295",
        ),
        (
            window,
            &[(0, 0, 5), (9, 5, 5)],
            "09:05 is within a window or slice",
        ),
        (window, &[(0, 0, 5), (24, 0, 5)], "24:00 is no time of day"),
        (window, &[(0, 0, 5), (9, 60, 5)], "09:60 is no time of day"),
        (
            window.token_bucket(),
            &[(0, 0, 5)],
            "the limit of a token_bucket is the same",
        ),
        (
            window.leaky_bucket(1),
            &[(0, 0, 5)],
            "the limit of a leaky_bucket is the same",
        ),
        (
            window.sliding_log(),
            &[(0, 0, 5)],
            "the limit of a sliding_log is the same",
        ),
        (
            window.uncapped(),
            &[(0, 0, 5)],
            "an uncapped quota has one limit",
        ),
        (
            Quota::per(20, Duration::from_secs(7 * 3_600)).fixed_window(),
            &[(0, 0, 5)],
            "accepted is a slice of whole microseconds that divides 24 hours",
        ),
        (
            Quota::per(20, Duration::from_secs(7 * 86_400)).fixed_window(),
            &[(0, 0, 5)],
            "that divides 24 hours",
        ),
        (
            window.sliding_window().slices(2),
            &[(0, 0, 5), (9, 4, 5)],
            "accepted are multiples of its length, 300s",
        ),
    ] {
        let error = quota.try_varying(&day(list)).expect_err(part);
        assert_eq!(error.kind(), Kind::Varying, "{error}");
        assert!(error.to_string().contains(part), "{error} has no {part:?}");
    }
    const LATE: Quota = Quota::per_hour(5).fixed_window().varying(&[(MORNING, 5)]);
    let error = LATE.check().expect_err("no midnight");
    assert_eq!(LocalLimiter::try_new(LATE).err(), Some(error));
    let too_fast = Quota::per(1, Duration::from_secs(1)).fixed_window();
    let too_fast = too_fast.try_varying(&[(TimeOfDay::MIDNIGHT, 1_000_001)]);
    let error = too_fast.and_then(|quota| quota.check().map(|()| quota));
    assert_eq!(error.expect_err("a rate").kind(), Kind::Rate);
    for (text, part) in [
        ("20/10m fixed_window varying", "needs a value after it"),
        (
            "20/10m fixed_window varying 00:00",
            "is no time with a limit",
        ),
        (
            "20/10m fixed_window varying 0:00=20",
            "is no time with a limit",
        ),
        (
            "20/10m fixed_window varying 00:00=+20",
            "is no time with a limit",
        ),
        (
            "20/10m fixed_window varying 00:00=20/09:03=5",
            "09:03 is within",
        ),
        ("20/10m varying 00:00=20", "token_bucket"),
        (
            "5/10m fixed_window varying 00:00=20",
            "the rate's limit is 5; accepted is the largest of the day, 20",
        ),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(part), "{error} has no {part:?}");
    }
    for text in [
        "",
        "8:00",
        "08:0",
        "24:00",
        "08:60",
        "08:00:60",
        "-1:00",
        "08:00:00:00",
    ] {
        assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
    }
}

#[test]
fn fields_have_the_limit_in_force() {
    let (limiter, clock) = limiter_at(QUOTA, "2026-03-01T07:55:00Z");
    let fields = |cost| {
        let names = [
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-limit",
            "retry-after",
        ];
        fields(&limiter.acquire(&alice(), cost), names)
    };
    let texts =
        |texts: [&str; 4]| texts.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
    let own = texts(["\"default\";q=5;w=600", "\"default\";r=2;t=60", "5", ""]);
    assert_eq!(fields(3), own);
    clock.set(utc("2026-03-01T08:05:00Z"));
    let own = texts(["\"default\";q=13;w=600", "\"default\";r=1;t=30", "13", ""]);
    assert_eq!(fields(10), own);
    let own = texts(["\"default\";q=13;w=600", "\"default\";r=1;t=34", "13", "34"]);
    assert_eq!(fields(3), own);
    clock.set(utc("2026-03-01T09:00:00Z"));
    let own = texts(["\"default\";q=20;w=600", "\"default\";r=19;t=570", "20", ""]);
    assert_eq!(fields(1), own);
    assert_eq!(limiter.policies()[0].limit(), 20);
}

/// A limit in a store counts like one with a table of its own, with one of another kind in the store.
#[test]
fn a_store_has_limits_that_vary_too() {
    let clock = ManualClock::at(utc("2026-03-01T07:50:00Z"));
    let store = LocalStore::builder().clock(clock.clone());
    let store = store.build().expect("a store");
    let build = |name: &str, quota| {
        let builder = LocalLimiter::builder(quota).name(name);
        builder.build_in(&store).expect("a limiter")
    };
    let varying = build("varying", QUOTA);
    let plain = build("plain", Quota::per(5, TEN_MINUTES).sliding_window());
    for limiter in [&varying, &plain] {
        assert_eq!(limiter.acquire_up_to(&alice(), 100).charged(), 5);
    }
    assert_eq!(store.tracked_keys(), 2);
    clock.set(utc("2026-03-01T08:10:00Z"));
    assert_eq!(varying.acquire_up_to(&alice(), 100).charged(), 20);
    assert_eq!(plain.acquire_up_to(&alice(), 100).charged(), 5);
}

#[test]
fn tiers_share_counters_with_other_limits_that_vary_only() {
    let larger = Quota::per(40, TEN_MINUTES)
        .sliding_window()
        .varying(&[(TimeOfDay::MIDNIGHT, 10), (MORNING, 40)]);
    let limiter = LocalLimiter::builder(QUOTA)
        .tier("larger", larger)
        .tier("plain", Quota::per(10, TEN_MINUTES).sliding_window())
        .clock(ManualClock::at(utc("2026-03-01T07:00:00Z")))
        .build()
        .expect("good quotas");
    let remaining = |tier: Tier, cost| {
        let op = Op::Acquire(cost);
        let decision =
            testkit::now(async { testkit::apply_in(&limiter, &tier, &alice(), op).await });
        decision.expect("a tier").remaining()
    };
    assert_eq!(limiter.acquire(&alice(), 5).remaining(), Some(0));
    assert_eq!(remaining(Tier::named("larger"), 1), Some(4));
    assert_eq!(remaining(Tier::named("plain"), 1), Some(9));
}

/// The number of a customer's row is the limit all day.
#[test]
fn a_request_s_own_quota_does_not_vary() {
    let (limiter, clock) = limiter_at(QUOTA, "2026-03-01T07:00:00Z");
    let row = Tier::from(RequestQuota::limit(12));
    let decide = |cost| {
        let op = Op::Acquire(cost);
        let decision =
            testkit::now(async { testkit::apply_in(&limiter, &row, &alice(), op).await });
        decision.expect("one quota")
    };
    let decision = decide(4);
    assert_eq!(decision.binding().limit(), 12);
    assert_eq!(decision.remaining(), Some(8));
    assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(1));
    clock.set(utc("2026-03-01T08:05:00Z"));
    assert_eq!(decide(12).remaining(), Some(0));
}
