//! A clock that steps back makes nobody wait for more than a full quota longer, or a second; for a
//! window, two periods in all.

use std::time::Duration;

use tower_ratelimit::{
    Key, LocalLimiter, LocalStore, Quota,
    clock::{ManualClock, Timestamp},
    quota::Algorithm,
};

use super::{alice, every_algorithm};

const MINUTE: Duration = Duration::from_secs(60);

/// Steps within the window, just beyond it, and far.
fn steps() -> impl Iterator<Item = Duration> {
    let seconds = [1, 20, 59, 60, 61, 90, 119, 120, 121, 600, 86_400 * 365];
    seconds.into_iter().map(Duration::from_secs)
}

/// How long one more unit has to wait for after the step.
fn locked_out(quota: Quota, phase: Duration, step: Duration) -> Duration {
    let clock = ManualClock::new();
    clock.advance(phase);
    let limiter = LocalLimiter::builder([quota, Quota::per_second(100).named("beside")])
        .max_keys(4)
        .clock(clock.clone())
        .build()
        .expect("good quotas");
    let _ = limiter.acquire_up_to(&alice(), 100);
    clock.step_back(step);
    let looked = limiter.acquire(&alice(), 1);
    let wait = looked.retry_after().expect("it fits");
    clock.advance(wait);
    assert!(looked.is_allowed() || limiter.acquire(&alice(), 1).is_allowed());
    wait
}

#[test]
fn windows_lock_out_for_two_periods_at_most() {
    let mut longest = Duration::ZERO;
    for quota in every_algorithm(Quota::per_minute(5)) {
        for phase in [0, 1, 30, 59].map(Duration::from_secs) {
            for step in steps() {
                let wait = locked_out(quota, phase, step);
                let most = match quota.algorithm() {
                    // The oldest slice weighs in full in the instant in which it begins to leave.
                    Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                        2 * MINUTE + Duration::from_micros(1)
                    }
                    _ => MINUTE,
                };
                assert!(wait <= most, "{quota:?}, {phase:?}, {step:?}: {wait:?}");
                longest = longest.max(wait);
            }
        }
    }
    assert!(longest > MINUTE, "the sentence could promise more");
}

/// Where threads may read the clock out of order, a short step is waited for.
#[test]
fn lone_bucket_locks_out_for_a_full_quota_or_a_second() {
    for quota in [
        Quota::per_minute(5),
        Quota::per_minute(5).leaky_bucket(4),
        Quota::per(100, Duration::from_millis(100)),
    ] {
        for step in steps().chain([Duration::from_millis(900)]) {
            let clock = ManualClock::new();
            let limiter = LocalLimiter::builder(quota)
                .max_keys(4)
                .clock(clock.clone())
                .build()
                .expect("a good quota");
            let _ = limiter.acquire_up_to(&alice(), 100);
            clock.step_back(step);
            let wait = limiter.acquire(&alice(), 1).retry_after();
            let most = quota.period().max(Duration::from_secs(1)) + quota.period();
            assert!(wait <= Some(most), "{quota:?}, {step:?}: {wait:?}");
        }
    }
}

/// A lone bucket keeps instants from an origin, which moves with a clock that steps by decades: it decides
/// as the same quota does in a store, whose instants are those of the epoch.
#[test]
fn lone_bucket_limits_wherever_its_clock_stands() {
    const YEARS: [u64; 8] = [0, 1, 17, 37, 56, 80, 200, 500];
    let instants = || YEARS.map(|years| Timestamp::from_secs(years * 31_557_600 + 1_000));
    let steps = instants()
        .into_iter()
        .flat_map(|from| instants().map(move |to| (from, to)));
    for (quota, (made, set)) in [
        Quota::per_minute(6),
        Quota::per_minute(6).refill_every(MINUTE),
        Quota::per_minute(1).leaky_bucket(5),
    ]
    .into_iter()
    .flat_map(|quota| steps.clone().map(move |step| (quota, step)))
    {
        let clock = ManualClock::at(made);
        let builder = || LocalLimiter::builder(quota);
        let store = LocalStore::builder().max_keys(64).clock(clock.clone());
        let store = store.build().expect("a store");
        let lone = builder()
            .max_keys(4)
            .clock(clock.clone())
            .build()
            .expect("a good quota");
        let stored = builder().build_in(&store).expect("a good quota");
        let used = |cost| (lone.acquire(&alice(), cost), stored.acquire(&alice(), cost));
        let _ = used(4);
        clock.set(set);
        assert_eq!((lone.tracked_keys(), made), (stored.tracked_keys(), made));
        for second in 0..70 {
            let (lone, stored) = used(1);
            let step = format!("{quota:?}: {made:?} to {set:?}, second {second}");
            assert_eq!(lone.is_denied(), stored.is_denied(), "{step}");
            assert_eq!(lone.retry_after(), stored.retry_after(), "{step}");
            clock.advance(Duration::from_secs(1));
        }
        for _ in 0..6 {
            let _ = used(1);
        }
        assert!(
            lone.acquire(&alice(), 1).is_denied(),
            "{quota:?}: {made:?} to {set:?}"
        );
    }
}

/// The entry of a block that has ended is free, but there is room beside it.
#[test]
fn blocks_that_have_ended_are_in_force_again() {
    let clock = ManualClock::new();
    let quotas = [
        Quota::per_day(100).fixed_window(),
        Quota::per_hour(50).fixed_window(),
    ];
    let limiter = LocalLimiter::builder(quotas)
        .max_keys(1_000)
        .clock(clock.clone())
        .build()
        .expect("good quotas");
    let keys: Vec<_> = (0..200_u64).map(Key::from).collect();
    for key in &keys {
        let blocked = limiter.block(key, Duration::from_secs(10));
        assert!(blocked.expect("not too long").is_blocked());
    }
    clock.advance(Duration::from_secs(11));
    for key in &keys {
        assert!(limiter.acquire(key, 1).is_allowed());
    }
    clock.step_back(Duration::from_secs(5));
    for key in &keys {
        assert!(limiter.acquire(key, 1).is_blocked(), "{key:?}");
    }
}
