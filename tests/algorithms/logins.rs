//! `block_for` with responses that count or do not: logins that are tried in parallel.

use tower_ratelimit::{
    Decision, LocalLimiter, Quota,
    decision::{Op, Receipt},
};

use super::{
    alice,
    block_for::{BLOCK, blocking, facts, request, seconds},
    every_algorithm,
};

/// Five attempts pass at once, the sixth is denied; then the responses come.
fn six_logins(quota: Quota) -> (LocalLimiter, Vec<Receipt>) {
    let (limiter, _) = blocking(quota, 8);
    let attempts: Vec<_> = (0..6).map(|_| request(&limiter, Op::Reserve(1))).collect();
    assert!(attempts[..5].iter().all(Decision::is_allowed), "{quota:?}");
    assert!(attempts[5].is_denied() && !attempts[5].is_blocked());
    let receipts = attempts[..5].iter().map(Decision::receipt);
    (limiter, receipts.collect())
}

#[test]
fn parallel_logins_that_all_succeed_block_nobody() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, receipts) = six_logins(quota);
        for receipt in receipts.into_iter().rev() {
            let settled = request(&limiter, Op::Settle(0, receipt));
            assert!(settled.is_allowed() && !settled.is_blocked(), "{quota:?}");
        }
        let next = limiter.acquire(&alice(), 5);
        assert!(next.is_allowed(), "{quota:?}: {next:?}");
    }
}

#[test]
fn parallel_logins_of_which_one_fails_block_nobody() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, receipts) = six_logins(quota);
        for (failures, receipt) in receipts.into_iter().enumerate().rev() {
            let counts = u64::from(failures == 0);
            let _ = request(&limiter, Op::Settle(counts, receipt));
        }
        let next = limiter.acquire(&alice(), 4);
        assert!(next.is_allowed() && !next.is_blocked(), "{quota:?}");
    }
}

#[test]
fn parallel_logins_that_all_fail_block() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, receipts) = six_logins(quota);
        for (earlier, receipt) in receipts.into_iter().enumerate() {
            let settled = request(&limiter, Op::Settle(1, receipt));
            assert!(settled.is_allowed() && !settled.is_blocked(), "{quota:?}");
            let looked = limiter.peek(&alice(), 1);
            assert_eq!(looked.is_blocked(), earlier == 4, "{quota:?}");
        }
        let next = limiter.acquire(&alice(), 1);
        assert_eq!(
            facts(&next),
            (true, true, Some(0), Some(BLOCK)),
            "{quota:?}"
        );
    }
}

/// Counted responses flow back like charges, and go with the key.
#[test]
fn failures_that_come_slowly_block_nobody() {
    for quota in every_algorithm(Quota::per_minute(5)) {
        let (limiter, clock) = blocking(quota, 8);
        let fails = || {
            let receipt = request(&limiter, Op::Reserve(1)).receipt();
            request(&limiter, Op::Settle(1, receipt))
        };
        for _ in 0..50 {
            clock.advance(seconds(16));
            assert!(fails().is_allowed(), "{quota:?}");
            assert!(!limiter.peek(&alice(), 1).is_blocked(), "{quota:?}");
        }
        clock.advance(seconds(120));
        for _ in 0..2 {
            for _ in 0..4 {
                let _ = fails();
            }
            assert!(!limiter.peek(&alice(), 1).is_blocked(), "{quota:?}");
            let _ = limiter.reset(&alice());
        }
    }
}

/// A changed kind of quota leaves also what responses counted, until it is changed back; a changed limit keeps it.
#[test]
fn failures_are_kept_as_the_quota_is() {
    let fails = |limiter: &LocalLimiter, times| {
        for _ in 0..times {
            let receipt = request(limiter, Op::Reserve(1)).receipt();
            let _ = request(limiter, Op::Settle(1, receipt));
        }
        limiter.peek(&alice(), 1).is_blocked()
    };
    let set = |limiter: &LocalLimiter, quota| {
        let set = limiter.set_quota("default", quota);
        set.expect("a good quota");
    };
    let (bucket, window) = (Quota::per_minute(5), Quota::per_minute(5).fixed_window());
    for (quota, other) in [(bucket, window), (window, bucket)] {
        let (limiter, _) = blocking(quota, 8);
        assert!(!fails(&limiter, 4));
        set(&limiter, other);
        assert!(!fails(&limiter, 4), "{quota:?}");
        set(&limiter, quota);
        assert!(fails(&limiter, 1), "{quota:?}");

        let (limiter, _) = blocking(quota, 8);
        assert!(!fails(&limiter, 4));
        set(&limiter, quota.soft(20));
        assert!(!fails(&limiter, 1), "{quota:?}");
        assert!(fails(&limiter, 1), "{quota:?}");
    }
}
