//! Quotas that vary by the time of day, which Redis decides by its own clock. `differential` compares its
//! decisions with those of this process.

use std::time::Duration;

use testkit::{charges::utc, needs};
use tower_ratelimit::{Clock as _, Key, OsClock, Quota, RedisLimiter, TimeOfDay};

use crate::{
    calendar,
    servers::Server,
    strict_only::{leased_mode_refuses_a_change, only_strict_mode_counts, patient_store},
};

/// A day has two windows.
const HALVES: Quota = Quota::per(9, Duration::from_secs(43_200))
    .fixed_window()
    .varying(&[(TimeOfDay::MIDNIGHT, 3), (TimeOfDay::at(12, 0), 9)]);

fn limit_now() -> u64 {
    let seconds = OsClock::new().now().as_micros() / 1_000_000;
    if seconds % 86_400 < 43_200 { 3 } else { 9 }
}

#[tokio::test]
async fn redis_decides_by_its_own_clock() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient_store(&server);
    let limiter = RedisLimiter::builder(HALVES).build(&store).unwrap();
    let alice = Key::from("alice");
    // At noon and at midnight the limit changes between two readings of the clock.
    let before = limit_now();
    let decision = limiter.acquire_up_to(&alice, 100).await.unwrap();
    if limit_now() == before {
        assert_eq!(decision.charged(), before);
        assert_eq!(decision.binding().limit(), before);
    }
    let refunded = limiter.refund(&alice, 2, Some(decision.receipt()));
    assert_eq!(refunded.await.unwrap().remaining(), Some(2));
}

#[tokio::test]
async fn modes_other_than_strict_are_refused_or_stay_strict() {
    needs!(redis);
    let server = Server::start().await;
    let plain = Quota::per(9, Duration::from_secs(43_200)).fixed_window();
    only_strict_mode_counts(&server, HALVES, "varies").await;
    leased_mode_refuses_a_change(&server, plain, HALVES).await;
}

/// Clocks in Berlin go from 02:00 to 03:00 at 01:00 UTC of 29 March 2026.
const BERLIN: Quota = Quota::per_hour(9)
    .fixed_window()
    .varying(&[
        (TimeOfDay::MIDNIGHT, 3),
        (TimeOfDay::at(2, 0), 5),
        (TimeOfDay::at(8, 0), 9),
    ])
    .in_zone("Europe/Berlin");

#[tokio::test]
async fn the_server_s_clock_chooses_the_limit_of_a_zone() {
    needs!(redis);
    let server = Server::start().await;
    let (store, limiter) = calendar::limiter(&server, BERLIN, "2026-03-29T12:00:00Z");
    let key = Key::from("alice");
    // A day before the node's to a day after it.
    for (at, limit) in [
        ("2026-03-28T00:00:00Z", 3),
        ("2026-03-28T01:00:00Z", 5),
        ("2026-03-29T00:59:59Z", 3),
        ("2026-03-29T01:00:00Z", 5),
        ("2026-03-29T06:00:00Z", 9),
        ("2026-03-30T00:00:00Z", 5),
        ("2026-03-30T23:59:59Z", 3),
    ] {
        *store.server.lock().unwrap() = utc(at);
        let decision = limiter.acquire_up_to(&key, 100).await.unwrap();
        assert_eq!(
            (decision.charged(), decision.binding().limit()),
            (limit, limit),
            "{at}"
        );
    }
}

#[tokio::test]
async fn a_clock_more_than_a_day_away_from_the_zone_s_is_a_named_error() {
    needs!(redis);
    let server = Server::start().await;
    let (store, limiter) = calendar::limiter(&server, BERLIN, "2026-03-29T12:00:00Z");
    let key = Key::from("alice");
    for at in ["2026-03-27T23:59:59Z", "2026-03-31T00:00:00Z"] {
        *store.server.lock().unwrap() = utc(at);
        let error = limiter.acquire(&key, 1).await.expect_err(at);
        let store_error = std::error::Error::source(&error).expect("the store's error");
        let text = store_error.to_string();
        assert!(
            text.contains("clock_apart") && text.contains("more than a day"),
            "{text}"
        );
    }
}

/// The node sends every transition that a server at either end of the two days reads.
#[tokio::test]
async fn windows_reach_over_transitions_of_other_days() {
    needs!(redis);
    let server = Server::start().await;
    let berlin = |slices: u32, night, in_it, rest| {
        let quota = Quota::per(1, Duration::from_secs(3_600 * u64::from(slices)));
        let [from, to] = [night, night + 1].map(|hour| TimeOfDay::at(hour, 0));
        let limits = [(TimeOfDay::MIDNIGHT, rest), (from, in_it), (to, rest)];
        let quota = quota.sliding_window().slices(slices).try_varying(&limits);
        quota.unwrap().try_in_zone("Europe/Berlin").unwrap()
    };

    // The window of 24 hours until 30 March, 00:00 UTC, has the last slice before the transition, civil 01:00,
    // and the same hour of the next day: (2 · 51 + 22 · 3) / 24 = 7.
    let quota = berlin(24, 1, 51, 3);
    let (store, limiter) = calendar::limiter(&server, quota, "2026-03-31T12:00:00Z");
    *store.server.lock().unwrap() = utc("2026-03-30T00:00:00Z");
    let decision = limiter.acquire_up_to(&Key::from("eve"), 100).await.unwrap();
    assert_eq!((decision.charged(), decision.binding().limit()), (7, 7));

    // Every night has (27 + 12 · 1) / 13 = 3, and more than 3 comes when 02:00 begins for the second time on
    // 25 October, 01:00 UTC. That is the last slice that a search for the end of a wait reads.
    let quota = berlin(13, 2, 27, 1);
    let (store, limiter) = calendar::limiter(&server, quota, "2026-10-20T12:00:00Z");
    *store.server.lock().unwrap() = utc("2026-10-21T23:59:59Z");
    let decision = limiter.acquire(&Key::from("eve"), 4).await.unwrap();
    let wait = Duration::from_micros(73 * 3_600_000_000 + 1_000_001);
    assert_eq!(decision.retry_after(), Some(wait));
}

/// A day in Kathmandu has four windows of 15 minutes in each hour, of other limits.
#[tokio::test]
async fn redis_decides_by_its_own_clock_in_a_zone() {
    needs!(redis);
    let server = Server::start().await;
    let store = patient_store(&server);
    let hours: Vec<_> = (0..24)
        .map(|hour| (TimeOfDay::at(hour, 0), 1 + u64::from(hour)))
        .collect();
    let quota = Quota::per(1, Duration::from_secs(900))
        .fixed_window()
        .try_varying(&hours);
    let quota = quota
        .and_then(|quota| quota.try_in_zone("Asia/Kathmandu"))
        .unwrap();
    let limiter = RedisLimiter::builder(quota).build(&store).unwrap();
    let limit_now = || {
        let seconds = OsClock::new().now().as_micros() / 1_000_000;
        1 + (seconds + 5 * 3_600 + 45 * 60) % 86_400 / 3_600
    };
    let before = limit_now();
    let decision = limiter
        .acquire_up_to(&Key::from("alice"), 100)
        .await
        .unwrap();
    if limit_now() == before {
        assert_eq!(decision.binding().limit(), before);
    }
}
