//! The local table under threads that fill it beyond what it holds, checked by their decisions.

use std::time::Duration;

use tower_ratelimit::{LocalLimiter, Quota, clock::ManualClock};

use super::{THREADS, in_parallel, key, limiter};

/// Numbers that look random and are the same in each run (a Weyl sequence, mixed as in SplitMix64).
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    (1_u64..).map(move |n| {
        let mixed = seed.wrapping_add(n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 32)
    })
}

/// Admitted requests of all lists, key by key.
fn summed(by_thread: &[Vec<u64>]) -> Vec<u64> {
    let keys = by_thread[0].len();
    let of_key = |key: usize| by_thread.iter().map(|admitted| admitted[key]).sum();
    (0..keys).map(of_key).collect()
}

/// No key is evicted, and each gets more requests than it has units: so it gets its burst, and after
/// each step of the clock what came back in it.
#[test]
fn without_evictions_every_key_gets_exactly_its_quota() {
    const KEYS: u64 = 32;
    let clock = ManualClock::new();
    let limiter = limiter(Quota::per_second(10).burst(20), 1_000, &clock);
    for round in 0..30 {
        let admitted = in_parallel(|thread| {
            let mut admitted = vec![0; KEYS as usize];
            for n in numbers(round * THREADS + thread).take(KEYS as usize * 12) {
                let n = n % KEYS;
                let _ = limiter.peek(&key(n), 1);
                admitted[n as usize] += limiter.acquire(&key(n), 1).charged();
            }
            // The numbers may have passed over some key.
            for n in 0..KEYS {
                admitted[n as usize] += limiter.acquire_up_to(&key(n), 20).charged();
            }
            admitted
        });
        let quota = if round == 0 { 20 } else { 3 };
        assert_eq!(summed(&admitted), [quota; KEYS as usize], "round {round}");
        clock.advance(Duration::from_millis(300));
    }
    assert_eq!(limiter.evictions(), 0);
}

/// All threads use the same new keys in the same order. Whoever is ahead has to insert, which
/// takes longer than to find, so the others catch up and want to insert the same key or to claim
/// the same entry.
#[test]
fn every_key_that_many_insert_at_once_has_one_limit() {
    const KEYS: u64 = 24;
    let clock = ManualClock::new();
    let quota = Quota::per_hour(5);
    let tables: Vec<_> = (0..500).map(|_| limiter(quota, 64, &clock)).collect();
    let admitted = in_parallel(|_| {
        let request = |limiter: &LocalLimiter, n| limiter.acquire(&key(n), 1).charged();
        let of_table = |limiter| (0..KEYS).map(move |n| request(limiter, n));
        tables.iter().flat_map(of_table).collect()
    });
    let wrong = summed(&admitted).into_iter().find(|of_key| *of_key != 5);
    assert_eq!(wrong, None);
    for limiter in tables {
        assert_eq!(limiter.evictions(), 0);
        assert_eq!(limiter.tracked_keys() as u64, KEYS);
    }
}

/// Fresh keys from all sides, many more than fit. They have less to forget than the exhausted, so
/// these never get more than what comes back to them.
#[test]
fn flood_from_all_sides_gives_the_exhausted_nothing() {
    const OFFENDERS: u64 = 12;
    let clock = ManualClock::new();
    let limiter = limiter(Quota::per_second(1).burst(3), 64, &clock);
    for round in 0..20 {
        let admitted = in_parallel(|_| {
            let request =
                |n| limiter.acquire(&key(n), 1).charged() + limiter.hit(&key(n), 3).charged();
            (0..OFFENDERS).map(request).collect()
        });
        let quota = if round == 0 { 3 } else { 1 };
        assert_eq!(summed(&admitted), [quota; OFFENDERS as usize], "{round}");

        in_parallel(|thread| {
            for n in 0..200 {
                let fresh = 1_000 + (round * THREADS + thread) * 200 + n;
                assert!(limiter.acquire(&key(fresh), 1).is_allowed());
                assert!(limiter.acquire(&key(n % OFFENDERS), 1).is_denied());
            }
        });
        clock.advance(Duration::from_secs(1));
    }
    assert!(limiter.evictions() > 10_000, "{}", limiter.evictions());
}

/// Eight entries for 24 keys: most calls find their key evicted. Each time a key comes back it
/// starts anew; its decisions show this, and no more starts are seen than were made room
/// for, nor fewer.
#[test]
fn every_fresh_start_is_an_eviction_or_still_there() {
    const BURST: u64 = 6;
    for round in 0..20 {
        let limiter = limiter(Quota::per_hour(BURST), 1, &ManualClock::new());
        let counts = in_parallel(|thread| {
            let (mut starts, mut admitted) = (0, 0);
            for n in numbers(round * THREADS + thread).take(500) {
                let decision = limiter.acquire(&key(n % 24), 1);
                let first = decision.remaining() == Some(BURST - 1);
                starts += u64::from(decision.is_allowed() && first);
                admitted += decision.charged();
                let looked = limiter.peek(&key(n / 24 % 24), 1);
                assert!(looked.remaining().is_some_and(|left| left <= BURST));
            }
            (starts, admitted)
        });
        let starts: u64 = counts.iter().map(|(starts, _)| starts).sum();
        let admitted: u64 = counts.iter().map(|(_, admitted)| admitted).sum();
        let lives = limiter.evictions() + limiter.tracked_keys() as u64;
        assert_eq!(starts, lives);
        assert!(admitted <= lives * BURST, "{admitted} in {lives} lives");
        assert!(limiter.tracked_keys() <= 8);
        assert!(limiter.evictions() > 0);
    }
}
