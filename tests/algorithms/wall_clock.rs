//! Which clock counts: buckets, logs and blocks go by the clock that does not step, windows, calendars and times
//! of day by the wall. Steps of 20 hours in both directions, and a sleep.

use std::time::Duration;

use testkit::wall_clock_jumps::BothClocks;
use tower_ratelimit::{
    LocalLimiter, LocalStore, Quota, limiter::LocalLimiterBuilder, quota::TimeOfDay,
};

use super::alice;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: u64 = 86_400;

/// Noon of 2026-01-01.
const NOON: u64 = 1_767_225_600 + DAY / 2;

/// Steps, and a sleep of eight hours.
const STEPS: [i64; 3] = [20, -20, 8];

/// The limiters of a quota with a table of each kind, and their clock.
fn each(quota: Quota) -> impl Iterator<Item = (LocalLimiter, BothClocks)> {
    let beside = Quota::per_second(1_000).named("beside");
    let builders = [
        LocalLimiter::builder(quota),
        LocalLimiter::builder([quota, beside]),
        LocalLimiter::builder(quota),
    ];
    let build = |(at, builder): (usize, LocalLimiterBuilder)| {
        let clock = BothClocks::at(NOON);
        let store = LocalStore::builder().max_keys(64).clock(clock.clone());
        let limiter = match at {
            2 => builder.build_in(&store.build().expect("a store")),
            _ => builder.max_keys(8).clock(clock.clone()).build(),
        };
        (limiter.expect("a good quota"), clock)
    };
    builders.into_iter().enumerate().map(build)
}

#[test]
fn a_step_of_the_wall_moves_no_bucket_and_no_log() {
    for quota in [
        Quota::per_hour(4),
        Quota::per_hour(4).leaky_bucket(3),
        Quota::per_hour(4).refill_every(HOUR),
        Quota::per_hour(4).sliding_log(),
    ] {
        for (hours, (limiter, clock)) in STEPS
            .into_iter()
            .flat_map(|step| each(quota).map(move |made| (step, made)))
        {
            for _ in 0..4 {
                let _ = limiter.acquire(&alice(), 1);
            }
            let before = limiter.peek(&alice(), 1).retry_after();
            let tracked = limiter.tracked_keys();
            clock.step(hours);
            let after = limiter.acquire(&alice(), 1);
            assert!(after.is_denied(), "{quota:?}, {hours} h");
            assert_eq!(after.retry_after(), before, "{quota:?}, {hours} h");
            assert!(tracked > 0);
            assert_eq!(limiter.tracked_keys(), tracked, "{quota:?}, {hours} h");
            clock.monotone.advance(before.expect("it fits later"));
            assert!(
                limiter.acquire(&alice(), 1).is_allowed(),
                "{quota:?}, {hours} h"
            );
        }
    }
}

#[test]
fn a_step_of_the_wall_moves_no_block() {
    for (hours, (limiter, clock)) in STEPS
        .into_iter()
        .flat_map(|step| each(Quota::per_hour(4)).map(move |made| (step, made)))
    {
        let _ = limiter.block(&alice(), HOUR);
        clock.step(hours);
        let blocked = limiter.acquire(&alice(), 1);
        assert!(blocked.is_blocked(), "{hours} h");
        assert_eq!(blocked.retry_after(), Some(HOUR));
        clock.monotone.advance(HOUR);
        assert!(limiter.acquire(&alice(), 1).is_allowed(), "{hours} h");
    }
}

/// A process that began with its clock 20 hours behind: the day ends when that of the wall does.
#[test]
fn a_day_ends_with_that_of_the_wall() {
    #[cfg(feature = "calendar")]
    let calendar = Quota::per_day(2).in_zone("UTC");
    #[cfg(not(feature = "calendar"))]
    let calendar = Quota::per_day(2).fixed_window();
    for quota in [Quota::per_day(2).fixed_window(), calendar] {
        for (hours, (limiter, clock)) in STEPS
            .into_iter()
            .flat_map(|step| each(quota).map(move |made| (step, made)))
        {
            let _ = (limiter.acquire(&alice(), 1), limiter.acquire(&alice(), 1));
            let began = clock.wall_now() / DAY;
            clock.step(hours);
            let until_end = Duration::from_secs(DAY - clock.wall_now() % DAY);
            let denied = if clock.wall_now() / DAY > began {
                assert_eq!(limiter.acquire(&alice(), 2).charged(), 2, "a new day");
                limiter.acquire(&alice(), 1)
            } else {
                limiter.acquire(&alice(), 1)
            };
            // A window that is one ahead stays in force.
            let more = if clock.wall_now() / DAY < began {
                24 * HOUR
            } else {
                Duration::ZERO
            };
            assert_eq!(
                denied.retry_after(),
                Some(until_end + more),
                "{quota:?}, {hours} h"
            );
            clock.monotone.advance(until_end + more);
            assert!(
                limiter.acquire(&alice(), 2).is_allowed(),
                "{quota:?}, {hours} h"
            );
        }
    }
}

