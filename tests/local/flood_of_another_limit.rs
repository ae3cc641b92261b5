//! Shares of a store: a flood of one limit's keys leaves another limit's counts alone.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use tower_ratelimit::{
    LocalLimiter, LocalStore, Quota, clock::ManualClock, limiter::LocalLimiterBuilder,
};

use super::{key, seconds};

const MAX_KEYS: u64 = 4_000;

fn store(clock: &ManualClock) -> LocalStore {
    let builder = LocalStore::builder().max_keys(MAX_KEYS as usize);
    builder.clock(clock.clone()).build().expect("a good size")
}

fn built(builder: LocalLimiterBuilder, store: &LocalStore) -> LocalLimiter {
    builder.build_in(store).expect("a good quota")
}

fn stored(quota: Quota, store: &LocalStore) -> LocalLimiter {
    built(LocalLimiter::builder(quota), store)
}

/// One unit of 1,000 a day takes 86 seconds to come back, five of 5 a minute take 60.
#[test]
fn flood_of_fresh_keys_evicts_no_offender_of_another_limit() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let strict = stored(Quota::per_minute(5), &store);
    let daily = stored(Quota::per_day(1_000), &store);
    for offender in 0..20 {
        assert!(strict.acquire(&key(offender), 5).is_allowed());
    }
    for fresh in 0..20_000 {
        assert!(daily.acquire(&key(1_000 + fresh), 1).is_allowed());
    }
    let free = (0..20).filter(|offender| strict.peek(&key(*offender), 1).is_allowed());
    assert_eq!(free.count(), 0, "of 20 offenders");
    assert!(store.evictions() > 10_000);
    assert!(store.tracked_keys() <= 2 * MAX_KEYS as usize);
}

/// Ten times as many keys as the store has room for, of eight limits in turns and all at once.
#[test]
fn flood_resets_none_of_a_thousand_offenders() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let strict: Vec<_> = (0..7)
        .map(|_| stored(Quota::per_minute(5), &store))
        .collect();
    let lenient = stored(Quota::per_day(1_000), &store);
    let offenders = || (0..1_000).map(|number| (&strict[number % 7], key(number as u64)));
    for (limiter, key) in offenders() {
        assert!(limiter.acquire(&key, 5).is_allowed());
    }
    for fresh in 0..10 * MAX_KEYS {
        assert!(lenient.acquire(&key(10_000 + fresh), 1).is_allowed());
    }
    let lost = offenders().filter(|(limiter, key)| limiter.peek(key, 1).is_allowed());
    assert_eq!(lost.count(), 0, "of 1,000 offenders");
}

#[test]
fn lone_limit_has_all_of_the_store() {
    let clock = ManualClock::new();
    let store = store(&clock);
    drop(
        (0..100)
            .map(|_| stored(Quota::per_day(9), &store))
            .collect::<Vec<_>>(),
    );
    let lone = stored(Quota::per_day(1_000), &store);
    for number in 0..MAX_KEYS {
        assert!(lone.acquire(&key(number), 1).is_allowed());
    }
    // Fewer than 1 in 10,000 on average.
    assert!(store.evictions() <= 5, "{} evicted", store.evictions());
    assert_eq!(store.tracked_keys() as u64, MAX_KEYS - store.evictions());
}

/// Their counts stay as long as nobody needs the room, and give way to whoever does.
#[test]
fn limit_that_was_dropped_keeps_no_share() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let dropped = stored(Quota::per_day(5).named("all"), &store);
    for number in 0..2 * MAX_KEYS {
        let _ = dropped.acquire(&key(number), 5);
    }
    drop(dropped);
    let full = store.tracked_keys();
    let other = stored(Quota::per_minute(5), &store);
    let evicted = store.evictions();
    for number in 0..MAX_KEYS / 4 {
        assert!(other.acquire(&key(number), 5).is_allowed());
    }
    let lost = (0..MAX_KEYS / 4).filter(|number| other.peek(&key(*number), 1).is_allowed());
    assert_eq!(lost.count(), 0, "of {}", MAX_KEYS / 4);
    assert!(store.evictions() > evicted);
    assert!(store.tracked_keys() <= full + MAX_KEYS as usize / 4);
}

