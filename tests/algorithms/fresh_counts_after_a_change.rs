//! `OnChange`: what a key gets that has used up 2 a minute when the limit is 5. A limiter that is built with
//! other numbers counts afresh; a running one keeps its counts.

use std::{thread, time::Duration};

use tower_ratelimit::{
    Decision, LocalLimiter, LocalStore, Quota,
    clock::ManualClock,
    decision::Op,
    limiter::{LocalLimiterBuilder, OnChange, Pending, QuotaChange, RequestQuota, Tier},
    quota::Algorithm,
};

use super::{alice, every_algorithm};

const TWO: Quota = Quota::per_minute(2);
const FIVE: Quota = Quota::per_minute(5);

/// A limiter with a table of its own, and one in a store.
fn both(quota: Quota, on_change: OnChange) -> [(LocalLimiter, ManualClock); 2] {
    [false, true].map(|stored| {
        let builder = LocalLimiter::builder(quota).on_change(on_change);
        let clock = ManualClock::new();
        let limiter = if stored {
            builder.build_in(&store(&clock))
        } else {
            builder.clock(clock.clone()).max_keys(64).build()
        };
        (limiter.expect("good quotas"), clock)
    })
}

fn store(clock: &ManualClock) -> LocalStore {
    let store = LocalStore::builder().clock(clock.clone());
    store.build().expect("a store")
}

/// A limiter that starts afresh with other numbers.
fn fresh(builder: LocalLimiterBuilder, store: &LocalStore) -> LocalLimiter {
    let builder = builder.name("login").on_change(OnChange::Fresh);
    builder.build_in(store).expect("good quotas")
}

/// A limiter, and one that is built after it with other numbers.
fn rebuilt(before: Quota, after: Quota) -> (LocalLimiter, impl FnOnce() -> LocalLimiter) {
    let store = store(&ManualClock::new());
    let old = fresh(LocalLimiter::builder(before), &store);
    (old, move || fresh(LocalLimiter::builder(after), &store))
}

fn set(limiter: &LocalLimiter, quota: Quota) {
    limiter.set_quota("default", quota).expect("a good quota");
}

fn left(limiter: &LocalLimiter) -> u64 {
    limiter.peek(&alice(), 1).remaining().expect("known")
}

fn raised() -> impl Iterator<Item = (Quota, Quota)> {
    every_algorithm(TWO).into_iter().zip(every_algorithm(FIVE))
}

fn is_bucket(quota: Quota) -> bool {
    matches!(
        quota.algorithm(),
        Algorithm::TokenBucket | Algorithm::LeakyBucket { .. }
    )
}

#[test]
fn running_limiter_leaves_nothing_of_a_bucket_and_three_of_windows() {
    for (two, five) in raised() {
        let all = [OnChange::Keep, OnChange::Fresh].map(|on_change| both(two, on_change));
        for (limiter, clock) in all.into_iter().flatten() {
            let _ = limiter.acquire_up_to(&alice(), 2);
            set(&limiter, five);
            let expected = if is_bucket(five) { 0 } else { 3 };
            assert_eq!(left(&limiter), expected, "{five:?}");
            // The report agrees.
            let change = QuotaChange::new("login", two, five, OnChange::Keep);
            assert_eq!(change.available, expected, "{change}");
            if expected == 0 {
                let wait = limiter.peek(&alice(), 1).retry_after();
                assert!(wait <= change.next_unit, "{wait:?}, {change}");
                clock.advance(change.next_unit.expect("it says when"));
                assert!(limiter.acquire(&alice(), 1).is_allowed(), "{change}");
            }
        }
    }
}

#[test]
fn fresh_keys_have_all_of_the_new_limit_at_once() {
    for (two, five) in raised() {
        let (old, new) = rebuilt(two, five);
        let _ = old.acquire_up_to(&alice(), 2);
        let new = new();
        assert_eq!(left(&new), 5, "{five:?}");
        assert_eq!(new.acquire_up_to(&alice(), 9).charged(), 5);
        assert!(new.acquire(&alice(), 1).is_denied());
        let change = QuotaChange::new("login", two, five, OnChange::Fresh);
        assert_eq!((change.available, change.next_unit), (5, None), "{change}");
    }
}

/// Burst, queue and soft share are numbers, too; a quota that is built as it is is no change.
#[test]
fn every_number_counts_and_nothing_else() {
    let changes = [
        (FIVE, FIVE.burst(7), 7),
        (FIVE.leaky_bucket(4), FIVE.leaky_bucket(6), 7),
        (FIVE, FIVE.soft(40), 5),
        (FIVE.fixed_window(), FIVE.fixed_window().soft(40), 5),
        (FIVE, FIVE.burst(5), 0),
        (FIVE, FIVE, 0),
    ];
    for (before, after, expected) in changes {
        let (old, new) = rebuilt(before, after);
        let _ = old.acquire_up_to(&alice(), 9);
        assert_eq!(left(&new()), expected, "{before:?} to {after:?}");
    }
}

