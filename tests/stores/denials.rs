//! Denials that a node caches have the limit in force.

use std::time::Duration;

use testkit::charges::utc;
use tokio::time::advance;
use tower_ratelimit::{
    Clock as _, Key, ManualClock, OnFailure, Quota, TimeOfDay,
    shared::{MemoryStore, SharedLimiter},
};

const NOON: TimeOfDay = TimeOfDay::at(12, 0);
const ONE_O_CLOCK: TimeOfDay = TimeOfDay::at(13, 0);

/// Limits of 5, 3 and 9 units an hour, which change at noon and an hour later.
const HOURS: &[(TimeOfDay, u64)] = &[(TimeOfDay::MIDNIGHT, 5), (NOON, 3), (ONE_O_CLOCK, 9)];

/// The limits of denials of `cost` at these instants, which follow each other, of a node that has taken five units at
/// the first.
async fn limits_of_denials<const N: usize>(quota: Quota, cost: u64, at: [&str; N]) -> [u64; N] {
    let clock = ManualClock::at(utc(at[0]));
    let store = MemoryStore::with_clock(clock.clone());
    let builder = SharedLimiter::builder(quota).on_failure(OnFailure::deny());
    let limiter = builder.build_on(store).unwrap();
    let alice = Key::from("alice");
    assert!(limiter.acquire(&alice, 5).await.unwrap().is_allowed());
    let mut limits = [0; N];
    for (limit, at) in limits.iter_mut().zip(at) {
        let passed = Duration::from_micros(utc(at).as_micros() - clock.now().as_micros());
        clock.set(utc(at));
        advance(passed).await;
        let decision = limiter.acquire(&alice, cost).await.unwrap();
        assert!(decision.is_denied(), "{at}: {decision:?}");
        *limit = decision.binding().limit();
    }
    limits
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_window_changes_when_it_ends() {
    let quota = Quota::per_hour(9).fixed_window().varying(HOURS);
    let at = [
        "2026-03-01T11:30:00Z",
        "2026-03-01T11:59:59.999999Z",
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:59:59.999999Z",
    ];
    assert_eq!(limits_of_denials(quota, 6, at).await, [5, 5, 3, 3]);
}

/// A limit that falls from 5 to 3 within an hour, and rises to 9 in the next.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_sliding_window_changes_within_it() {
    let quota = Quota::per_hour(9).sliding_window().varying(HOURS);
    let at = [
        "2026-03-01T11:30:00Z",
        "2026-03-01T12:00:00Z",
        // 5 - 2 / 2 is the first whole limit below 5.
        "2026-03-01T12:29:59.999999Z",
        "2026-03-01T12:30:00Z",
        "2026-03-01T13:00:00Z",
        "2026-03-01T13:00:00.000001Z",
        "2026-03-01T13:10:00Z",
        "2026-03-01T13:10:00.000001Z",
        "2026-03-01T13:50:00Z",
    ];
    let limits = limits_of_denials(quota, 9, at).await;
    assert_eq!(limits, [5, 5, 5, 4, 3, 4, 4, 5, 8]);
}
