//! The decision vectors, which come from other limiters' documentation and tests, and the worked
//! cases of the design.

use std::time::Duration;

use testkit::{
    charge_vectors::{self, Setup, Tiered},
    decision_vectors::{self, Subject, THE_ONE_KEY, at},
    now,
};
use tower_ratelimit::{
    Key, LocalLimiter, Quota,
    clock::{Clock, ManualClock},
};

struct Local;

impl Subject for Local {
    type Limiter = LocalLimiter;

    fn limiter(&self, name: &str, quotas: Vec<Quota>, clock: ManualClock) -> LocalLimiter {
        let builder = LocalLimiter::builder(quotas).max_keys(8).clock(clock);
        let limiter = builder.build();
        limiter.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn set_quota(&self, limiter: &LocalLimiter, name: &str, quota: Quota) {
        limiter.set_quota(name, quota).expect("a good quota");
    }
}

impl Tiered for Local {
    fn tiered(&self, name: &str, setup: Setup, clock: ManualClock) -> LocalLimiter {
        let mut builder = LocalLimiter::builder(setup.quotas).max_keys(8).clock(clock);
        for (tier, quotas) in setup.tiers {
            builder = builder.tier(tier, quotas);
        }
        if let Some(block) = setup.block_for {
            builder = builder.block_for(block);
        }
        let limiter = builder.build();
        limiter.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

#[test]
fn every_vector_holds() {
    now(decision_vectors::every_vector_holds(&Local));
}

#[test]
fn every_vector_of_charges_holds() {
    now(charge_vectors::every_vector_holds(&Local));
}

#[cfg(feature = "calendar")]
#[test]
fn every_vector_of_the_calendar_holds() {
    now(charge_vectors::every_calendar_vector_holds(&Local));
}

#[test]
fn every_vector_of_varying_limits_holds() {
    now(charge_vectors::every_varying_vector_holds(&Local));
}

#[cfg(feature = "calendar")]
#[test]
fn every_vector_of_limits_varying_in_zones_holds() {
    now(charge_vectors::every_vector_of_zones_holds(&Local));
}

/// A limiter, its clock at `hour` o'clock, and the key that is used.
fn worked(quota: Quota, hour: u64) -> (LocalLimiter, ManualClock, Key) {
    let clock = ManualClock::at(at(hour * 3_600_000));
    let limiter = LocalLimiter::builder(quota)
        .max_keys(8)
        .clock(clock.clone())
        .build()
        .expect("a good quota");
    (limiter, clock, Key::from(THE_ONE_KEY))
}

/// Whether each of the instants, in seconds from the clock's first one, admits one unit.
fn admitted(limiter: &LocalLimiter, clock: &ManualClock, key: &Key, seconds: &[u64]) -> Vec<bool> {
    let start = clock.now();
    let at = |seconds: &u64| start.saturating_add(Duration::from_secs(*seconds));
    let admits = |seconds| {
        clock.set(at(seconds));
        limiter.acquire(key, 1).is_allowed()
    };
    seconds.iter().map(admits).collect()
}

#[test]
fn sliding_window_of_7_a_minute() {
    let (limiter, clock, key) = worked(Quota::per_minute(7).sliding_window(), 1);
    assert!(limiter.acquire(&key, 5).is_allowed());
    clock.advance(Duration::from_secs(60));
    assert!(limiter.acquire(&key, 3).is_denied(), "all 5 still weigh");
    clock.advance(Duration::from_secs(18));
    assert!(limiter.acquire(&key, 3).is_allowed());
    assert!(limiter.acquire(&key, 1).is_allowed());
    assert!(limiter.acquire(&key, 1).is_denied());
}

#[test]
fn sliding_window_of_100_an_hour() {
    let (limiter, clock, key) = worked(Quota::per_hour(100).sliding_window(), 1);
    assert!(limiter.acquire(&key, 84).is_allowed());
    clock.advance(Duration::from_secs(3_600 + 900));
    let counted = limiter.acquire(&key, 36);
    assert_eq!((counted.is_allowed(), counted.remaining()), (true, Some(1)));
    assert!(limiter.acquire(&key, 1).is_allowed());
    assert!(limiter.acquire(&key, 1).is_denied());
}

#[test]
fn sliding_log_of_2_a_minute() {
    let (limiter, clock, key) = worked(Quota::per_minute(2).sliding_log(), 1);
    assert_eq!(
        admitted(&limiter, &clock, &key, &[1, 30, 50, 100]),
        [true, true, false, true]
    );
}

#[test]
fn fixed_window_of_5_a_minute_lets_10_pass_around_its_edge() {
    let (limiter, clock, key) = worked(Quota::per_minute(5).fixed_window(), 2);
    let (before, after) = (58, 62);
    let seconds = [[before; 6], [after; 6]].concat();
    let six = [true, true, true, true, true, false];
    assert_eq!(
        admitted(&limiter, &clock, &key, &seconds),
        [six, six].concat()
    );
}

#[test]
fn token_bucket_of_3_a_minute_refilled_on_the_minute() {
    let minute = Duration::from_secs(60);
    let (limiter, clock, key) = worked(Quota::per_minute(3).refill_every(minute), 10);
    assert_eq!(
        admitted(&limiter, &clock, &key, &[0, 10, 35, 45, 60, 60, 60, 60]),
        [true, true, true, false, true, true, true, false]
    );
}
