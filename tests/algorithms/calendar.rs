//! Quotas that follow the calendar: texts, errors, fields, and what they share a counter with.
//! `tests/vectors/calendar.json` has their edges.

use std::time::Duration;

use testkit::charge_vectors::utc;
use tower_ratelimit::{
    ConfigErrorKind as Kind, Limiter, LocalLimiter, LocalStore, Priority, Quota,
    clock::{Clock as _, ManualClock},
    decision::Op,
    limiter::{Pending, Tier},
};

use super::{alice, fields, limiter_at};

#[test]
fn a_text_is_the_quota_and_the_quota_the_text() {
    for (text, quota) in [
        ("500/week", Quota::per_week(500)),
        ("1000/month", Quota::per_month(1_000)),
        (
            "7/year in Pacific/Apia",
            Quota::per_year(7).in_zone("Pacific/Apia"),
        ),
        (
            "9/day in Europe/Berlin",
            Quota::per_day(9).in_zone("Europe/Berlin"),
        ),
        ("9/day in UTC", Quota::per_day(9).in_zone("UTC")),
        (
            "5/month starting_on 15 soft 10% in Europe/Berlin",
            Quota::per_month(5)
                .in_zone("Europe/Berlin")
                .starting_on(15)
                .soft(10),
        ),
    ] {
        assert_eq!(text.parse(), Ok(quota));
        assert_eq!(quota.to_string(), text);
        #[cfg(feature = "serde")]
        {
            let json = serde_json::to_value(quota).expect("a quota");
            let read = serde_json::from_value::<Quota>(json).expect("a quota");
            assert_eq!(read, quota);
        }
    }
    assert_eq!(
        "5/month fixed_window in UTC starting-on 1".parse(),
        Ok(Quota::per_month(5))
    );
    assert_eq!(
        "9/day in UTC".parse(),
        Ok(Quota::per_day(9).sliding_log().in_zone("UTC"))
    );
}

#[cfg(feature = "serde")]
#[test]
fn a_table_has_fields_for_the_zone_and_the_first_day() {
    let table = serde_json::json!({
        "rate": "5/month", "zone": "Europe/Berlin", "starting_on": 28
    });
    let quota = Quota::per_month(5).starting_on(28).in_zone("Europe/Berlin");
    assert_eq!(
        serde_json::from_value::<Quota>(table).expect("a table"),
        quota
    );
}

