//! Quotas that vary by the time of day of a zone: texts, errors, and what they share a counter with.
//! `tests/vectors/varying_in_zones.json` has their edges.

use std::time::Duration;

use tower_ratelimit::{
    ConfigErrorKind as Kind, LocalLimiter, Quota,
    clock::Clock as _,
    decision::Op,
    limiter::{OnChange, QuotaChange, Tier},
    quota::TimeOfDay,
};

use super::{alice, limiter_at};

const QUARTER: Duration = Duration::from_secs(900);
const HOURS: &[(TimeOfDay, u64)] = &[(TimeOfDay::MIDNIGHT, 5), (TimeOfDay::at(8, 0), 20)];

/// Five at night and twenty by day, in Berlin.
const BERLIN: Quota = Quota::per(20, QUARTER)
    .sliding_window()
    .varying(HOURS)
    .in_zone("Europe/Berlin");

#[test]
fn a_text_is_the_quota_and_the_quota_the_text() {
    for (text, quota) in [
        (
            "20/900s sliding_window varying 00:00=5/08:00=20 in Europe/Berlin",
            BERLIN,
        ),
        (
            "20/3600s sliding_window slices 4 soft 10% varying 00:00=5/08:00=20 in Asia/Kathmandu",
            Quota::per_hour(1)
                .sliding_window()
                .slices(4)
                .soft(10)
                .in_zone("Asia/Kathmandu")
                .varying(HOURS),
        ),
        (
            "20/3600s fixed_window varying 00:00=5/08:00=20 in UTC",
            Quota::per_hour(1)
                .fixed_window()
                .varying(HOURS)
                .in_zone("UTC"),
        ),
    ] {
        assert_eq!(text.parse(), Ok(quota));
        assert_eq!(quota.to_string(), text);
        assert_eq!(quota.limit(), 20);
        #[cfg(feature = "serde")]
        {
            let json = serde_json::to_value(quota).expect("a quota");
            assert_eq!(json["zone"], text.rsplit(' ').next().expect("a zone"));
            let read = serde_json::from_value::<Quota>(json);
            assert_eq!(read.expect("a quota"), quota);
        }
    }
    let list = Quota::per(1, QUARTER).sliding_window().try_varying(HOURS);
    let named = list.and_then(|quota| quota.try_in_zone(&String::from("Europe/Berlin")));
    assert_eq!(named, Ok(BERLIN));
}

#[test]
fn a_wrong_setting_is_named() {
    let hourly = Quota::per_hour(20).fixed_window().varying(HOURS);
    let two_hours = Quota::per(20, Duration::from_secs(7_200)).fixed_window();
    for (quota, kind, part) in [
        (
            hourly.in_zone("Asia/Kathmandu"),
            Kind::Varying,
            "a window or slice of 3600s in Asia/Kathmandu; accepted there is one that divides 900s",
        ),
        (
            hourly.in_zone("Australia/Lord_Howe"),
            Kind::Varying,
            "divides 900s",
        ),
        (
            two_hours.varying(HOURS).in_zone("Europe/Berlin"),
            Kind::Varying,
            "7200s in Europe/Berlin; accepted there is one that divides 3600s",
        ),
        (
            Quota::per_day(20)
                .fixed_window()
                .varying(const { &[(TimeOfDay::MIDNIGHT, 5)] })
                .in_zone("Europe/Berlin"),
            Kind::Varying,
            "accepted there is one that divides 3600s",
        ),
        (
            hourly.in_zone("Europe/Berln"),
            Kind::Zone,
            "\"Europe/Berln\" is no time zone",
        ),
        (
            hourly.in_zone("Berlin"),
            Kind::Zone,
            "did you mean \"Europe/Berlin\"?",
        ),
        (
            Quota::per_month(20).varying(HOURS),
            Kind::Varying,
            "a quota of the calendar has one limit",
        ),
        (
            hourly.starting_on(2),
            Kind::Varying,
            "a quota of the calendar has one limit",
        ),
        (
            hourly.in_zone("Europe/Berlin").token_bucket(),
            Kind::Varying,
            "the limit of a token_bucket is the same",
        ),
        (
            Quota::per_hour(20).sliding_window().in_zone("UTC"),
            Kind::Calendar,
            "sliding_window cannot count it",
        ),
    ] {
        let error = quota.check().expect_err(part);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error} has no {part:?}");
        assert_eq!(LocalLimiter::try_new(quota).err(), Some(error));
    }
    for (text, part) in [
        ("20/15m varying 00:00=20 in Europe/Berlin", "token_bucket"),
        (
            "20/h fixed_window varying 00:00=20 in Asia/Kolkata",
            "divides 900s",
        ),
        (
            "20/h fixed_window varying 00:00=20 in Mars",
            "\"Mars\" is no time zone",
        ),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(part), "{error} has no {part:?}");
    }
}

