//! Several quotas are charged together or not at all.

use std::{
    sync::{Barrier, atomic::AtomicU64, atomic::Ordering},
    thread,
    time::Duration,
};

use tower_ratelimit::{
    Decision, Limiter as _, LocalLimiter, Quota,
    clock::ManualClock,
    decision::{Op, Outcome},
    limiter::Pending,
    quota::Algorithm,
};

use super::{alice, every_algorithm};

fn stack<const N: usize>(quotas: [Quota; N]) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(quotas)
        .max_keys(8)
        .clock(clock.clone())
        .build()
        .expect("good quotas");
    (limiter, clock)
}

fn left(decision: &Decision) -> Vec<u64> {
    let quotas = decision.quotas();
    quotas
        .map(|quota| quota.remaining().expect("known"))
        .collect()
}

#[test]
fn denial_by_one_charges_none() {
    for small in every_algorithm(Quota::per_hour(2)) {
        for large in every_algorithm(Quota::per_hour(50)) {
            for (quotas, two_left) in [([small, large], [0, 48]), ([large, small], [48, 0])] {
                let (limiter, _) = stack(quotas);
                assert!(limiter.acquire(&alice(), 2).is_allowed());
                for cost in [1, 2, 3, 60] {
                    let denied = limiter.acquire(&alice(), cost);
                    assert!(denied.is_denied(), "{quotas:?}");
                    assert_eq!(denied.charged(), 0);
                    assert_eq!(left(&denied), two_left, "{quotas:?}");
                }
                assert_eq!(left(&limiter.peek(&alice(), 0)), two_left);
                assert!(limiter.acquire_up_to(&alice(), 9).is_denied());
            }
        }
    }
}

#[test]
fn acquire_up_to_takes_what_fits_all() {
    let (limiter, _) = stack([Quota::per_hour(9), Quota::per_hour(4).sliding_log()]);
    let taken = limiter.acquire_up_to(&alice(), 7);
    assert_eq!((taken.charged(), left(&taken)), (4, vec![5, 0]));
}

/// Rates are charged on arrival, the wait is that of the slowest queue.
#[test]
fn waits_are_the_longest() {
    let (limiter, _) = stack([
        Quota::per_second(10).leaky_bucket(50),
        Quota::per_second(2).leaky_bucket(3).named("slow"),
        Quota::per_day(5).fixed_window(),
    ]);
    let outcomes: Vec<_> = (0..5)
        .map(|_| limiter.acquire(&alice(), 1).outcome())
        .collect();
    let expected = [
        Outcome::Allowed,
        Outcome::Delayed(Duration::from_millis(500)),
        Outcome::Delayed(Duration::from_millis(1_000)),
        Outcome::Delayed(Duration::from_millis(1_500)),
        Outcome::Denied,
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(left(&limiter.peek(&alice(), 0)), [47, 0, 1]);
    assert_eq!(limiter.peek(&alice(), 1).binding().name(), "slow");
}

/// Rolling back charges one by one would deny requests that fit, or let the counts differ.
#[test]
fn of_1000_parallel_requests_exactly_the_smaller_limit_passes_and_both_count_it() {
    for small in every_algorithm(Quota::per_hour(100)) {
        let large = [
            Quota::per_day(150),
            Quota::per_day(150).fixed_window(),
            Quota::per_day(150).sliding_log(),
        ];
        for large in large {
            let (limiter, _) = stack([small, large]);
            let (start, admitted) = (Barrier::new(8), AtomicU64::new(0));
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        for _ in 0..125 {
                            let charged = limiter.acquire(&alice(), 1).charged();
                            admitted.fetch_add(charged, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(admitted.into_inner(), 100, "{small:?}, {large:?}");
            let left = left(&limiter.peek(&alice(), 0));
            assert_eq!(left, [0, 50], "{small:?}, {large:?}");
        }
    }
}

/// A refund goes back to all of them, each in its own way.
#[test]
fn refund_goes_to_each() {
    let (limiter, clock) = stack([
        Quota::per_minute(10).fixed_window(),
        Quota::per_hour(10).fixed_window(),
        Quota::per_hour(10).sliding_log().named("log"),
    ]);
    let charged = limiter.acquire(&alice(), 4);
    clock.advance(Duration::from_secs(60));
    assert!(limiter.acquire(&alice(), 1).is_allowed());
    let refunded = limiter.refund(&alice(), 4, Some(charged.receipt()));
    assert_eq!(left(&refunded), [9, 9, 9]);
}

/// A settlement in one thread takes nothing from another's charge.
#[test]
fn of_parallel_reservations_only_those_that_count_stay() {
    for quota in every_algorithm(Quota::per_hour(1_000)) {
        if matches!(quota.algorithm(), Algorithm::LeakyBucket { .. }) {
            // Slots are promised in order: those before others do not come back.
            continue;
        }
        for beside in [None, Some(Quota::per_day(5_000).fixed_window())] {
            let list: Vec<_> = [quota].into_iter().chain(beside).collect();
            let limiter = LocalLimiter::builder(list)
                .max_keys(8)
                .clock(ManualClock::new())
                .build()
                .expect("good quotas");
            let start = Barrier::new(8);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        for request in 0..100 {
                            let Pending::Ready(reserved) = limiter.apply(&alice(), Op::Reserve(1));
                            let receipt = reserved.expect("it is local").receipt();
                            let counts = u64::from(request % 4 == 0);
                            let settle = Op::Settle(counts, receipt);
                            let Pending::Ready(settled) = limiter.apply(&alice(), settle);
                            assert!(settled.expect("it is local").is_allowed());
                        }
                    });
                }
            });
            let left = left(&limiter.peek(&alice(), 0));
            assert_eq!(left[0], 800, "{quota:?}, {beside:?}");
        }
    }
}
