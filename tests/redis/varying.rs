//! Quotas that vary by the time of day, which Redis decides by its own clock. `differential` compares its
//! decisions with those of this process.

use std::time::Duration;

use testkit::needs;
use tower_ratelimit::{Clock as _, Key, OsClock, Quota, RedisLimiter, TimeOfDay};

use crate::{
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