#[test]
fn a_sliding_window_slides_with_the_wall() {
    for (limiter, clock) in each(Quota::per_hour(4).sliding_window()) {
        let _ = limiter.acquire(&alice(), 4);
        clock.step(1);
        clock.monotone.advance(HOUR / 2);
        assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(2));
        clock.step(20);
        assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(4));
    }
}

#[test]
fn a_limit_varies_with_the_time_of_the_wall() {
    const NIGHT: Quota = Quota::per_hour(10)
        .fixed_window()
        .varying(&[(TimeOfDay::MIDNIGHT, 10), (TimeOfDay::at(20, 0), 40)]);
    for (limiter, clock) in each(NIGHT) {
        assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(10));
        clock.step(9);
        assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(40));
        clock.step(-9);
        assert_eq!(limiter.peek(&alice(), 1).remaining(), Some(10));
    }
}

/// Three hours later it is the same day; a bucket's units shrink by the other clock.
#[test]
fn a_refund_finds_its_charge_after_a_step() {
    for quota in [
        Quota::per_day(4).fixed_window(),
        Quota::per_day(4),
        Quota::per_day(4).sliding_log(),
    ] {
        for (limiter, clock) in each(quota) {
            let receipt = limiter.acquire(&alice(), 4).receipt();
            clock.step(3);
            let refunded = limiter.refund(&alice(), 1, Some(receipt));
            assert_eq!(refunded.remaining(), Some(1), "{quota:?}");
        }
    }
}

/// The next process' clock begins at the wall's time, and is not ahead of the wall.
#[test]
fn a_state_file_is_right_for_the_next_process() {
    for hours in STEPS {
        let quotas = [
            Quota::per_hour(4).named("bucket"),
            Quota::per_hour(4).sliding_log().named("log"),
            Quota::per_day(9).fixed_window().named("window"),
        ];
        let alone = [Quota::per_hour(4).named("bucket")];
        for quotas in [&quotas[..], &alone] {
            let builder = |clock: &BothClocks| {
                LocalLimiter::builder(quotas)
                    .max_keys(8)
                    .clock(clock.clone())
            };
            let clock = BothClocks::at(NOON);
            clock.step(hours);
            let limiter = builder(&clock).build().expect("good quotas");
            let _ = limiter.acquire(&alice(), 3);
            let _ = limiter.block(&alice(), HOUR);
            let mut state = Vec::new();
            let saved = limiter.save(&mut state).expect("a save to memory");
            assert_eq!(saved.at().as_micros() / 1_000_000, clock.wall_now());

            let next = BothClocks::at(clock.wall_now());
            let restored = builder(&next).restore(&*state).expect("a good file");
            next.monotone.advance(HOUR / 2);
            clock.monotone.advance(HOUR / 2);
            let [old, new] = [&limiter, &restored].map(|limiter| limiter.peek(&alice(), 1));
            let numbers = |decision: &tower_ratelimit::Decision| {
                let quotas = decision.quotas();
                let of_each = quotas.map(|quota| (quota.remaining(), quota.reset_after()));
                (
                    of_each.collect::<Vec<_>>(),
                    decision.retry_after(),
                    decision.is_blocked(),
                )
            };
            assert_eq!(numbers(&new), numbers(&old), "{hours} h");
            assert!(new.is_blocked());
            next.monotone.advance(HOUR / 2);
            assert!(!restored.peek(&alice(), 1).is_blocked(), "{hours} h");
        }
    }
}

#[test]
fn a_store_is_restored_by_the_wall() {
    for hours in STEPS {
        let clock = BothClocks::at(NOON);
        clock.step(hours);
        let builder = |clock: &BothClocks| LocalStore::builder().max_keys(64).clock(clock.clone());
        let limiter = |store: &LocalStore| {
            let builder = LocalLimiter::builder(Quota::per_hour(4)).name("api");
            builder.build_in(store).expect("a good quota")
        };
        let store = builder(&clock).build().expect("a store");
        let before = limiter(&store).acquire(&alice(), 3);
        let mut state = Vec::new();
        store.save(&mut state).expect("a save to memory");

        let next = BothClocks::at(clock.wall_now());
        let restored = builder(&next).restore(&*state).expect("a good file");
        let after = limiter(&restored).peek(&alice(), 2);
        assert_eq!(
            (after.remaining(), after.is_denied()),
            (before.remaining(), true),
            "{hours} h"
        );
        next.monotone.advance(HOUR);
        assert_eq!(restored.tracked_keys(), 0, "{hours} h");
    }
}