#[test]
fn blocks_end_and_all_quotas_start_afresh() {
    let list = |minute: Quota| {
        let quotas = [minute.named("minute"), Quota::per_day(3).named("day")];
        LocalLimiter::builder(quotas).block_for(Duration::from_secs(9_000))
    };
    let store = store(&ManualClock::new());
    let old = fresh(list(TWO), &store);
    let _ = old.acquire(&alice(), 2);
    assert!(old.acquire(&alice(), 1).is_denied());
    assert!(old.peek(&alice(), 1).is_blocked());
    let new = fresh(list(FIVE), &store);
    let decision = new.acquire(&alice(), 3);
    assert!(decision.is_allowed(), "{decision:?}");
    let _ = new.acquire(&alice(), 1);
    assert!(new.peek(&alice(), 1).is_blocked());
    // By hand.
    let (old, new) = rebuilt(TWO, FIVE);
    let _ = old.block(&alice(), Duration::from_secs(60));
    assert_eq!(new().acquire_up_to(&alice(), 9).charged(), 5);
}

/// Twenty requests are open when the quota changes; each is refunded, and one more is taken.
#[test]
fn receipts_from_before_give_nothing() {
    let changes = [
        (FIVE.burst(20), FIVE.burst(21)),
        (FIVE.leaky_bucket(19), FIVE.leaky_bucket(20)),
        (
            Quota::per_minute(20).fixed_window(),
            Quota::per_minute(21).fixed_window(),
        ),
        (
            Quota::per_minute(20).sliding_window(),
            Quota::per_minute(21).sliding_window(),
        ),
        (
            Quota::per_minute(20).sliding_log(),
            Quota::per_minute(21).sliding_log(),
        ),
    ];
    for (before, after) in changes {
        let (old, new) = rebuilt(before, after);
        let open: Vec<Decision> = (0..20).map(|_| old.acquire(&alice(), 1)).collect();
        let new = new();
        let mut passed = 0;
        for decision in &open {
            passed += new.acquire(&alice(), 1).charged();
            let _ = new.refund(&alice(), 1, Some(decision.receipt()));
        }
        passed += new.acquire_up_to(&alice(), 99).charged();
        assert_eq!(passed, 21, "{after:?}");
    }
}

/// A store continues with what the old numbers hold, and their receipts refund there.
#[test]
fn quota_is_changed_back() {
    for (two, five) in raised() {
        let store = store(&ManualClock::new());
        let build = |quota| fresh(LocalLimiter::builder(quota), &store);
        let old = build(two);
        let first = old.acquire_up_to(&alice(), 2);
        let new = build(five);
        assert_eq!(left(&new), 5, "{five:?}");
        drop(old);
        let back = build(two);
        assert_eq!(left(&back), 0, "{two:?}");
        if !matches!(two.algorithm(), Algorithm::LeakyBucket { .. }) {
            let _ = back.refund(&alice(), 2, Some(first.receipt()));
            assert_eq!(left(&back), 2, "{two:?}");
        }
    }
}

/// Tiers share a counter after the change as before it, whichever of them changed.
#[test]
fn alternation_between_tiers_gives_nothing_back() {
    let pro = Tier::named("pro");
    for (two, five) in raised() {
        let store = store(&ManualClock::new());
        for default in [two, five] {
            let tiers = LocalLimiter::builder(default).tier("pro", five);
            let limiter = fresh(tiers, &store);
            let take = |tier: &Tier| {
                let Pending::Ready(taken) =
                    testkit::apply_in(&limiter, tier, &alice(), Op::AcquireUpTo(99));
                taken.expect("there is such a tier").charged()
            };
            assert_eq!(take(&pro) + take(&Tier::DEFAULT) + take(&pro), 5, "{two:?}");
            let row = RequestQuota::limit(4).into();
            assert_eq!(take(&row), 0, "{two:?}");
        }
    }
}

/// A soft share of one unit comes and goes while others take units: each time it gives one at most.
#[test]
fn changes_among_threads_give_no_more_than_the_numbers() {
    const CHANGES: u64 = 200;
    for (_, five) in raised() {
        for (limiter, _) in both(five, OnChange::Fresh) {
            let passed: u64 = thread::scope(|scope| {
                let hammer = || {
                    (0..20_000)
                        .map(|_| limiter.acquire(&alice(), 1).charged())
                        .sum()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(hammer)).collect();
                for number in 0..CHANGES {
                    set(&limiter, five.soft(if number % 2 == 0 { 20 } else { 0 }));
                }
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or(u64::MAX))
                    .sum::<u64>()
            });
            assert!(passed <= CHANGES + 6, "{passed} of {five:?}");
        }
    }
}

/// Two limiters of one name in a store, with the old numbers and the new, as while files are read
/// again: neither counts for the other, whichever decides.
#[test]
fn old_and_new_limiters_of_one_name_count_apart() {
    for (two, five) in raised() {
        let store = store(&ManualClock::new());
        let build = |quota| fresh(LocalLimiter::builder(quota), &store);
        let [old, new] = [two, five].map(build);
        let mut passed = [0, 0];
        for _ in 0..20 {
            passed[0] += old.acquire(&alice(), 1).charged();
            passed[1] += new.acquire(&alice(), 1).charged();
        }
        assert_eq!(passed, [2, 5], "{two:?}");
        // A new one continues.
        assert_eq!(left(&build(two)), 0);
    }
}
