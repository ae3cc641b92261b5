//! Bounded memory and the order of evictions, for every algorithm, where more than
//! one instant is kept for a key.

use std::time::Duration;

use tower_ratelimit::{Key, Limiter as _, LocalLimiter, Quota, clock::ManualClock};

use super::every_algorithm;

/// The quota in every algorithm in the table with locks: a list, or alone if that makes it so. A list of two has two
/// counts for each key.
fn locked(quota: Quota, max_keys: usize) -> Vec<(LocalLimiter, ManualClock)> {
    let beside = Quota::per_day(1_000).fixed_window().named("beside");
    let lists = every_algorithm(quota)
        .into_iter()
        .flat_map(|quota| [vec![quota, beside], vec![quota]]);
    lists
        .map(|list| {
            let clock = ManualClock::new();
            let limiter = LocalLimiter::builder(list)
                .max_keys(max_keys)
                .clock(clock.clone())
                .build()
                .expect("good quotas");
            (limiter, clock)
        })
        .collect()
}

/// The counts of each key.
fn counts(limiter: &LocalLimiter) -> usize {
    limiter.policies().len()
}

fn key(n: u64) -> Key {
    Key::from(n)
}

#[test]
fn flood_of_fresh_keys_does_not_reset_the_exhausted() {
    let max_keys = 2_000;
    for (limiter, _) in locked(Quota::per_hour(2), max_keys) {
        let offenders: Vec<_> = (0..20).map(key).collect();
        for offender in &offenders {
            assert!(limiter.acquire(offender, 2).is_allowed());
        }
        for fresh in 0..2 * max_keys as u64 {
            assert!(limiter.acquire(&key(1_000_000 + fresh), 1).is_allowed());
        }
        assert!(limiter.evictions() > 0, "the flood did not fill the table");
        for offender in &offenders {
            assert!(limiter.acquire(offender, 1).is_denied(), "{limiter:?}");
        }
    }
}

/// A day that is used up is more to forget than a second that is.
#[test]
fn flood_of_fresh_keys_does_not_give_a_used_up_day_back() {
    let max_keys = 100;
    for daily in every_algorithm(Quota::per_day(5)) {
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder([Quota::per_second(1), daily.named("daily")])
            .max_keys(max_keys)
            .clock(clock.clone())
            .build()
            .expect("good quotas");
        for _ in 0..5 {
            for offender in 0..20 {
                assert!(limiter.acquire(&key(offender), 1).is_allowed(), "{daily:?}");
            }
            clock.advance(Duration::from_secs(1));
        }
        for fresh in 0..20 * max_keys as u64 {
            let _ = limiter.acquire(&key(1_000_000 + fresh), 1);
        }
        assert!(limiter.evictions() > 0, "the flood did not fill the table");
        clock.advance(Duration::from_secs(1));
        for offender in 0..20 {
            assert!(limiter.acquire(&key(offender), 1).is_denied(), "{daily:?}");
        }
    }
}

/// If neither of two is exhausted, the one with less to forget goes.
#[test]
fn half_used_key_outlives_hardly_used_ones() {
    let max_keys = 2_000;
    for (limiter, _) in locked(Quota::per_hour(10), max_keys) {
        for n in 0..20 {
            assert!(limiter.acquire(&key(n), 5).is_allowed());
        }
        for fresh in 0..2 * max_keys as u64 {
            assert!(limiter.acquire(&key(1_000_000 + fresh), 1).is_allowed());
        }
        for n in 0..20 {
            assert!(limiter.acquire(&key(n), 6).is_denied(), "{limiter:?}");
        }
    }
}

/// One algorithm is enough: which keys meet in a bucket does not depend on what is kept of them.
/// A small table must not be cut into parts that fill unevenly.
#[test]
fn max_keys_live_keys_are_hardly_ever_evicted() {
    const KEYS: u64 = 200_000;
    let sizes = [1_000, 10_000, KEYS];
    let lost = sizes.map(|max_keys| {
        let tables = (0..KEYS / max_keys).map(|table| {
            let limiter = LocalLimiter::builder(Quota::per_hour(10).fixed_window())
                .max_keys(max_keys as usize)
                .clock(ManualClock::new())
                .build()
                .expect("a good quota");
            for n in 0..max_keys {
                let _ = limiter.acquire(&key(table * max_keys + n), 1);
            }
            let lost = limiter.evictions();
            assert_eq!(limiter.tracked_keys() as u64 + lost, max_keys);
            lost
        });
        tables.sum::<u64>()
    });
    // At about 1 in 20,000, twice as many by chance are a matter of 1 run in a million.
    let all = KEYS * sizes.len() as u64;
    assert!(lost.iter().sum::<u64>() < all / 10_000, "{lost:?}");
}

#[test]
fn unique_keys_without_end_stay_within_the_table() {
    let max_keys = 1_000;
    for (limiter, _) in locked(Quota::per_hour(10), max_keys) {
        for n in 0..20_000 {
            assert!(limiter.acquire(&key(n), 1).is_allowed());
        }
        let tracked = limiter.tracked_keys();
        let counts = counts(&limiter);
        let room = max_keys * counts..2 * max_keys * counts;
        assert!(room.contains(&tracked), "{tracked}");
        assert_eq!(limiter.evictions(), (20_000 * counts - tracked) as u64);
    }
}

#[test]
fn entries_free_themselves_with_time() {
    for quota in every_algorithm(Quota::per_minute(10)) {
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder([quota, quota.named("again")])
            .max_keys(1_000)
            .clock(clock.clone())
            .build()
            .expect("good quotas");
        // A free entry is taken again, and no key is evicted.
        for round in 0..40 {
            for n in 0..500 {
                assert!(limiter.acquire(&key(round * 500 + n), 10).is_allowed());
            }
            assert_eq!(limiter.tracked_keys(), 2 * 500);
            let longest = limiter.peek(&key(round * 500), 1).binding().reset_after();
            clock.advance(longest.expect("known"));
            assert_eq!(limiter.tracked_keys(), 0, "{quota:?}");
        }
        assert_eq!(limiter.evictions(), 0, "{quota:?}");
    }
}

#[test]
fn reset_and_full_refund_free_the_entry() {
    for (limiter, clock) in locked(Quota::per_hour(10), 8) {
        let charged = limiter.acquire(&key(0), 3);
        assert!(limiter.acquire(&key(1), 3).is_allowed());
        assert_eq!(limiter.tracked_keys(), 2 * counts(&limiter));
        clock.advance(Duration::from_micros(1));
        let _ = limiter.refund(&key(0), 3, Some(charged.receipt()));
        let _ = limiter.reset(&key(1));
        assert_eq!(limiter.tracked_keys(), 0, "{limiter:?}");
    }
}

#[test]
fn what_takes_nothing_stores_nothing() {
    for (limiter, _) in locked(Quota::per_hour(10), 8) {
        for n in 0..100 {
            let _ = limiter.peek(&key(n), 1);
            let _ = limiter.acquire(&key(n), 0);
            let _ = limiter.acquire(&key(n), 11);
            let _ = limiter.hit(&key(n), 0);
            let _ = limiter.refund(&key(n), 5, None);
            let _ = limiter.reset(&key(n));
        }
        assert_eq!((limiter.tracked_keys(), limiter.evictions()), (0, 0));
    }
}
