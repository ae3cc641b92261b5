//! Receipts of charges by other numbers than those in force: requests that were open while their
//! quota was changed.

use std::time::Duration;

use tower_ratelimit::{LocalLimiter, LocalStore, Quota, clock::ManualClock, decision::Receipt};

use super::alice;

/// A burst of 100 in each algorithm whose receipts carry an instant, and the burst that it becomes.
const CHANGES: [[Quota; 2]; 3] = [
    [
        Quota::per_minute(60).burst(100),
        Quota::per_minute(60).burst(5),
    ],
    [
        Quota::per_minute(60).burst(100).refill_every(SECOND),
        Quota::per_minute(60).burst(5).refill_every(SECOND),
    ],
    [
        Quota::per_minute(60).leaky_bucket(99),
        Quota::per_minute(60).leaky_bucket(4),
    ],
];
const SECOND: Duration = Duration::from_secs(1);

/// With a table of its own, in a store, and with other quotas or a block beside it.
fn limiters(quota: Quota) -> Vec<LocalLimiter> {
    let clock = ManualClock::new();
    let store = LocalStore::builder().clock(clock.clone());
    let store = store.build().expect("a good size");
    let builder = || LocalLimiter::builder(quota.named("q"));
    let list = [quota.named("q"), Quota::per_day(10_000).named("day")];
    let built = [
        builder().clock(clock.clone()).build(),
        builder().build_in(&store),
        builder().clock(clock.clone()).block_for(SECOND).build(),
        LocalLimiter::builder(list).clock(clock).build(),
    ];
    built.map(|built| built.expect("good quotas")).into()
}

fn open(limiter: &LocalLimiter) -> Vec<Receipt> {
    let begin = |_| limiter.acquire(&alice(), 1);
    let open: Vec<_> = (0..100).map(begin).collect();
    assert!(open.iter().all(|decision| !decision.is_denied()));
    open.iter().map(|decision| decision.receipt()).collect()
}

/// Ends each of the open requests, which turn out not to count, and begins another in its place.
fn renewed(limiter: &LocalLimiter, open: Vec<Receipt>) -> u64 {
    let renew = |receipt| {
        let _ = limiter.refund(&alice(), 1, Some(receipt));
        limiter.acquire(&alice(), 1).charged()
    };
    open.into_iter().map(renew).sum()
}

#[test]
fn open_requests_of_a_larger_bucket_give_two_of_the_new_one() {
    for [before, after] in CHANGES {
        for (shape, limiter) in limiters(before).iter().enumerate() {
            let open = open(limiter);
            limiter.set_quota("q", after).expect("a good quota");
            let passed = renewed(limiter, open);
            assert!(passed <= 10, "{after:?}, {shape}: {passed} at one instant");
        }
    }
}

/// At ten times the rate an old unit is worth ten.
#[test]
fn open_requests_of_a_slower_rate_give_nothing() {
    let faster = Quota::per_minute(600);
    let changes = [
        faster.burst(100),
        faster.burst(100).refill_every(SECOND),
        faster.leaky_bucket(99),
    ];
    for ([before, _], after) in CHANGES.into_iter().zip(changes) {
        for limiter in limiters(before) {
            let open = open(&limiter);
            limiter.set_quota("q", after).expect("a good quota");
            let passed = open.into_iter().map(|receipt| {
                let _ = limiter.refund(&alice(), 1, Some(receipt));
                limiter.acquire_up_to(&alice(), 1_000).charged()
            });
            assert_eq!(passed.sum::<u64>(), 0, "{after:?}");
        }
    }
}

/// Units that the numbers in force could have charged come back as ever: nobody loses anything by a
/// change that leaves T and makes more room.
#[test]
fn larger_burst_takes_nothing_from_open_requests() {
    for [large, small] in CHANGES {
        for limiter in limiters(small) {
            let open = limiter.acquire(&alice(), 5).receipt();
            limiter.set_quota("q", large).expect("a good quota");
            let _ = limiter.refund(&alice(), 5, Some(open));
            assert_eq!(
                limiter.peek(&alice(), 1).remaining(),
                Some(100),
                "{large:?}"
            );
        }
    }
}
