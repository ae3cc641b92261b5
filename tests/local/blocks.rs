//! Blocks in a store: each holds until its end, whatever ended before it.

use tower_ratelimit::{Key, LocalLimiter, LocalStore, ManualClock, Quota};

use super::{key, seconds};

const KEYS: u64 = 512;

/// A store of 512 keys with two limiters: one whose keys remember for half an hour what they used,
/// and one that blocks for this long whoever comes twice in a second.
fn limiters(clock: &ManualClock, block: u64) -> (LocalStore, LocalLimiter, LocalLimiter) {
    let builder = LocalStore::builder().max_keys(KEYS as usize);
    let store = builder.clock(clock.clone()).build().expect("a good size");
    let lenient = LocalLimiter::builder(Quota::per_hour(2));
    let strict = LocalLimiter::builder(Quota::per_second(1)).block_for(seconds(block));
    let [lenient, strict] = [lenient, strict].map(|builder| builder.build_in(&store));
    (store, lenient.expect("good"), strict.expect("good"))
}

/// Fills half of the room with neighbours that no call has named before.
fn fill_half(limiter: &LocalLimiter, crowd: u64) {
    for number in 0..KEYS / 2 {
        let neighbour = key(1_000_000 * (1 + crowd) + number);
        assert!(limiter.acquire(&neighbour, 1).is_allowed());
    }
}

fn is_blocked(limiter: &LocalLimiter, key: &Key) -> bool {
    limiter.peek(key, 1).is_blocked()
}

/// Has a key blocked for breaking its limit, and says whether the block holds.
fn provoke(strict: &LocalLimiter, key: &Key) -> bool {
    let _ = strict.acquire_up_to(key, 9);
    let denied = strict.acquire(key, 1);
    denied.is_blocked() && is_blocked(strict, key)
}

/// An ended block stays in the table until somebody needs its place: the next block of the same key
/// has to go there, not where there is more room by now.
#[test]
fn later_block_of_a_key_holds() {
    let clock = ManualClock::new();
    let (store, lenient, strict) = limiters(&clock, 2);
    let mut lost = 0;
    for number in 0..4_000_u64 {
        // In the half hour in which the neighbours leave, 600 blocks come and end.
        if number % 600 == 0 {
            fill_half(&lenient, number);
        }
        lost += u64::from(!provoke(&strict, &key(number % 128)));
        clock.advance(seconds(3));
    }
    assert_eq!((lost, store.evictions()), (0, 0), "lost of 4,000 blocks");
}

#[test]
fn second_block_after_a_quiet_hour_holds() {
    let clock = ManualClock::new();
    let (store, lenient, strict) = limiters(&clock, 2);
    let mut lost = [0; 2];
    for (crowd, lost) in lost.iter_mut().enumerate() {
        fill_half(&lenient, crowd as u64);
        for number in 0..500 {
            *lost += u64::from(!provoke(&strict, &key(number)));
            clock.advance(seconds(3));
        }
        clock.advance(seconds(3_600));
    }
    assert_eq!((lost, store.evictions()), ([0; 2], 0), "lost of 500 each");
}

/// A second entry of the same key would come to light once the place of the first is taken.
#[test]
fn block_that_an_operator_ended_does_not_come_back() {
    let clock = ManualClock::new();
    let (store, lenient, strict) = limiters(&clock, 60);
    let mut back = 0;
    for number in 0..1_000 {
        if number % 30 == 0 {
            fill_half(&lenient, number);
        }
        let key_here = key(number % 128);
        let _ = provoke(&strict, &key_here);
        let _ = strict.block(&key_here, seconds(0));
        // Others take the place that was given back.
        for passing in 0..60 {
            let _ = strict.block(&key(10_000 + 60 * number + passing), seconds(1));
        }
        back += u64::from(is_blocked(&strict, &key_here));
        clock.advance(seconds(70));
    }
    assert_eq!((back, store.evictions()), (0, 0), "of 1,000 blocks");
}
