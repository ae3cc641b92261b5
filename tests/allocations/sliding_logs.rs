//! The memory of all sliding logs together stays bounded.

use std::time::Duration;

use tower_ratelimit::{Key, LocalLimiter, Quota, clock::ManualClock};

fn limiter(max_log_times: usize) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_hour(10).sliding_log())
        .max_keys(100_000)
        .max_log_times(max_log_times)
        .clock(clock.clone())
        .build()
        .expect("a good quota");
    (limiter, clock)
}

#[test]
fn logs_with_little_to_forget_give_way_to_new_ones() {
    let (limiter, clock) = limiter(20_000);
    let offenders: Vec<Key> = (0..50_u64).map(|n| Key::tuple([n.into()])).collect();
    for offender in &offenders {
        for _ in 0..10 {
            clock.advance(Duration::from_micros(1));
            assert!(limiter.acquire(offender, 1).is_allowed());
        }
    }
    for key in 0..60_000_u64 {
        clock.advance(Duration::from_micros(1));
        assert!(limiter.acquire(&key.into(), 1).is_allowed());
    }
    // 500 times of the offenders, and 19,500 others.
    let tracked = limiter.tracked_keys();
    assert!((19_000..19_600).contains(&tracked), "{tracked} logs");
    assert!(limiter.evictions() > 40_000);
    for offender in &offenders {
        assert!(limiter.acquire(offender, 1).is_denied());
    }
}

#[test]
fn even_exhausted_logs_are_bounded() {
    let (limiter, clock) = limiter(1_000);
    for key in 0..5_000_u64 {
        for _ in 0..10 {
            clock.advance(Duration::from_micros(1));
            assert!(limiter.acquire(&key.into(), 1).is_allowed());
        }
    }
    let tracked = limiter.tracked_keys();
    assert!(tracked <= 400, "{tracked} logs of 10 times");
}

#[test]
fn within_the_bound_nothing_is_lost() {
    let (limiter, clock) = limiter(24_000);
    for key in 0..20_000_u64 {
        assert!(limiter.acquire(&key.into(), 1).is_allowed());
    }
    assert_eq!((limiter.tracked_keys(), limiter.evictions()), (20_000, 0));
    // An entry that has left its window makes room, and no decision depends on it.
    clock.advance(Duration::from_secs(3_600));
    for key in 0..20_000_u64 {
        assert!(limiter.acquire(&Key::tuple([key.into()]), 1).is_allowed());
    }
    assert_eq!((limiter.tracked_keys(), limiter.evictions()), (20_000, 0));
}

/// A log that was long once gives its room back: what is bounded is memory, not the times in it.
#[test]
fn logs_hold_no_more_memory_than_is_promised() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_hour(1_000).sliding_log())
        .max_keys(10_000)
        .max_log_times(20_000)
        .clock(clock.clone())
        .build()
        .expect("a good quota");
    // A part of the table is made when its first key comes.
    for key in 0..600_u64 {
        let _ = limiter.acquire(&key.into(), 1);
        limiter.reset(&key.into());
    }
    let memory = allocation_counter::measure(|| {
        for key in 0..600_u64 {
            for _ in 0..1_000 {
                clock.advance(Duration::from_micros(1));
                assert!(limiter.acquire(&key.into(), 1).is_allowed());
            }
            // All of it leaves, and a single time comes after it.
            clock.advance(Duration::from_secs(3_600));
            assert!(limiter.acquire(&key.into(), 1).is_allowed());
        }
    });
    // 16 bytes a time, about 100 more a log, and the growth of the one that is filled.
    let promised = 16 * 20_000 + 100 * 600 + 3 * 16 * 1_000;
    let held = memory.bytes_max;
    assert!(
        held <= promised,
        "{held} bytes where {promised} are promised"
    );
}

/// Requests that are taken back one after another, but never the newest, leave nothing.
#[test]
fn refunds_leave_nothing_in_a_log() {
    let (limiter, clock) = limiter(1_000_000);
    let alice = Key::from("alice");
    let mut open = limiter.acquire(&alice, 1).receipt();
    let memory = allocation_counter::measure(|| {
        for _ in 0..10_000 {
            clock.advance(Duration::from_micros(1));
            let next = limiter.acquire(&alice, 1);
            assert!(next.is_allowed());
            limiter.refund(&alice, 1, Some(open.clone()));
            open = next.receipt();
        }
    });
    assert!(
        memory.bytes_current < 2_000,
        "{} bytes",
        memory.bytes_current
    );
}