/// Slices are those of UTC in every zone.
#[test]
fn limits_of_several_zones_share_a_counter() {
    let apia = BERLIN.in_zone("Pacific/Apia");
    // In Berlin it is 12:00, in Apia 00:00.
    let (limiter, clock) = limiter_at(BERLIN, "2026-03-01T11:00:00Z");
    let tiers = LocalLimiter::builder(BERLIN)
        .tier("apia", apia)
        .clock(clock.clone())
        .build()
        .expect("good quotas");
    assert_eq!(tiers.acquire(&alice(), 4).remaining(), Some(16));
    let op = Op::Acquire(4);
    let decision = async { testkit::apply_in(&tiers, &Tier::named("apia"), &alice(), op).await };
    let decision = testkit::now(decision).expect("a tier");
    // At the beginning of the day's first slice the limit is still that of the evening.
    assert_eq!(decision.remaining(), Some(12));

    assert!(limiter.acquire(&alice(), 4).is_allowed());
    limiter
        .set_quota("default", apia)
        .expect("a quota that counts alike");
    assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(16));
    clock.advance(QUARTER);
    assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(1));
}

#[test]
fn another_zone_starts_keys_afresh_where_other_limits_do() {
    let apia = BERLIN.in_zone("Pacific/Apia");
    for (on_change, available) in [(OnChange::Keep, 0), (OnChange::Fresh, 5)] {
        let change = QuotaChange::new("a", BERLIN, apia, on_change);
        // From the first slice after the evening's: at midnight in the zone of the quota that is measured.
        assert!(change.available >= available, "{on_change:?}: {change}");
        assert_eq!(change.starts_afresh, on_change == OnChange::Fresh);
    }
    let (limiter, clock) = limiter_at(BERLIN, "2026-03-01T02:00:00Z");
    assert_eq!(limiter.acquire_up_to(&alice(), 100).charged(), 5);
    assert!(limiter.peek(&alice(), 1).retry_after().is_some());
    assert_eq!(
        clock.now(),
        testkit::charge_vectors::utc("2026-03-01T02:00:00Z")
    );
}

/// The search for the transition is kept for all limiters with this quota.
#[test]
fn slices_around_a_transition_have_their_limits_in_any_order() {
    const NIGHT: &[(TimeOfDay, u64)] = &[(TimeOfDay::MIDNIGHT, 5), (TimeOfDay::at(2, 0), 20)];
    let quota = BERLIN.fixed_window().varying(NIGHT);
    for (at, limit) in [("2026-03-29T01:05:00Z", 20), ("2026-03-29T00:50:00Z", 5)] {
        let (limiter, _) = limiter_at(quota, at);
        assert_eq!(limiter.acquire_up_to(&alice(), 100).charged(), limit);
    }
}

/// The zone of a limit that varies is one of its numbers: with another one a limiter is built anew by `OnChange::Fresh`.
#[test]
fn a_restart_in_another_zone_starts_afresh_if_set() {
    for (on_change, left) in [(OnChange::Keep, 0), (OnChange::Fresh, 1)] {
        const ONE: &[(TimeOfDay, u64)] = &[(TimeOfDay::MIDNIGHT, 1)];
        let quota = Quota::per(1, QUARTER)
            .sliding_window()
            .slices(3)
            .varying(ONE);
        let here = quota.in_zone("Europe/Berlin");
        let builder = |quota| {
            let clock = tower_ratelimit::clock::ManualClock::new();
            LocalLimiter::builder(quota)
                .tier("small", here)
                .on_change(on_change)
                .clock(clock)
        };
        let limiter = builder(here).build().unwrap();
        let _ = limiter.hit(&alice(), 1);
        let mut state = Vec::new();
        limiter.save(&mut state).unwrap();
        let limiter = builder(quota.in_zone("UTC")).restore(&state[..]).unwrap();
        limiter.set_quota("default", here).unwrap();
        assert_eq!(
            limiter.peek(&alice(), 1).remaining(),
            Some(left),
            "{on_change:?}"
        );
    }
}