/// Entries that a dropped limiter leaves belong to another one of its name, and count towards its share.
#[test]
fn limiter_of_a_name_goes_on_with_the_counts_of_the_last() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let named = |limit| LocalLimiter::builder(Quota::per_day(limit)).name("api");
    let first = built(named(5), &store);
    for number in 0..1_000 {
        assert!(first.acquire(&key(number), 5).is_allowed());
    }
    drop(first);
    let second = built(named(5), &store);
    for number in 0..1_000 {
        assert!(second.acquire(&key(number), 1).is_denied());
    }
    let flood = stored(Quota::per_day(1_000), &store);
    for number in 0..20_000 {
        assert!(flood.acquire(&key(number), 999).is_allowed());
    }
    let lost = (0..1_000).filter(|number| second.peek(&key(*number), 1).is_allowed());
    assert_eq!(lost.count(), 0, "of 1,000");
}

#[derive(Debug, Clone)]
enum Step {
    /// A number of fresh keys of a limit; each uses a share of it in hundredths.
    Flood(usize, u64, u64),
    /// A few keys of the limit that is watched use all of it.
    Offend(u64),
    Drop(usize),
    /// Until the offenders of the limit that is watched have their units back.
    Wait,
}

const QUOTAS: [Quota; 4] = [
    Quota::per_minute(5),
    Quota::per_hour(100),
    Quota::per_day(1_000),
    Quota::per_hour(5).fixed_window(),
];

fn step() -> impl Strategy<Value = Step> {
    let limit = || 0..QUOTAS.len();
    prop_oneof![
        4 => (limit(), 1_u64..3_000, 1_u64..100).prop_map(|(l, keys, used)| Step::Flood(l, keys, used)),
        4 => (1_u64..40).prop_map(Step::Offend),
        1 => limit().prop_map(Step::Drop),
        1 => Just(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    /// Whatever floods, comes and goes: a limit that stays below its share loses next to no offender.
    #[test]
    fn limit_below_its_share_loses_nobody(steps in vec(step(), 1..30)) {
        let clock = ManualClock::new();
        let store = store(&clock);
        let watched = stored(Quota::per_minute(3), &store);
        let mut others = QUOTAS.map(|quota| stored(quota, &store));
        let mut offenders = BTreeSet::new();
        let mut fresh = 0;
        for step in steps {
            match step {
                Step::Flood(at, keys, used) => {
                    let cost = (QUOTAS[at].limit() * used / 100).max(1);
                    for number in fresh..fresh + keys {
                        let _ = others[at].acquire(&key(number), cost);
                    }
                    fresh += keys;
                }
                Step::Offend(keys) => {
                    for number in fresh..fresh + keys {
                        // The table can be full of limits within their shares where a key may live.
                        if offenders.len() < 400 && watched.acquire(&key(number), 3).is_allowed()
                            && watched.peek(&key(number), 1).is_denied() {
                            offenders.insert(number);
                        }
                    }
                    fresh += keys;
                }
                Step::Drop(at) => others[at] = stored(QUOTAS[at], &store),
                Step::Wait => {
                    clock.advance(seconds(60));
                    offenders.clear();
                }
            }
            let lost = offenders.iter().filter(|number| watched.peek(&key(**number), 1).is_allowed());
            let lost = lost.count();
            // Now and then all eight places of a key are of limits within their shares.
            prop_assert!(lost <= 1 + offenders.len() / 50, "{lost} of {}", offenders.len());
            prop_assert!(store.tracked_keys() as u64 <= 2 * MAX_KEYS);
        }
    }
}
