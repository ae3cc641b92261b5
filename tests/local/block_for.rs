//! Blocks in a store: each holds until its end, whatever ended before it.

use proptest::{collection::vec, prelude::*};
use tower_ratelimit::{
    Decision, Key, LocalLimiter, LocalStore, Quota, clock::ManualClock,
    limiter::LocalLimiterBuilder,
};

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

/// Has a key blocked for breaking its limit, and returns whether the block holds.
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
    let mut lost = [0; 6];
    for (crowd, lost) in lost.iter_mut().enumerate() {
        fill_half(&lenient, crowd as u64);
        for number in 0..500 {
            *lost += u64::from(!provoke(&strict, &key(number)));
            clock.advance(seconds(3));
        }
        clock.advance(seconds(3_600));
    }
    assert_eq!((lost, store.evictions()), ([0; 6], 0), "lost of 500 each");
}

/// A second entry of the same key would come to light once the place of the first is taken.
#[test]
fn block_that_an_operator_ended_does_not_come_back() {
    let clock = ManualClock::new();
    let (_, lenient, strict) = limiters(&clock, 60);
    let mut back = 0;
    for number in 0..500 {
        if number % 30 == 0 {
            fill_half(&lenient, number);
        }
        let key_here = key(number % 128);
        let _ = provoke(&strict, &key_here);
        let _ = strict.block(&key_here, seconds(0));
        // Others take the place that was given back.
        for passing in 0..100 {
            let _ = strict.block(&key(10_000 + 100 * number + passing), seconds(1));
        }
        back += u64::from(is_blocked(&strict, &key_here));
        clock.advance(seconds(70));
    }
    assert_eq!(back, 0, "of 500 blocks");
}

/// Limits that block for longer and shorter than they remember, and seldom all the time.
fn blocking() -> [LocalLimiterBuilder; 3] {
    [
        LocalLimiter::builder(Quota::per_second(1)).block_for(seconds(2)),
        LocalLimiter::builder(Quota::per_second(2).leaky_bucket(1)).block_for(seconds(4)),
        LocalLimiter::builder(Quota::per_minute(2).fixed_window()).block_for(seconds(1)),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    /// A number of requests of one key.
    Request(usize, u64, u64),
    /// A block by hand, or its end.
    Block(usize, u64, u64),
    Reset(usize, u64),
    /// A number of new keys, which stay for seconds or for an hour.
    Crowd(usize, u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let limit = || 0..blocking().len();
    let wait = prop_oneof![6 => 0_u64..8, 2 => 5_u64..100, 1 => Just(3_600), 1 => Just(7_200)];
    prop_oneof![
        24 => (limit(), 0..100_u64, 1..6_u64).prop_map(|(at, key, times)| Step::Request(at, key, times)),
        1 => (limit(), 0..100_u64, 0..6_u64).prop_map(|(at, key, time)| Step::Block(at, key, time)),
        1 => (limit(), 0..100_u64).prop_map(|(at, key)| Step::Reset(at, key)),
        4 => (0..2_usize, 1..60_u64).prop_map(|(kind, keys)| Step::Crowd(kind, keys)),
        20 => wait.prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    /// Hundreds of keys among neighbours that come and go: each decides as in a table of its own.
    #[test]
    fn crowded_store_decides_as_tables_of_their_own(steps in vec(step(), 1..2_000)) {
        let clock = ManualClock::new();
        let builder = LocalStore::builder().max_keys(KEYS as usize);
        let store = builder.clock(clock.clone()).build().unwrap();
        let own = blocking().map(|one| one.clock(clock.clone()).build().unwrap());
        let stored = blocking().map(|one| one.build_in(&store).unwrap());
        let crowds = [Quota::per_second(1), Quota::per_hour(1)]
            .map(|quota| LocalLimiter::builder(quota).build_in(&store).unwrap());
        let mut fresh = 1_000_000;
        for step in steps {
            let both = |request: &dyn Fn(&LocalLimiter) -> Decision, at: usize| {
                [&own[at], &stored[at]].map(request)
            };
            let answers = match step {
                Step::Request(at, number, times) => {
                    let request = |one: &LocalLimiter| one.acquire(&key(number), 1);
                    for _ in 1..times {
                        let [own, stored] = both(&request, at);
                        prop_assert_eq!(stored, own);
                    }
                    both(&request, at)
                }
                Step::Block(at, number, time) => both(&|one| one.block(&key(number), seconds(time)).unwrap(), at),
                Step::Reset(at, number) => both(&|one| one.reset(&key(number)), at),
                Step::Crowd(kind, keys) => {
                    // Half of the room at most, so that nobody has to give way.
                    for _ in 0..keys.min((KEYS / 2).saturating_sub(store.tracked_keys() as u64)) {
                        let _ = crowds[kind].acquire(&key(fresh), 1);
                        fresh += 1;
                    }
                    continue;
                }
                Step::Wait(time) => {
                    clock.advance(seconds(time));
                    continue;
                }
            };
            let [own, stored] = answers;
            prop_assert_eq!(stored, own);
        }
        prop_assert_eq!(store.evictions(), 0);
    }
}
