//! Promises of limits that are charged together.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use testkit::now;
use tower_ratelimit::{
    AnyLimiter, ConfigErrorKind, Decision, Key, Limiter, LimiterError, LimiterErrorKind,
    LocalLimiter, LocalStore, Priority, Quota,
    clock::ManualClock,
    decision::{Op, Outcome, Receipt},
    limiter::{JointLimiter, Tier},
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

fn all<const N: usize>(limiters: [&LocalLimiter; N]) -> JointLimiter {
    let joint = JointLimiter::new(limiters.map(Clone::clone));
    joint.expect("limiters of one store with names of their own")
}

fn request(limiter: &impl Limiter, keys: &[Key], op: Op) -> Result<Decision, LimiterError> {
    let in_class = (&Tier::DEFAULT, Priority::CRITICAL);
    now(testkit::apply_each(limiter, in_class, keys, &[op]).into_future())
}

fn left(limiter: &LocalLimiter, key: &Key) -> u64 {
    limiter.peek(key, 1).remaining().expect("known")
}

fn joint(keys: impl IntoIterator<Item = u64>) -> Vec<Key> {
    keys.into_iter().map(Key::from).collect()
}

/// Half of the threads list the limits the other way round: locks that were taken in the order of
/// a call would wait for each other.
#[test]
fn of_1000_requests_at_once_exactly_the_lesser_limit_passes() {
    for (less, more) in [(100, 150), (1, 1_000), (0, 3)] {
        let store = LocalStore::new();
        let day = |limit: u64| Quota::per_day(limit.max(1)).fixed_window();
        let (lesser, greater) = (
            stored(day(less).named("lesser"), &store),
            stored(day(more).named("greater"), &store),
        );
        let _ = lesser.hit(&key(1), u64::from(less == 0));
        let orders = [
            (all([&lesser, &greater]), joint([1, 2])),
            (all([&greater, &lesser]), joint([2, 1])),
        ];
        let admitted = in_parallel(|thread| {
            let (limiter, key) = &orders[thread as usize % 2];
            let requests = (0..125).map(|_| request(limiter, key, Op::Acquire(1)).unwrap());
            requests.filter(Decision::is_allowed).count() as u64
        });
        assert_eq!(admitted.iter().sum::<u64>(), less);
        assert_eq!(left(&lesser, &key(1)), 0);
        assert_eq!(left(&greater, &key(2)), more - less, "not over-charged");
    }
}

/// Two lists in opposite orders, while the quotas of both limits are changed: who holds what until
/// when must not depend on either.
#[test]
fn quotas_change_while_limits_are_charged_together() {
    let store = LocalStore::new();
    let day = |limit: u64| Quota::per_day(limit).fixed_window();
    let [one, other] = ["one", "other"].map(|name| stored(day(300).named(name), &store));
    let orders = [
        (all([&one, &other]), joint([1, 2])),
        (all([&other, &one]), joint([2, 1])),
    ];
    let admitted = in_parallel(|thread| {
        // Equal numbers: a limit that is lowered and raised again hands out the units that were cut.
        let passed = (0..200).filter(|_| match thread {
            0 => one.set_quota("one", day(300)).is_err(),
            1 => other.set_quota("other", day(300)).is_err(),
            _ => {
                let (limiter, key) = &orders[thread as usize % 2];
                request(limiter, key, Op::Acquire(1)).unwrap().is_allowed()
            }
        });
        passed.count() as u64
    });
    assert_eq!(admitted.iter().sum::<u64>(), 300);
    assert_eq!(left(&other, &key(2)), 0);
}

/// Each thread has an address, and all share a limit: what one is denied nobody pays for.
#[test]
fn what_all_keys_were_charged_is_what_everybody_was() {
    let store = LocalStore::new();
    let each = stored(Quota::per_day(40).sliding_log().named("each"), &store);
    let everybody = stored(Quota::per_day(200).named("everybody"), &store);
    let limiter = all([&each, &everybody]);
    let admitted = in_parallel(|thread| {
        let key = joint([thread, 99]);
        let requests = (0..125).map(|_| request(&limiter, &key, Op::Acquire(1)).unwrap());
        requests.filter(Decision::is_allowed).count() as u64
    });
    assert_eq!(admitted.iter().sum::<u64>(), 200);
    assert_eq!(left(&everybody, &key(99)), 0);
    for (thread, admitted) in admitted.into_iter().enumerate() {
        assert_eq!(left(&each, &key(thread as u64)), 40 - admitted);
    }
}

/// All other entries have more to forget: unless a call holds on to its own, each of them would
/// give way to the next one.
#[test]
fn no_entry_of_a_call_gives_way_to_another_of_it() {
    for round in 0..20 {
        let store = store(1, &ManualClock::new());
        let walls = stored(Quota::per_day(1_000), &store);
        for wall in 0..64 {
            let _ = walls.hit(&key(wall), 1_000);
        }
        let evictions = store.evictions();
        let names = ["a", "b", "c", "d"];
        let limits = names.map(|name| stored(Quota::per_second(9).named(name), &store));
        let limiter = all(limits.each_ref());
        let key_of = |at: u64| key(1_000 + at + round);
        let keys: Vec<_> = (0..4).map(key_of).collect();
        assert!(
            request(&limiter, &keys, Op::Acquire(2))
                .unwrap()
                .is_allowed()
        );
        for (at, limit) in limits.iter().enumerate() {
            assert_eq!(left(limit, &key_of(at as u64)), 7);
        }
        assert_eq!(store.evictions() - evictions, 4);
        // In a call of more entries than there are, those beyond find none to take.
        assert!(
            request(&limiter, &keys, Op::Acquire(2))
                .unwrap()
                .is_allowed()
        );
        assert_eq!(store.evictions() - evictions, 4);
    }
}

#[test]
fn entries_beyond_a_full_bucket_of_the_same_call_are_given_up() {
    let store = store(1, &ManualClock::new());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let limits = names.map(|name| stored(Quota::per_day(9).named(name), &store));
    let limiter = all(limits.each_ref());
    let decision = request(&limiter, &joint(0..12), Op::Acquire(2)).unwrap();
    assert!(decision.is_allowed());
    assert_eq!(decision.quotas().len(), 12);
    let kept = store.tracked_keys() as u64;
    assert!((4..=8).contains(&kept), "{kept}");
    assert_eq!(store.evictions(), 12 - kept);
    let used = limits.iter().enumerate();
    let used = used.filter(|(at, limit)| left(limit, &key(*at as u64)) == 7);
    assert_eq!(used.count() as u64, kept);
}

fn quotas() -> [Quota; 4] {
    [
        Quota::per_minute(6).burst(5).named("a"),
        Quota::per_minute(4).fixed_window().named("b"),
        Quota::per_minute(7).sliding_log().soft(30).named("c"),
        Quota::per_minute(5).leaky_bucket(4).named("d"),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Request {
        key: u64,
        op: u8,
        cost: u64,
    },
    Correct {
        charge: usize,
        cost: u64,
        settles: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request =
        (0..2_u64, 0..10_u8, 0..4_u64).prop_map(|(key, op, cost)| Step::Request { key, op, cost });
    let correct =
        (0..4_usize, 0..4_u64, any::<bool>()).prop_map(|(charge, cost, settles)| Step::Correct {
            charge,
            cost,
            settles,
        });
    let step = prop_oneof![
        3 => (0..30_000_000_u64).prop_map(Step::Wait),
        9 => request,
        3 => correct,
    ];
    vec(step, 1..100)
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
        8 => Op::Refund(cost, None),
        _ => Op::Block(seconds(10 * cost)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Limits that happen to have the same key decide as several quotas of one limit do.
    #[test]
    fn limits_of_one_key_decide_as_several_quotas_of_one_limit(steps in steps()) {
        let clock = ManualClock::new();
        let single = LocalLimiter::builder(quotas()).clock(clock.clone()).build().unwrap();
        let store = store(1_000, &clock);
        let limits = quotas().map(|quota| stored(quota, &store));
        let together = all(limits.each_ref());
        let mut charges: Vec<(u64, [Receipt; 2])> = Vec::new();
        for step in steps {
            let (number, ops) = match step {
                Step::Wait(micros) => {
                    clock.advance(Duration::from_micros(micros));
                    continue;
                }
                Step::Request { key, op, cost } => (key, [op_of(op, cost), op_of(op, cost)]),
                Step::Correct { charge, cost, settles } => {
                    let Some((key, receipts)) = charges.get(charge).cloned() else { continue };
                    let correct = |receipt| {
                        if settles {
                            Op::Settle(cost, receipt)
                        } else {
                            Op::Refund(cost, Some(receipt))
                        }
                    };
                    (key, receipts.map(correct))
                }
            };
            let [own, joined] = ops;
            // A hit takes from each limit what that has left, and its receipt gives back as much to
            // each; several quotas of one limit are given back the least of it.
            let is_even = !matches!(own, Op::Hit(_) | Op::Settle(..));
            let expected = request(&single, &[key(number)], own).unwrap();
            let decision = request(&together, &joint([number; 4]), joined).unwrap();
            prop_assert!(expected.quotas().eq(decision.quotas()), "{expected:?} {decision:?}");
            prop_assert_eq!(expected.outcome(), decision.outcome());
            prop_assert_eq!(expected.charged(), decision.charged());
            prop_assert_eq!(expected.is_blocked(), decision.is_blocked());
            prop_assert_eq!(expected.binding(), decision.binding());
            if is_even {
                charges.insert(0, (number, [expected.receipt(), decision.receipt()]));
            }
        }
    }
}

#[test]
fn limits_judge_by_their_own_keys_and_blocks() {
    let clock = ManualClock::new();
    let store = store(1_000, &clock);
    let builder = LocalLimiter::builder(Quota::per_minute(2).named("login"));
    let login = builder.block_for(seconds(600)).build_in(&store).unwrap();
    let everybody = stored(
        Quota::per_minute(50).leaky_bucket(9).named("everybody"),
        &store,
    );
    let limiter = all([&login, &everybody]);
    let outcome = |op| request(&limiter, &joint([1, 2]), op).unwrap().outcome();
    assert_eq!(outcome(Op::Acquire(1)), Outcome::Allowed);
    assert_eq!(
        outcome(Op::Acquire(1)),
        Outcome::Delayed(Duration::from_millis(1_200))
    );
    // A reservation that is denied blocks nobody.
    assert_eq!(outcome(Op::Reserve(1)), Outcome::Denied);
    assert!(!login.peek(&key(1), 0).is_blocked());
    assert_eq!(outcome(Op::Acquire(1)), Outcome::Denied);
    assert!(login.peek(&key(1), 0).is_blocked());
    assert!(!everybody.peek(&key(2), 0).is_blocked());
    // Nor is a key blocked that would have fitted, nor the denied request queued.
    assert_eq!(everybody.peek(&key(2), 1).remaining(), Some(8));
    let other = request(&limiter, &joint([3, 2]), Op::Acquire(1)).unwrap();
    assert_eq!(
        other.outcome(),
        Outcome::Delayed(Duration::from_millis(2_400))
    );
}

#[test]
fn tier_is_that_of_the_limits_that_know_it() {
    let store = LocalStore::new();
    let builder = LocalLimiter::builder(Quota::per_day(2).named("tenant"));
    let tenant = builder.tier("pro", Quota::per_day(5).named("tenant"));
    let tenant = tenant.build_in(&store).unwrap();
    let everybody = stored(Quota::per_day(100).named("everybody"), &store);
    let limiter = all([&everybody, &tenant]);
    let pro = Tier::named("pro");
    let in_tier = |tier: &Tier, op| {
        now(
            testkit::apply_each(&limiter, (tier, Priority::CRITICAL), &joint([1, 2]), &[op])
                .into_future(),
        )
    };
    let charged = in_tier(&pro, Op::Acquire(4)).unwrap();
    let numbers = |decision: &Decision| {
        let quotas = decision.quotas();
        let quotas = quotas.map(|quota| (quota.limit(), quota.remaining().unwrap_or_default()));
        quotas.collect::<Vec<_>>()
    };
    assert_eq!(numbers(&charged), [(100, 96), (5, 1)]);
    assert!(in_tier(&Tier::DEFAULT, Op::Acquire(1)).unwrap().is_denied());
    // A receipt goes back to where it came from, whatever the tier of the refund.
    let refunded = in_tier(&Tier::DEFAULT, Op::Refund(3, Some(charged.receipt()))).unwrap();
    assert_eq!(numbers(&refunded), [(100, 99), (5, 4)]);
    let unknown = in_tier(&Tier::named("gold"), Op::Acquire(1)).unwrap_err();
    assert_eq!(unknown.kind(), LimiterErrorKind::Unsupported);
}

#[test]
fn names_stay_with_their_limits() {
    let store = LocalStore::new();
    let owned = |names: [&str; 2]| {
        let quotas = names.map(|name| Quota::per_day(5).named_owned(name));
        LocalLimiter::builder(quotas).build_in(&store).unwrap()
    };
    let (first, last) = (owned(["/a", "/b"]), owned(["/c", "/d"]));
    let fixed = stored(Quota::per_day(3).named("fixed"), &store);
    let limiter = all([&first, &fixed, &last]);
    let decision = request(&limiter, &joint([1, 2, 3]), Op::Acquire(4)).unwrap();
    let names = decision
        .quotas()
        .map(|quota| (quota.name(), quota.is_denied()));
    let expected = ["/a", "/b", "fixed", "/c", "/d"].map(|name| (name, name == "fixed"));
    assert!(names.eq(expected));
    assert_eq!(decision.binding().name(), "fixed");
    let policies = limiter.policies().iter().map(|policy| policy.name());
    assert!(policies.eq(expected.map(|(name, _)| name)));
}

#[test]
fn limits_that_cannot_be_charged_together_are_refused() {
    let store = LocalStore::new();
    let named = |name| Quota::per_day(5).named(name);
    let kind = |limiters: Vec<LocalLimiter>| {
        let refused = JointLimiter::new(limiters).unwrap_err();
        refused.kind()
    };
    let [a, b] = ["a", "b"].map(|name| stored(named(name), &store));
    assert_eq!(kind(vec![]), ConfigErrorKind::Joint);
    let own = LocalLimiter::new(named("own"));
    assert_eq!(kind(vec![own.clone()]), ConfigErrorKind::Joint);
    assert_eq!(kind(vec![a.clone(), own]), ConfigErrorKind::Joint);
    let elsewhere = stored(named("elsewhere"), &LocalStore::new());
    assert_eq!(kind(vec![a.clone(), elsewhere]), ConfigErrorKind::Joint);
    assert_eq!(kind(vec![a.clone(), a.clone()]), ConfigErrorKind::QuotaList);
    let one_limit = [named("x"), named("y")].map(|quota| {
        let builder = LocalLimiter::builder(quota).name("one");
        builder.build_in(&store).unwrap()
    });
    assert_eq!(kind(one_limit.to_vec()), ConfigErrorKind::Joint);

    let limiter = all([&a, &b]);
    let lone = a.acquire(&key(1), 1).receipt();
    for answer in [
        limiter.acquire(&key(1), 1),
        limiter.acquire_all(&joint([1]), 1),
        limiter.acquire_all(&joint([1, 2, 3]), 1),
        limiter.refund(&key(1), 1, Some(lone)),
    ] {
        let error = now(answer.into_future()).unwrap_err();
        assert_eq!(error.kind(), LimiterErrorKind::Unsupported);
    }
    assert_eq!(left(&a, &key(1)), 4);
}

/// A limit whose key is missing would charge nobody.
#[test]
fn keys_that_do_not_fit_are_an_error_behind_every_type() {
    let store = LocalStore::new();
    let limits = ["one", "other"].map(|name| stored(Quota::per_day(5).named(name), &store));
    let both = all([&limits[0], &limits[1]]);
    let (shared, any) = (Arc::new(both.clone()), AnyLimiter::new(both.clone()));
    let (one, three) = (key(1), joint([1, 2, 3]));
    let answers = [
        now(both.acquire(&one, 1).into_future()),
        now(shared.acquire(&one, 1).into_future()),
        now(any.acquire(&one, 1).into_future()),
        now(both.acquire_all(&joint([1]), 1).into_future()),
        now(both.acquire_all(&three, 1).into_future()),
        request(&shared, &three, Op::Acquire(1)),
        request(&any, &three, Op::Acquire(1)),
    ];
    for answer in answers {
        let error = answer.expect_err("two keys are needed").to_string();
        assert!(error.contains("this limiter has 2 limits"), "{error}");
    }
    assert_eq!(limits.map(|limit| left(&limit, &key(1))), [5, 5]);
}
