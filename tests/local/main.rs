//! Promises of the local table, through the public API.

mod block_for;
mod flood_of_another_limit;
mod joint_limits;
mod limiters_of_one_name;
mod limits_in_one_store;
mod operation_for_each_limit;
#[cfg(target_os = "linux")]
mod resident_memory;
mod restarts;
mod table_stress;

use std::{
    panic::catch_unwind,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tower_ratelimit::{ConfigErrorKind, Key, LocalLimiter, Quota, clock::ManualClock};

const THREADS: u64 = 8;

fn limiter(quota: Quota, max_keys: usize, clock: &ManualClock) -> LocalLimiter {
    LocalLimiter::builder(quota)
        .max_keys(max_keys)
        .clock(clock.clone())
        .build()
        .expect("a good quota and size")
}

fn key(n: u64) -> Key {
    Key::from(n)
}

/// Results of all threads, which start at the same time.
fn in_parallel<R: Send>(work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        let spawn = |thread| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        let join = threads.into_iter().map(|thread| thread.join());
        join.map(|result| result.expect("no panic")).collect()
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Without a stored clamp each denial starts the wait over, until the clock has caught up.
#[test]
fn clock_that_steps_back_locks_nobody_out_beyond_one_refill() {
    for step in [61, 3_600, 86_400 * 365 * 10].map(seconds) {
        let clock = ManualClock::new();
        let limiter = limiter(Quota::per_minute(60), 8, &clock);
        let key = key(0);
        assert!(limiter.acquire(&key, 60).is_allowed());

        clock.step_back(step);
        let denied = limiter.acquire(&key, 1);
        assert_eq!(denied.retry_after(), Some(seconds(1)), "{step:?}");
        clock.advance(seconds(1));
        assert!(limiter.acquire(&key, 1).is_allowed(), "{step:?}");
        assert!(limiter.acquire(&key, 1).is_denied(), "{step:?}");
        clock.advance(seconds(60));
        assert!(limiter.acquire(&key, 60).is_allowed(), "{step:?}");
    }
}

/// The step is forgotten only when it is longer than a refill; a shorter one is waited for.
#[test]
fn short_step_back_is_waited_for() {
    let clock = ManualClock::new();
    let limiter = limiter(Quota::per_minute(60), 8, &clock);
    assert!(limiter.acquire(&key(0), 60).is_allowed());
    clock.step_back(seconds(30));
    for _ in 0..30 {
        assert!(limiter.acquire(&key(0), 1).is_denied());
        clock.advance(seconds(1));
    }
    clock.advance(seconds(1));
    assert!(limiter.acquire(&key(0), 1).is_allowed());
}

/// A thread that read the clock a little earlier than another one wrote gives nothing away.
#[test]
fn stale_reading_of_the_clock_gives_nothing_away() {
    let clock = ManualClock::new();
    let limiter = limiter(Quota::per_second(1_000).burst(1), 8, &clock);
    assert!(limiter.acquire(&key(0), 1).is_allowed());
    clock.step_back(Duration::from_millis(900));
    assert!(limiter.acquire(&key(0), 1).is_denied());
    clock.advance(Duration::from_millis(900));
    assert!(limiter.acquire(&key(0), 1).is_denied());
}

#[test]
fn of_1000_parallel_requests_exactly_the_limit_passes() {
    let limiter = limiter(Quota::per_second(100), 8, &ManualClock::new());
    let admitted = in_parallel(|_| {
        let admitted = (0..125).filter(|_| limiter.acquire(&key(0), 1).is_allowed());
        admitted.count()
    });
    assert_eq!(admitted.iter().sum::<usize>(), 100);
}

/// The threads insert the same keys at the same time; a key that was inserted twice would have two
/// limits.
#[test]
fn each_key_has_its_own_limit_in_parallel() {
    for round in 0..50 {
        let limiter = limiter(Quota::per_second(100), 256, &ManualClock::new());
        let keys: Vec<_> = (0..16).map(|n| key(round * 16 + n)).collect();
        let admitted = in_parallel(|_| {
            let mut admitted = vec![0; keys.len()];
            for _ in 0..25 {
                for (key, admitted) in keys.iter().zip(&mut admitted) {
                    *admitted += limiter.acquire(key, 1).charged();
                }
            }
            admitted
        });
        for index in 0..keys.len() {
            let of_key: u64 = admitted.iter().map(|by_thread| by_thread[index]).sum();
            assert_eq!(of_key, 100, "key {index}");
        }
        assert_eq!(limiter.tracked_keys(), keys.len());
        assert_eq!(limiter.evictions(), 0);
    }
}

#[test]
fn clones_share() {
    let limiter = limiter(Quota::per_second(2), 8, &ManualClock::new());
    let handle = limiter.clone();
    assert!(limiter.acquire(&key(0), 2).is_allowed());
    assert!(handle.acquire(&key(0), 1).is_denied());
    let _ = handle.reset(&key(0));
    assert!(limiter.acquire(&key(0), 1).is_allowed());
    assert_eq!(handle.tracked_keys(), 1);
}

/// Admissions minus refunds never exceed the quota, at any moment and for any observer.
#[test]
fn ledger_of_parallel_acquires_and_refunds_balances() {
    const LIMIT: u64 = 50;
    let limiter = limiter(Quota::per_hour(LIMIT), 8, &ManualClock::new());
    let held = AtomicU64::new(0);
    let denied = in_parallel(|thread| {
        let mut denied = 0;
        for round in 0..2_000 {
            let cost = 1 + (round + thread) % 9;
            let decision = limiter.acquire(&key(0), cost);
            if decision.is_denied() {
                denied += 1;
                let looked = limiter.peek(&key(0), 1).remaining().expect("known");
                assert!(looked <= LIMIT);
                continue;
            }
            // Counted after the limiter has granted it, and no longer before it is given back.
            let total = held.fetch_add(cost, Ordering::SeqCst) + cost;
            assert!(total <= LIMIT, "{total}");
            held.fetch_sub(cost, Ordering::SeqCst);
            let _ = limiter.refund(&key(0), cost, Some(decision.receipt()));
        }
        denied
    });
    assert_eq!(
        limiter.peek(&key(0), 1).remaining(),
        Some(LIMIT),
        "{denied:?}"
    );
    assert_eq!(limiter.tracked_keys(), 0);
}

/// A refund can't give what was not taken, so what is admitted is the quota and the refunds.
#[test]
fn refunds_in_parallel_admit_what_they_gave_back() {
    let limiter = limiter(Quota::per_hour(100), 8, &ManualClock::new());
    let _ = limiter.hit(&key(0), 100);
    let counts = in_parallel(|thread| {
        let (mut admitted, mut refunded) = (0, 0);
        for _ in 0..500 {
            if thread.is_multiple_of(2) {
                let before = limiter.refund(&key(0), 0, None).remaining();
                // Far from full, no refund is cut off, whatever the other threads do.
                if before.is_some_and(|remaining| remaining < 50) {
                    let _ = limiter.refund(&key(0), 1, None);
                    refunded += 1;
                }
            } else {
                admitted += limiter.acquire_up_to(&key(0), 3).charged();
            }
            let _ = limiter.peek(&key(0), 1);
        }
        (admitted, refunded)
    });
    let (admitted, refunded) = counts
        .into_iter()
        .fold((0, 0), |sum, (a, r)| (sum.0 + a, sum.1 + r));
    let left = limiter.peek(&key(0), 1).remaining().expect("known");
    assert!(refunded > 0);
    assert_eq!(admitted + left, refunded);
}

#[test]
fn resets_in_parallel_admit_at_most_a_burst_each() {
    const BURST: u64 = 5;
    let limiter = limiter(Quota::per_hour(BURST), 8, &ManualClock::new());
    let counts = in_parallel(|thread| {
        let (mut admitted, mut resets) = (0, 0);
        for round in 0..1_000 {
            if thread == 0 && round % 10 == 0 {
                assert!(limiter.reset(&key(0)).is_allowed());
                resets += 1;
            } else {
                admitted += limiter.acquire(&key(0), 1).charged();
            }
        }
        (admitted, resets)
    });
    let admitted: u64 = counts.iter().map(|(admitted, _)| admitted).sum();
    let resets: u64 = counts.iter().map(|(_, resets)| resets).sum();
    assert!(admitted >= BURST);
    assert!(
        admitted <= BURST * (resets + 1),
        "{admitted}, {resets} resets"
    );
}

#[test]
fn flood_of_fresh_keys_does_not_reset_the_exhausted() {
    for max_keys in [1_000, 50_000] {
        let clock = ManualClock::new();
        let limiter = limiter(Quota::per_hour(2), max_keys, &clock);
        let offenders: Vec<_> = (0..20).map(key).collect();
        for offender in &offenders {
            assert!(limiter.acquire(offender, 2).is_allowed());
        }
        for fresh in 0..2 * max_keys as u64 {
            assert!(limiter.acquire(&key(1_000_000 + fresh), 1).is_allowed());
        }
        assert!(limiter.evictions() > 0, "the flood did not fill the table");
        for offender in &offenders {
            assert!(limiter.acquire(offender, 1).is_denied(), "{max_keys}");
        }
    }
}

#[test]
fn max_keys_live_keys_are_hardly_ever_evicted() {
    // At about 1 in 27,000, 40 of 400,000 by chance is a matter of 1 run in ten million.
    let max_keys = 400_000;
    let limiter = limiter(Quota::per_hour(10), max_keys, &ManualClock::new());
    for n in 0..max_keys as u64 {
        let _ = limiter.acquire(&key(n), 1);
    }
    let evictions = limiter.evictions();
    assert!(evictions < max_keys as u64 / 10_000, "{evictions}");
    assert_eq!(limiter.tracked_keys() as u64 + evictions, max_keys as u64);
}

#[test]
fn unique_keys_without_end_stay_within_the_table() {
    let max_keys = 1_000;
    // 30 bytes a key are 15 entries of 16 bytes for 8 keys, in whole buckets of four.
    let capacity = (max_keys * 15_usize).div_ceil(8).next_multiple_of(4);
    let limiter = limiter(Quota::per_hour(10), max_keys, &ManualClock::new());
    for n in 0..500_000 {
        assert!(limiter.acquire(&key(n), 1).is_allowed());
        if n % 50_000 == 0 {
            assert!(limiter.tracked_keys() <= capacity);
        }
    }
    assert_eq!(limiter.tracked_keys(), capacity);
    assert_eq!(limiter.evictions(), 500_000 - capacity as u64);
}

#[test]
fn entries_free_themselves_with_time() {
    let clock = ManualClock::new();
    let limiter = limiter(Quota::per_second(10), 1_000, &clock);
    for n in 0..50 {
        assert!(limiter.acquire(&key(n), 1 + n % 2).is_allowed());
    }
    assert_eq!(limiter.tracked_keys(), 50);
    clock.advance(Duration::from_micros(99_999));
    assert_eq!(limiter.tracked_keys(), 50);
    clock.advance(Duration::from_micros(1));
    assert_eq!(limiter.tracked_keys(), 25);
    clock.advance(Duration::from_millis(100));
    assert_eq!(limiter.tracked_keys(), 0);

    // Free entries are used again, and none is evicted.
    for round in 1..100 {
        for n in 0..50 {
            assert!(limiter.acquire(&key(round * 50 + n), 1).is_allowed());
        }
        clock.advance(Duration::from_millis(100));
    }
    assert_eq!(limiter.evictions(), 0);
}

#[test]
fn reset_and_full_refund_free_the_entry() {
    let limiter = limiter(Quota::per_second(10), 8, &ManualClock::new());
    let decision = limiter.acquire(&key(0), 3);
    assert!(limiter.acquire(&key(1), 3).is_allowed());
    assert_eq!(limiter.tracked_keys(), 2);
    let refunded = limiter.refund(&key(0), 3, Some(decision.receipt()));
    assert_eq!(refunded.remaining(), Some(10));
    assert_eq!(limiter.reset(&key(1)).remaining(), Some(10));
    assert_eq!(limiter.tracked_keys(), 0);
}

#[test]
fn smallest_table_works() {
    let limiter = limiter(Quota::per_second(2), 1, &ManualClock::new());
    assert!(limiter.acquire(&key(0), 2).is_allowed());
    assert!(limiter.acquire(&key(0), 1).is_denied());
}

/// `tests/algorithms/quota.rs` has the invalid quotas.
#[test]
fn quota_that_makes_no_sense_is_refused_with_its_own_error() {
    let bad = Quota::per_day(1).burst(10_000);
    let error = bad.check().expect_err("27 years");
    assert_eq!(LocalLimiter::try_new(bad).err(), Some(error.clone()));
    let built = LocalLimiter::builder(bad).build();
    assert_eq!(built.err(), Some(error.clone()));
    let panic = catch_unwind(|| LocalLimiter::new(bad)).expect_err("27 years");
    assert_eq!(panic.downcast_ref(), Some(&error.to_string()));
}

#[test]
fn table_of_no_keys_or_of_too_many_is_a_named_error() {
    // On a 32-bit machine even the largest of them is within bounds, but does not fit in memory.
    let above = usize::try_from((1_u64 << 32) + 1).unwrap_or(usize::MAX);
    for max_keys in [0, above, usize::MAX] {
        let error = LocalLimiter::builder(Quota::per_second(1))
            .max_keys(max_keys)
            .build()
            .expect_err("no such table");
        assert_eq!(error.kind(), ConfigErrorKind::MaxKeys);
        assert!(error.to_string().contains(&max_keys.to_string()), "{error}");
    }
}

#[test]
fn keys_between_two_steps_of_a_refill_are_tracked() {
    let clock = ManualClock::new();
    let quota = Quota::per_minute(60).refill_every(seconds(60));
    let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build();
    let limiter = limiter.expect("a good quota");
    assert!(limiter.acquire(&Key::from("alice"), 1).is_allowed());
    clock.advance(seconds(59));
    assert_eq!(limiter.tracked_keys(), 1);
    clock.advance(seconds(1));
    assert_eq!(limiter.tracked_keys(), 0);
}

/// The limiter of one bucket keeps blocks in a table of their own. Where as many are blocked as there is room for, the
/// next one still fits.
#[test]
fn blocks_by_hand_end_and_are_bounded() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_second(10))
        .max_keys(100)
        .clock(clock.clone())
        .build()
        .expect("a good quota");
    let hour = Duration::from_secs(3_600);
    for key in 0..1_000_u64 {
        assert!(limiter.block(&key.into(), hour).unwrap().is_blocked());
    }
    let blocked = (0..1_000_u64).filter(|key| limiter.peek(&(*key).into(), 1).is_blocked());
    assert!((100..200).contains(&blocked.count()));
    let last = Key::from(999_u64);
    assert!(limiter.acquire(&last, 0).is_denied(), "whatever it costs");
    assert!(limiter.block(&last, Duration::ZERO).unwrap().is_allowed());
    assert!(limiter.acquire(&last, 1).is_allowed());
    clock.advance(hour);
    let blocked = (0..1_000_u64).filter(|key| limiter.peek(&(*key).into(), 1).is_blocked());
    assert_eq!(blocked.count(), 0);
}
