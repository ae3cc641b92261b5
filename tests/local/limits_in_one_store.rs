//! Promises of a store: limits that share a table decide as with tables of their own.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tower_ratelimit::{
    ConfigErrorKind, Decision, Key, Limiter, LocalLimiter, LocalStore, Quota,
    clock::{ManualClock, Timestamp},
    decision::{Op, Receipt},
    limiter::{LocalLimiterBuilder, Pending, RequestQuota, Tier},
};

use super::{in_parallel, key, seconds};

fn store(max_keys: usize, clock: &ManualClock) -> LocalStore {
    let builder = LocalStore::builder().max_keys(max_keys);
    builder.clock(clock.clone()).build().expect("a good size")
}

fn stored(quota: Quota, store: &LocalStore) -> LocalLimiter {
    let built = LocalLimiter::builder(quota).build_in(store);
    built.expect("a good quota")
}

/// Limits of all shapes in a store, each with a name.
fn named_in(store: &LocalStore) -> Vec<LocalLimiter> {
    let shapes = shapes().into_iter().enumerate();
    let named = shapes.map(|(number, make)| make().name(format!("limit {number}")));
    let built = named.map(|builder| builder.build_in(store));
    built
        .map(|limiter| limiter.expect("a good quota"))
        .collect()
}

/// Limits of every shape.
/// Lone quotas are named, since one without a name has that of its limiter in a store.
fn shapes() -> Vec<fn() -> LocalLimiterBuilder> {
    vec![
        || LocalLimiter::builder(Quota::per_minute(6).burst(4).named("default")),
        || {
            LocalLimiter::builder(Quota::per_minute(6).burst(4).named("default"))
                .block_for(seconds(90))
        },
        || LocalLimiter::builder(Quota::per_minute(5).leaky_bucket(3).named("default")),
        || {
            LocalLimiter::builder(
                Quota::per_minute(3)
                    .refill_every(seconds(20))
                    .named("default"),
            )
        },
        || {
            LocalLimiter::builder(Quota::per_minute(5).fixed_window().named("default"))
                .block_for(seconds(30))
        },
        || {
            LocalLimiter::builder(
                Quota::per_minute(5)
                    .sliding_window()
                    .slices(3)
                    .named("default"),
            )
        },
        || LocalLimiter::builder(Quota::per_minute(5).sliding_log().soft(40).named("default")),
        || LocalLimiter::builder([Quota::per_second(2), Quota::per_hour(9).sliding_log()]),
        || {
            LocalLimiter::builder([Quota::per_minute(4), Quota::per_hour(20).fixed_window()])
                .tier(
                    "pro",
                    [Quota::per_minute(9), Quota::per_day(90).sliding_window()],
                )
                .block_for(seconds(45))
        },
        || {
            LocalLimiter::builder(Quota::per_minute(4).fixed_window().named("default"))
                .tier("pro", Quota::per_minute(7).fixed_window().named("default"))
        },
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Request {
        limit: usize,
        key: u64,
        tier: u8,
        op: u8,
        cost: u64,
    },
    /// Gives back, or settles at a cost, by the receipt of one of the last charges.
    Correct {
        charge: usize,
        cost: u64,
        settles: bool,
    },
    SetQuota {
        limit: usize,
        to: u64,
    },
    /// The store is saved, and restored for another number of keys.
    Restart(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let limits = shapes().len();
    let request = (0..limits, 0..3_u64, 0..4_u8, 0..9_u8, 0..4_u64).prop_map(
        |(limit, key, tier, op, cost)| Step::Request {
            limit,
            key,
            tier,
            op,
            cost,
        },
    );
    let correct =
        (0..4_usize, 0..4_u64, any::<bool>()).prop_map(|(charge, cost, settles)| Step::Correct {
            charge,
            cost,
            settles,
        });
    let set = (0..limits, 1..9_u64).prop_map(|(limit, to)| Step::SetQuota { limit, to });
    let step = prop_oneof![
        3 => (0..40_000_000_u64).prop_map(Step::Wait),
        12 => request,
        3 => correct,
        1 => set,
        1 => (1_000..40_000_usize).prop_map(Step::Restart),
    ];
    vec(step, 1..120)
}

fn answer(limiter: &LocalLimiter, tier: &Tier, key: &Key, op: Op) -> Option<Decision> {
    let Pending::Ready(answer) = testkit::apply_in(limiter, tier, key, op);
    answer.ok()
}

fn op_of(op: u8, cost: u64) -> Op {
    match op {
        0..=2 => Op::Acquire(cost),
        3 => Op::Reserve(cost),
        4 => Op::AcquireUpTo(cost),
        5 => Op::Peek(cost),
        6 => Op::Hit(cost),
        7 if cost == 0 => Op::Reset,
        7 => Op::Deny(cost),
        _ if cost == 0 => Op::Refund(1, None),
        _ => Op::Block(seconds(20 * (cost - 1))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Each limit of a store decides as it would with a table of its own.
    #[test]
    fn limits_of_one_store_decide_as_with_tables_of_their_own(steps in steps()) {
        let clock = ManualClock::new();
        let mut shared = store(1_000, &clock);
        let own: Vec<_> = shapes().iter().map(|make| make().clock(clock.clone()).build().unwrap()).collect();
        let mut stored = named_in(&shared);
        let mut quotas = vec![None; own.len()];
        let mut charges: Vec<(usize, Tier, Key, Receipt)> = Vec::new();
        let mut logs = vec![false; own.len()];
        for step in steps {
            match step {
                Step::Wait(micros) => clock.advance(Duration::from_micros(micros)),
                Step::Request { limit, key: number, tier, op, cost } => {
                    let tier = match tier {
                        2 => Tier::named("pro"),
                        3 => RequestQuota::limit(1 + number * 5).into(),
                        _ => Tier::DEFAULT,
                    };
                    let op = op_of(op, cost);
                    let decided = answer(&own[limit], &tier, &key(number), op.clone());
                    prop_assert_eq!(&answer(&stored[limit], &tier, &key(number), op), &decided);
                    if let Some(decision) = decided {
                        charges.insert(0, (limit, tier, key(number), decision.receipt()));
                    }
                }
                Step::Correct { charge, cost, settles } => {
                    let Some((limit, tier, key, receipt)) = charges.get(charge).cloned() else {
                        continue;
                    };
                    let op = if settles { Op::Settle(cost, receipt) } else { Op::Refund(cost, Some(receipt)) };
                    let decided = answer(&own[limit], &tier, &key, op.clone());
                    prop_assert_eq!(answer(&stored[limit], &tier, &key, op), decided);
                }
                Step::SetQuota { limit, to } => {
                    let name = own[limit].policies()[0].name().to_owned();
                    // A store still has what another algorithm counted, a table of one's own not:
                    // a limit that became a log stays one.
                    logs[limit] |= to > 6;
                    let quota = if logs[limit] { Quota::per_hour(to).sliding_log() } else { Quota::per_minute(to) };
                    let changed = own[limit].set_quota(&name, quota);
                    prop_assert_eq!(stored[limit].set_quota(&name, quota), changed);
                    quotas[limit] = Some((name, quota));
                }
                Step::Restart(max_keys) => {
                    let mut state = Vec::new();
                    shared.save(&mut state).unwrap();
                    let builder = LocalStore::builder().max_keys(max_keys).clock(clock.clone());
                    shared = builder.restore(state.as_slice()).unwrap();
                    stored = named_in(&shared);
                    for (limiter, quota) in stored.iter().zip(&quotas) {
                        if let Some((name, quota)) = quota {
                            let _ = limiter.set_quota(name, *quota);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(shared.evictions(), 0);
    }
}

#[test]
fn quota_of_a_request_has_the_limiter_s_name() {
    let store = store(1_000, &ManualClock::new());
    let limiter = LocalLimiter::builder(Quota::per_minute(60)).name("login");
    let limiter = limiter.build_in(&store).expect("a good quota");
    for tier in [Tier::DEFAULT, RequestQuota::limit(5).into()] {
        let decision = answer(&limiter, &tier, &key(0), Op::Acquire(1));
        let decision = decision.expect("a decision");
        assert_eq!(decision.binding().name(), "login", "{tier:?}");
    }
}

/// The two cases in which a table of its own, which takes no lock, differs by design.
#[test]
fn lone_bucket_of_a_store_is_clamped_when_a_request_comes() {
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let store = store(1_000, &clock);
    let quota = Quota::per_minute(60).burst(100);
    let own = LocalLimiter::builder(quota).clock(clock.clone()).build();
    let limiters = [own.expect("a good quota"), stored(quota, &store)];
    let reset_after = |of: u64| {
        let looks = limiters.each_ref().map(|one| one.peek(&key(of), 1));
        looks.map(|look| look.binding().reset_after().expect("known"))
    };
    for limiter in &limiters {
        let _ = limiter.acquire(&key(0), 100);
        let smaller = limiter.set_quota("default", quota.burst(5));
        smaller.expect("a good quota");
    }
    clock.advance(seconds(3));
    assert_eq!(reset_after(0), [2, 5].map(seconds), "of five seconds");
    for limiter in &limiters {
        let _ = limiter.acquire(&key(1), 5);
    }
    clock.set(Timestamp::from_secs(1_000));
    assert_eq!(reset_after(1), [8, 5].map(seconds), "three seconds back");
}

/// One hash of both distinguishes keys and limits.
#[test]
fn limits_of_one_store_share_no_counts() {
    let store = store(1_000, &ManualClock::new());
    let limiters: Vec<_> = (0..200)
        .map(|_| stored(Quota::per_day(3), &store))
        .collect();
    for limiter in &limiters {
        assert_eq!(limiter.acquire(&key(7), 2).remaining(), Some(1));
    }
    assert_eq!(limiters[0].reset(&key(7)).remaining(), Some(3));
    assert_eq!(limiters[1].peek(&key(7), 1).remaining(), Some(1));
    assert_eq!(store.tracked_keys(), 199);
    assert_eq!(limiters[0].tracked_keys(), 199, "the store's");
}

#[test]
fn limiters_of_one_name_share_counts_that_mean_the_same() {
    let store = store(1_000, &ManualClock::new());
    let named = |quotas: Vec<Quota>| {
        let builder = LocalLimiter::builder(quotas).name("api");
        builder.build_in(&store).expect("good quotas")
    };
    let (minute, day) = (
        Quota::per_minute(5).named("m"),
        Quota::per_day(9).fixed_window(),
    );
    let before = named(vec![minute, day.named("d")]);
    assert!(before.acquire(&key(0), 3).is_allowed());
    // Another order, another limit.
    let after = named(vec![day.named("d"), Quota::per_minute(4).named("m")]);
    let left = |limiter: &LocalLimiter| {
        let left = limiter.peek(&key(0), 1);
        left.quotas()
            .map(|quota| quota.remaining())
            .collect::<Vec<_>>()
    };
    // 36 seconds of the bucket are used.
    assert_eq!(left(&after), [Some(6), Some(1)]);
    // Another period starts afresh.
    let fresh = named(vec![day.named("d"), Quota::per_second(4).named("m")]);
    assert_eq!(left(&fresh), [Some(6), Some(4)]);
    assert_eq!(left(&before), [Some(2), Some(6)]);
}

/// A limit that is rolled back continues with the units that it had counted.
#[test]
fn a_quota_that_is_changed_back_goes_on_with_its_count() {
    let store = store(1_000, &ManualClock::new());
    let limiter = stored(Quota::per_minute(5), &store);
    assert!(limiter.acquire(&key(0), 3).is_allowed());
    let set = |quota: Quota| limiter.set_quota("default", quota).expect("a good quota");
    set(Quota::per_hour(9).sliding_log());
    assert_eq!(limiter.acquire(&key(0), 1).remaining(), Some(8));
    set(Quota::per_minute(5));
    assert_eq!(limiter.acquire(&key(0), 1).remaining(), Some(1));
}

#[test]
fn settings_of_the_store_are_refused_elsewhere() {
    let store = LocalStore::new();
    let builder = || LocalLimiter::builder(Quota::per_second(1));
    let refused = [
        builder().max_keys(1).build_in(&store),
        builder().max_log_times(1).build_in(&store),
        builder().clock(ManualClock::new()).build_in(&store),
        builder().name("login").build(),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ConfigErrorKind::Store, "{error}");
    }
    assert_eq!(
        LocalStore::builder()
            .max_keys(0)
            .build()
            .unwrap_err()
            .kind(),
        ConfigErrorKind::MaxKeys
    );
}

#[test]
fn flood_of_one_limit_resets_no_exhausted_key_of_another() {
    const MAX_KEYS: u64 = 4_096;
    let clock = ManualClock::new();
    let store = store(MAX_KEYS as usize, &clock);
    let strict = [
        Quota::per_minute(5),
        Quota::per_hour(5).fixed_window(),
        Quota::per_hour(5).sliding_window(),
        Quota::per_hour(5).sliding_log(),
        Quota::per_minute(5).leaky_bucket(4),
    ]
    .map(|quota| stored(quota, &store));
    for limiter in &strict {
        assert!(limiter.hit(&key(0), 5).is_allowed());
    }
    let lenient = stored(Quota::per_minute(100), &store);
    let _ = lenient.block(&key(0), seconds(3_600));
    for flood in 1..=2 * MAX_KEYS {
        assert!(lenient.acquire(&key(flood), 1).is_allowed());
    }
    assert!(store.evictions() > 0);
    for limiter in &strict {
        assert!(limiter.peek(&key(0), 1).is_denied(), "{limiter:?}");
    }
    assert!(lenient.peek(&key(0), 1).is_blocked());
}

/// The window that is over weighs nothing, whatever it counted.
#[test]
fn counts_that_are_over_give_way_first() {
    let clock = ManualClock::new();
    let store = store(1, &clock);
    let (minute, day) = (
        stored(Quota::per_minute(100).fixed_window(), &store),
        stored(Quota::per_day(100), &store),
    );
    for number in 0..8 {
        let _ = minute.acquire(&key(number), 100);
    }
    let full = store.tracked_keys();
    clock.advance(seconds(60));
    assert_eq!(store.tracked_keys(), 0);
    let before = store.evictions();
    for number in 0..full as u64 / 2 {
        let _ = day.acquire(&key(number), 1);
    }
    assert_eq!(store.evictions(), before);
}

#[test]
fn max_keys_counts_of_a_store_are_hardly_ever_given_up() {
    const MAX_KEYS: u64 = 100_000;
    let store = store(MAX_KEYS as usize, &ManualClock::new());
    let limiters: Vec<_> = (0..50)
        .map(|_| stored(Quota::per_day(100), &store))
        .collect();
    for number in 0..MAX_KEYS {
        let limiter = &limiters[number as usize % limiters.len()];
        let _ = limiter.acquire(&key(number / 50), 1);
    }
    let lost = store.evictions();
    // Fewer than 1 in 10,000 on average: 4 or 5. So many are lost by no chance.
    assert!(lost <= 25, "{lost} keys lost");
    assert_eq!(store.tracked_keys() as u64, MAX_KEYS - lost);
}

#[test]
fn limits_of_a_store_are_exact_in_parallel() {
    let store = LocalStore::new();
    let limiters = [40, 60].map(|limit| stored(Quota::per_day(limit).fixed_window(), &store));
    let admitted = in_parallel(|_| {
        limiters.each_ref().map(|limiter| {
            let admitted = (0..50).filter(|_| limiter.acquire(&key(1), 1).is_allowed());
            admitted.count()
        })
    });
    let total = |at: usize| admitted.iter().map(|by_limit| by_limit[at]).sum::<usize>();
    assert_eq!((total(0), total(1)), (40, 60));
}

#[test]
fn logs_of_all_limits_share_one_budget() {
    let clock = ManualClock::new();
    let builder = LocalStore::builder().max_keys(100_000).max_log_times(2_000);
    let store = builder.clock(clock.clone()).build().expect("good sizes");
    let limiters = [(); 4].map(|()| stored(Quota::per_hour(10).sliding_log(), &store));
    for number in 0..6_000_u64 {
        clock.advance(Duration::from_micros(1));
        let limiter = &limiters[number as usize % 4];
        assert!(limiter.acquire(&key(number), 1).is_allowed());
    }
    let tracked = store.tracked_keys();
    assert!((1_800..2_100).contains(&tracked), "{tracked} logs");
}
