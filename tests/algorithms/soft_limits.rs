//! `soft(percent)`: allows more than the headers promise, and is marked.

use std::time::Duration;

use tower_ratelimit::{ConfigErrorKind, Quota, clock::ManualClock};

use super::{
    alice, every_algorithm,
    random_quotas::{Spec, limiter},
};

/// ⌊5 · 1.5⌋ pass; remaining counts 4, 3, 2, 1, 0 and stays there.
#[test]
fn counts_to_the_nominal_limit_and_marks_what_passes_beyond() {
    for quota in every_algorithm(Quota::per_minute(5).soft(50)) {
        let clock = ManualClock::new();
        let limiter = limiter(Spec::hard(quota), &clock);
        let reported: Vec<_> = (0..9)
            .map(|_| limiter.acquire(&alice(), 1))
            .map(|reported| {
                (
                    reported.is_allowed(),
                    reported.remaining(),
                    reported.is_excess(),
                )
            })
            .collect();
        let nominal = (0..5).rev().map(|left| (true, Some(left), false));
        let beyond = [(true, Some(0), true); 2];
        let denied = [(false, Some(0), false); 2];
        let expected: Vec<_> = nominal.chain(beyond).chain(denied).collect();
        assert_eq!(reported, expected, "{quota:?}");
        let limits = limiter.peek(&alice(), 1);
        assert_eq!(limits.binding().limit(), 5);
        assert!(limits.binding().is_excess(), "the quota is exceeded");
    }
}

#[test]
fn capacity_is_rounded_down() {
    let cases = [
        (1, 99, 1),
        (1, 100, 2),
        (3, 33, 3),
        (3, 34, 4),
        (10, 0, 10),
        (10, 1_000, 110),
        (7, 50, 10),
    ];
    for (limit, percent, capacity) in cases {
        for quota in every_algorithm(Quota::per_minute(limit).soft(percent)) {
            let limiter = limiter(Spec::hard(quota), &ManualClock::new());
            let passes = limiter.acquire_up_to(&alice(), u64::MAX).charged();
            assert_eq!(passes, capacity, "{quota:?}");
        }
    }
}

/// With a burst it is the burst that is soft; the rate stays.
#[test]
fn soft_burst_refills_at_the_nominal_rate() {
    let clock = ManualClock::new();
    let limiter = limiter(Spec::hard(Quota::per_second(10).burst(4).soft(50)), &clock);
    assert_eq!(limiter.acquire_up_to(&alice(), 100).charged(), 6);
    clock.advance(Duration::from_millis(200));
    let refilled = limiter.acquire_up_to(&alice(), 100);
    assert_eq!((refilled.charged(), refilled.is_excess()), (2, true));
}

/// A client that goes by the headers gets nothing of the soft share in that time.
#[test]
fn effective_window_is_that_of_the_nominal_limit() {
    let second = Duration::from_secs(1);
    let clock = ManualClock::new();
    let limiter = limiter(Spec::hard(Quota::per_second(1).burst(4).soft(50)), &clock);
    let window = |cost| {
        let reported = limiter.acquire(&alice(), cost);
        (reported.remaining(), reported.binding().effective_window())
    };
    assert_eq!(window(1), (Some(3), Some(3 * second)));
    assert_eq!(window(3), (Some(0), Some(second)));
    // One deeper than the nominal limit: two seconds until one unit of it is back.
    assert_eq!(window(1), (Some(0), Some(2 * second)));
    assert_eq!(window(1), (Some(0), Some(3 * second)));
    let denied = limiter.acquire(&alice(), 1);
    assert_eq!(denied.retry_after(), Some(second));
    assert_eq!(denied.binding().effective_window(), Some(second));
}

#[test]
fn softer_than_1000_percent_is_a_named_error() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        assert_eq!(quota.soft(1_000).check(), Ok(()));
        let error = quota.soft(1_001).check().expect_err("too soft");
        assert_eq!(error.kind(), ConfigErrorKind::Soft);
        assert!(error.to_string().contains("soft(1001)"), "{error}");
    }
}
