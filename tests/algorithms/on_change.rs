//! `OnChange`: what a key gets that has used up 2 a minute when the limit is 5.

use std::{thread, time::Duration};

use tower_ratelimit::{
    Algorithm, Decision, Limiter as _, LocalLimiter, LocalStore, ManualClock, OnChange, Op, Quota,
    limiter::{LocalLimiterBuilder, Pending, QuotaChange, RequestQuota, Tier},
};

use super::{alice, every_algorithm};

const TWO: Quota = Quota::per_minute(2);
const FIVE: Quota = Quota::per_minute(5);

/// A limiter with a table of its own, and one in a store.
fn both(
    builder: impl Fn() -> LocalLimiterBuilder,
    on_change: OnChange,
) -> [(LocalLimiter, ManualClock); 2] {
    [false, true].map(|stored| {
        let (builder, clock) = (builder().on_change(on_change), ManualClock::new());
        let limiter = if stored {
            let store = LocalStore::builder().clock(clock.clone()).build();
            builder.build_in(&store.expect("a store"))
        } else {
            builder.clock(clock.clone()).max_keys(64).build()
        };
        (limiter.expect("good quotas"), clock)
    })
}

fn lone(quota: Quota, on_change: OnChange) -> [(LocalLimiter, ManualClock); 2] {
    both(|| LocalLimiter::builder(quota), on_change)
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
fn kept_counts_leave_nothing_of_a_bucket_and_three_of_windows() {
    for (two, five) in raised() {
        for (limiter, clock) in lone(two, OnChange::Keep) {
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
        for (limiter, _) in lone(two, OnChange::Fresh) {
            let _ = limiter.acquire_up_to(&alice(), 2);
            set(&limiter, five);
            assert_eq!(left(&limiter), 5, "{five:?}");
            assert_eq!(limiter.acquire_up_to(&alice(), 9).charged(), 5);
            assert!(limiter.acquire(&alice(), 1).is_denied());
            let change = QuotaChange::new("login", two, five, OnChange::Fresh);
            assert_eq!((change.available, change.next_unit), (5, None), "{change}");
        }
    }
}

/// Burst, queue and soft share are numbers, too; a quota that is set to what it is is no change.
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
        for (limiter, _) in lone(before, OnChange::Fresh) {
            let _ = limiter.acquire_up_to(&alice(), 9);
            set(&limiter, after);
            assert_eq!(left(&limiter), expected, "{before:?} to {after:?}");
        }
    }
}

#[test]
fn blocks_end_and_all_quotas_start_afresh() {
    let list = || {
        let quotas = [TWO.named("minute"), Quota::per_day(3).named("day")];
        LocalLimiter::builder(quotas).block_for(Duration::from_secs(9_000))
    };
    for (limiter, _) in both(list, OnChange::Fresh) {
        let _ = limiter.acquire(&alice(), 2);
        assert!(limiter.acquire(&alice(), 1).is_denied());
        assert!(limiter.peek(&alice(), 1).is_blocked());
        limiter.set_quota("minute", FIVE).expect("a good quota");
        let decision = limiter.acquire(&alice(), 3);
        assert!(decision.is_allowed(), "{decision:?}");
        let _ = limiter.acquire(&alice(), 1);
        assert!(limiter.peek(&alice(), 1).is_blocked());
    }
    // By hand, where the table has no room for blocks.
    for (limiter, _) in lone(TWO, OnChange::Fresh) {
        let _ = limiter.block(&alice(), Duration::from_secs(60));
        set(&limiter, FIVE);
        assert_eq!(limiter.acquire_up_to(&alice(), 9).charged(), 5);
    }
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
        for (limiter, _) in lone(before, OnChange::Fresh) {
            let take = || limiter.acquire(&alice(), 1);
            let open: Vec<Decision> = (0..20).map(|_| take()).collect();
            set(&limiter, after);
            let mut passed = 0;
            for decision in open {
                passed += take().charged();
                let _ = limiter.refund(&alice(), 1, Some(decision.receipt()));
            }
            passed += limiter.acquire_up_to(&alice(), 99).charged();
            assert_eq!(passed, 21, "{after:?}");
        }
    }
}

/// A table forgets; a store continues with what the old numbers hold. Neither takes the receipts of
/// the first time for new ones.
#[test]
fn quota_is_changed_back() {
    for (two, five) in raised() {
        for ((limiter, _), stored) in lone(two, OnChange::Fresh).into_iter().zip([false, true]) {
            let first = limiter.acquire_up_to(&alice(), 2);
            set(&limiter, five);
            set(&limiter, two);
            let expected = if stored { 0 } else { 2 };
            assert_eq!(left(&limiter), expected, "{two:?}");
            if !stored {
                let _ = limiter.acquire_up_to(&alice(), 2);
                let _ = limiter.refund(&alice(), 2, Some(first.receipt()));
                assert_eq!(left(&limiter), 0, "{two:?}");
            }
        }
    }
}

/// Tiers share a counter after the change as before it, whichever of them changed.
#[test]
fn alternation_between_tiers_gives_nothing_back() {
    let pro = Tier::named("pro");
    for (two, five) in raised() {
        let tiers = || LocalLimiter::builder(two).tier("pro", five);
        for (limiter, _) in both(tiers, OnChange::Fresh) {
            let take = |tier: &Tier| {
                let Pending::Ready(taken) = limiter.apply_in(tier, &alice(), Op::AcquireUpTo(99));
                taken.expect("there is such a tier").charged()
            };
            assert_eq!(take(&pro) + take(&Tier::DEFAULT) + take(&pro), 5);
            set(&limiter, five);
            assert_eq!(take(&pro) + take(&Tier::DEFAULT) + take(&pro), 5, "{two:?}");
            let row = RequestQuota::limit(4).into();
            assert_eq!(take(&row), 0, "{two:?}");
        }
    }
}

/// Each change gives every key one new quota at most, whenever it comes between requests.
#[test]
fn changes_among_threads_give_no_more_than_each_quota_once() {
    const CHANGES: u64 = 200;
    for (_, five) in raised() {
        for (limiter, _) in lone(five, OnChange::Fresh) {
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
            assert!(passed <= (CHANGES + 1) * 6, "{passed} of {five:?}");
        }
    }
}

/// Two limiters of one name in a store, with the old numbers and the new, as while files are read
/// again: neither counts for the other, whichever decides.
#[test]
fn old_and_new_limiters_of_one_name_count_apart() {
    for (two, five) in raised() {
        let clock = ManualClock::new();
        let store = LocalStore::builder()
            .clock(clock.clone())
            .build()
            .expect("a store");
        let [old, new] = [two, five].map(|quota| {
            let builder = LocalLimiter::builder(quota).name("login");
            builder
                .on_change(OnChange::Fresh)
                .build_in(&store)
                .expect("good")
        });
        let mut passed = [0, 0];
        for _ in 0..20 {
            passed[0] += old.acquire(&alice(), 1).charged();
            passed[1] += new.acquire(&alice(), 1).charged();
        }
        assert_eq!(passed, [2, 5], "{two:?}");
        // A new one continues.
        let again = LocalLimiter::builder(two)
            .name("login")
            .on_change(OnChange::Fresh);
        assert_eq!(left(&again.build_in(&store).expect("good")), 0);
    }
}