#[test]
fn a_wrong_setting_is_named() {
    let month = Quota::per_month(5);
    for (quota, kind, part) in [
        (
            month.token_bucket(),
            Kind::Calendar,
            "token_bucket cannot count it",
        ),
        (
            month.sliding_log(),
            Kind::Calendar,
            "sliding_log cannot count it",
        ),
        (
            month.leaky_bucket(3),
            Kind::Calendar,
            "leaky_bucket cannot count it",
        ),
        (
            Quota::per_day(5).in_zone("UTC").sliding_window(),
            Kind::Calendar,
            "sliding_window cannot count it",
        ),
        (month.burst(5), Kind::Burst, "only a token bucket"),
        (
            month.slices(5),
            Kind::Slices,
            "slices(5) of a quota per month",
        ),
        (
            Quota::per_day(5).slices(7).in_zone("Asia/Kathmandu"),
            Kind::Slices,
            "slices(7) of a quota per day",
        ),
        (
            month.starting_on(29),
            Kind::Calendar,
            "accepted are days 1 to 28",
        ),
        (
            month.starting_on(0),
            Kind::Calendar,
            "starting_on(0) is no day of every month; accepted are days 1 to 28",
        ),
        (
            Quota::per_week(5).starting_on(2),
            Kind::Calendar,
            "accepted are quotas per month",
        ),
        (
            Quota::per_day(5).starting_on(2),
            Kind::Calendar,
            "accepted are quotas per month",
        ),
        (
            Quota::per_hour(5).in_zone("UTC"),
            Kind::Calendar,
            "accepted are quotas per day",
        ),
        (
            month.in_zone("Europe/Berln"),
            Kind::Zone,
            "\"Europe/Berln\" is no time zone",
        ),
        (
            month.in_zone("europe/berlin"),
            Kind::Zone,
            "did you mean \"Europe/Berlin\"?",
        ),
        (
            month.in_zone("Berlin"),
            Kind::Zone,
            "did you mean \"Europe/Berlin\"?",
        ),
        (
            month.in_zone("New York"),
            Kind::Zone,
            "did you mean \"America/New_York\"?",
        ),
        (month.in_zone(""), Kind::Zone, "no time zone"),
        (
            month.in_zone("../../etc/passwd"),
            Kind::Zone,
            "no time zone",
        ),
    ] {
        let error = quota.check().expect_err(part);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(LocalLimiter::try_new(quota).err(), Some(error));
    }
    for (text, part) in [
        ("5/month in", "\"in\" at character 9"),
        ("5/month in UTC in UTC", "appears twice"),
        ("5/month starting_on 15th", "starting_on 15"),
        ("5/month starting_on 31", "1 to 28"),
        ("5/month token_bucket", "token_bucket cannot count it"),
        ("5/day token_bucket in UTC", "token_bucket cannot count it"),
        ("5/2 months", "30d is the nearest period"),
        ("5/day in Berlin", "did you mean \"Europe/Berlin\"?"),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(month.try_in_zone(&String::from("Europe/Berlin")).is_ok());
    assert!(month.try_in_zone("Mars/Olympus").is_err());
}

#[test]
fn fields_have_no_window_and_an_exact_time() {
    let quota = Quota::per_month(3).in_zone("Europe/Berlin");
    let (limiter, _) = limiter_at(quota, "2026-03-31T21:59:58.500000Z");
    assert_eq!(limiter.policies()[0].window(), None);
    let fields = |cost| {
        let names = ["ratelimit-policy", "ratelimit", "retry-after"];
        fields(&limiter.acquire(&alice(), cost), names)
    };
    let text = |text: &str| Some(text.to_owned());
    let policy = text("\"default\";q=3");
    assert_eq!(
        fields(3),
        [policy.clone(), text("\"default\";r=0;t=2"), None]
    );
    assert_eq!(fields(1), [policy, text("\"default\";r=0;t=2"), text("2")]);
}

/// A limit in a store counts like one with a table of its own, beside limits of other windows.
#[test]
fn a_store_has_calendars_too() {
    let clock = ManualClock::at(utc("2026-10-25T00:00:00Z"));
    let store = LocalStore::builder()
        .clock(clock.clone())
        .build()
        .expect("a store");
    let days = LocalLimiter::builder(Quota::per_day(1).in_zone("Europe/Berlin"));
    let days = days.name("days").build_in(&store).expect("a limiter");
    let months = LocalLimiter::builder(Quota::per_month(1)).name("months");
    let months = months.build_in(&store).expect("a limiter");
    for limiter in [&days, &months] {
        assert!(limiter.acquire(&alice(), 1).is_allowed());
        assert!(limiter.acquire(&alice(), 1).is_denied());
    }
    assert_eq!(store.tracked_keys(), 2);
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
    assert_eq!(days.peek(&alice(), 1).retry_after(), hours(23));
    assert_eq!(months.peek(&alice(), 1).retry_after(), hours(7 * 24));
    clock.advance(Duration::from_secs(23 * 3_600));
    assert!(days.acquire(&alice(), 1).is_allowed());
    assert!(months.acquire(&alice(), 1).is_denied());
}

#[test]
fn tiers_share_the_windows_of_one_calendar_only() {
    let month = Quota::per_month(2);
    let clock = ManualClock::at(utc("2026-05-20T00:00:00Z"));
    let limiter = LocalLimiter::builder(month)
        .tier("larger", Quota::per_month(5))
        .tier("billed", month.starting_on(15))
        .tier("berlin", month.in_zone("Europe/Berlin"))
        .clock(clock)
        .build()
        .expect("good quotas");
    let remaining = |tier: &'static str, cost| {
        let op = Op::Acquire(cost);
        let tier = Tier::named(tier);
        let decision =
            testkit::now(async { testkit::apply_in(&limiter, &tier, &alice(), op).await });
        decision.expect("a tier").remaining()
    };
    assert_eq!(limiter.acquire(&alice(), 2).remaining(), Some(0));
    assert_eq!(remaining("larger", 1), Some(2));
    assert_eq!(remaining("billed", 1), Some(1));
    assert_eq!(remaining("berlin", 1), Some(1));
}

#[test]
fn uncapped_months_count_beyond_their_limit() {
    let (limiter, _) = limiter_at(Quota::per_month(2).uncapped(), "2026-02-01T00:00:00Z");
    let count = async { Limiter::apply(&limiter, &alice(), Op::Count(5)).await };
    let decision = testkit::now(count).expect("an uncapped quota");
    assert!(decision.is_denied());
    assert_eq!(decision.binding().used(), Some(5));
    let days = |days: u64| Some(Duration::from_secs(days * 86_400));
    assert_eq!(limiter.peek(&alice(), 1).retry_after(), days(28));
}

/// Critical requests find their part of the month until it ends, whatever the others take.
#[test]
fn a_part_of_a_month_is_kept_for_critical_requests() {
    let quota = Quota::per_month(10).in_zone("Europe/Berlin");
    let (limiter, clock) = limiter_at(quota, "2026-03-01T00:00:00Z");
    let decide = |class, cost| {
        let in_class = (&Tier::DEFAULT, class);
        let Pending::Ready(decision) =
            testkit::apply_in_class(&limiter, in_class, &alice(), Op::Acquire(cost));
        decision.expect("a decision")
    };
    let share = Priority::share(80).expect("a share");
    for month_s_end in ["2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z"] {
        let taken = (0..100).filter(|_| decide(share, 1).is_allowed()).count();
        assert_eq!(taken, 8);
        let denied = decide(share, 1);
        assert_eq!(denied.remaining(), Some(0));
        let wait = denied.retry_after().expect("a wait");
        assert_eq!(clock.now().saturating_add(wait), utc(month_s_end));
        assert_eq!(decide(Priority::CRITICAL, 2).remaining(), Some(0));
        assert!(decide(Priority::CRITICAL, 1).is_denied());
        clock.set(utc(month_s_end));
    }
}
