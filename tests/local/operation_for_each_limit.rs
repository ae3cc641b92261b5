//! An operation of its own for each of several limits, and what each of them was charged.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use testkit::now;
use tower_ratelimit::{
    AnyLimiter, Decision, Key, Limiter, LimiterError, LimiterErrorKind, LocalLimiter, LocalStore,
    Priority, Quota,
    clock::ManualClock,
    decision::{Op, Outcome, Receipt},
    limiter::{Call, Charge, JointLimiter, Numbers, OpRef, Pending, Tier},
};

use super::{key, seconds};

fn stored(quota: Quota, store: &LocalStore) -> LocalLimiter {
    let built = LocalLimiter::builder(quota).build_in(store);
    built.expect("a good quota")
}

fn joint(quotas: impl IntoIterator<Item = Quota>) -> JointLimiter {
    let store = LocalStore::new();
    let limits = quotas.into_iter().map(|quota| stored(quota, &store));
    JointLimiter::new(limits).expect("names of their own")
}

fn keys(count: u64) -> Vec<Key> {
    (0..count).map(key).collect()
}

fn each(limiter: &impl Limiter, keys: &[Key], ops: &[Op]) -> Result<Decision, LimiterError> {
    let in_class = (&Tier::DEFAULT, Priority::CRITICAL);
    now(testkit::apply_each(limiter, in_class, keys, ops).into_future())
}

fn charged(decision: &Decision) -> Vec<u64> {
    decision.charged_by_each().collect()
}

/// Units left of each limit.
fn left(limiter: &JointLimiter) -> Vec<u64> {
    let limits = limiter.limiters().iter().zip(0..);
    let peeked = limits.map(|(limit, number)| limit.peek(&key(number), 0));
    peeked
        .map(|peeked| peeked.remaining().expect("known"))
        .collect()
}

fn window(limit: u64, name: &'static str) -> Quota {
    Quota::per_day(limit).fixed_window().named(name)
}

#[test]
fn each_limit_takes_the_units_of_its_own_operation() {
    let limiter = joint([
        window(9, "requests"),
        window(900, "tokens"),
        window(50, "idle"),
    ]);
    let none = Op::Refund(0, None);
    let ops = [Op::Reserve(1), Op::Acquire(500), none.clone()];
    let reserved = each(&limiter, &keys(3), &ops).unwrap();
    assert!(reserved.is_allowed());
    assert_eq!(charged(&reserved), [1, 500, 0]);
    assert_eq!(reserved.charged(), 0, "the least");
    let of_each = reserved.receipt();
    assert!(of_each.each().map(Receipt::charged).eq([1, 500, 0]));

    let ops = [none.clone(), Op::Spend(300), none];
    let spent = each(&limiter, &keys(3), &ops).unwrap();
    assert_eq!(charged(&spent), [0, 300, 0]);
    assert_eq!(left(&limiter), [8, 100, 50]);

    // The receipt of all limits, or that of each.
    let receipts: Vec<_> = of_each.each().cloned().collect();
    let ops = [
        Op::Settle(1, of_each.clone()),
        Op::Settle(420, receipts[1].clone()),
        Op::Settle(7, of_each),
    ];
    let settled = each(&limiter, &keys(3), &ops).unwrap();
    assert_eq!(charged(&settled), [0, 0, 7]);
    assert_eq!(left(&limiter), [8, 180, 43]);
}

#[test]
fn decision_of_one_limit_was_charged_as_one() {
    let limiter = LocalLimiter::new(Quota::per_day(10));
    let decision = limiter.acquire(&key(0), 3);
    assert_eq!(charged(&decision), [3]);
    let receipt = decision.receipt();
    assert!(receipt.each().eq([&receipt]));
}

/// Units that were used already are charged in any case.
#[test]
fn denied_limit_holds_back_only_limits_that_could_be_denied() {
    let limiter = joint([window(9, "a"), window(5, "b"), window(100, "c").debt(50)]);
    let ops = [Op::Reserve(2), Op::Reserve(6), Op::Spend(120)];
    let denied = each(&limiter, &keys(3), &ops).unwrap();
    assert!(denied.is_denied());
    assert_eq!(charged(&denied), [0, 0, 120]);
    assert_eq!(left(&limiter), [9, 5, 0]);
    // A limit that spends holds nobody back, though it is used up.
    let ops = [Op::Acquire(2), Op::AcquireUpTo(3), Op::Spend(50)];
    let spent = each(&limiter, &keys(3), &ops).unwrap();
    assert!(spent.is_denied());
    assert_eq!(charged(&spent), [2, 3, 30]);
    assert_eq!(left(&limiter), [7, 2, 0]);
}

#[test]
fn limits_that_take_what_is_available_take_equal_units() {
    let limiter = joint([window(9, "a"), window(5, "b"), window(100, "c")]);
    let ops = [Op::AcquireUpTo(8), Op::AcquireUpTo(20), Op::Acquire(30)];
    let taken = each(&limiter, &keys(3), &ops).unwrap();
    assert_eq!(charged(&taken), [5, 5, 30]);
    assert_eq!(left(&limiter), [4, 0, 70]);
}

fn refused(answer: Result<Decision, LimiterError>, text: &str) {
    let error = answer.expect_err("not supported");
    assert_eq!(error.kind(), LimiterErrorKind::Unsupported);
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn wrong_operations_are_errors_and_none_is_applied() {
    let limiter = joint([
        window(9, "window"),
        Quota::per_day(10).leaky_bucket(9).named("queue"),
    ]);
    let acquire = Op::Acquire(1);
    for (count, text) in [(0, "the call is for 0"), (3, "the call is for 3")] {
        let ops = [acquire.clone()];
        refused(each(&limiter, &keys(count), &ops), text);
    }
    let two = [acquire.clone(), acquire.clone()];
    let spend = [acquire.clone(), Op::Spend(1)];
    refused(each(&limiter, &keys(2), &spend), "`spend` charges units");
    let three = joint([window(1, "a"), window(1, "b"), window(1, "c")]);
    let of_three = now(three.acquire_all(&keys(3), 1).into_future()).unwrap();
    let refund = [acquire, Op::Refund(1, Some(of_three.receipt()))];
    refused(each(&limiter, &keys(2), &refund), "is not among them");
    assert_eq!(left(&limiter)[0], 9);

    // One limit takes one operation, with its own key.
    let alone = stored(window(5, "alone"), &LocalStore::new());
    refused(each(&alone, &keys(2), &two), "2 charges for 1 limit");
    let together = JointLimiter::new([alone.clone()]).unwrap();
    refused(each(&together, &keys(2), &two), "this limiter has 1 limit");
    for (at, limiter) in [
        AnyLimiter::new(alone),
        AnyLimiter::new(together.clone()),
        AnyLimiter::new(Arc::new(together)),
    ]
    .iter()
    .enumerate()
    {
        let decision = each(limiter, &keys(1), &two[..1]).unwrap();
        assert_eq!(decision.remaining(), Some(4 - at as u64));
    }
}

fn refuses_lists(limiter: &impl Limiter, handle: &str) {
    let key = key(0);
    for (limits, text) in [
        (&[Some(0), Some(0)][..], "one for each limit at most"),
        (&[Some(1), Some(0)], "in the order of the limits"),
        (&[Some(0), Some(2), Some(1)], "in the order of the limits"),
        (&[Some(0), Some(1), Some(1)], "one for each limit at most"),
        (&[Some(0), Some(3)], "the call is for 4"),
        (&[Some(usize::MAX)], "the call is for"),
        (&[Some(0), None], "the call is for 1"),
        (&[], "the call is for 0"),
    ] {
        for op in [OpRef::Acquire(1), OpRef::AcquireUpTo(1), OpRef::Spend(1)] {
            let charge = |limit: &Option<usize>| {
                let only = Charge::new(&key, op);
                limit.map_or(only, |limit| only.limit(limit))
            };
            let charges: Vec<_> = limits.iter().map(charge).collect();
            let answer = now(limiter.call(&Call::of(&charges)).into_future());
            let error = answer.expect_err("no charge of each limit");
            let case = format!("{handle}: {limits:?}, {op:?}: {error}");
            assert_eq!(error.kind(), LimiterErrorKind::Unsupported, "{case}");
            assert!(error.to_string().contains(text), "{case}");
        }
    }
}

#[test]
fn call_has_one_charge_of_a_limit_at_most_in_their_order_or_charges_nothing() {
    let store = LocalStore::new();
    let limits = ["a", "b", "c"].map(|name| stored(window(9, name), &store));
    let limiter = JointLimiter::new(limits.clone()).unwrap();
    let of_any = JointLimiter::new(limits.map(AnyLimiter::new)).unwrap();
    refuses_lists(&limiter, "JointLimiter");
    refuses_lists(&of_any, "JointLimiter of AnyLimiter");
    refuses_lists(&Arc::new(limiter.clone()), "Arc");
    refuses_lists(&AnyLimiter::new(limiter.clone()), "AnyLimiter");
    refuses_lists(&AnyLimiter::new(of_any), "AnyLimiter of both");
    let spent = limiter
        .limiters()
        .iter()
        .map(|limit| limit.peek(&key(0), 0));
    assert!(spent.map(|peeked| peeked.remaining()).eq([Some(9); 3]));
}

/// A limiter of any type passes the operations on.
#[test]
fn limits_of_any_type_take_an_operation_each() {
    let store = LocalStore::new();
    let limits =
        [window(9, "a"), window(90, "b")].map(|quota| AnyLimiter::new(stored(quota, &store)));
    let limiter = AnyLimiter::new(JointLimiter::new(limits).unwrap());
    let decision = each(&limiter, &keys(2), &[Op::Acquire(2), Op::Hit(100)]).unwrap();
    assert_eq!(charged(&decision), [2, 90]);
}

/// A stream of units whose number is known when it has ended: the sums of what its decisions charged, and
/// its receipts, oldest first.
#[derive(Default)]
struct Stream {
    charged: Vec<u64>,
    /// The sum of the least that a limit was charged by each decision.
    least: u64,
    receipts: Vec<Receipt>,
}

impl Stream {
    fn note(&mut self, decision: &Decision) {
        self.charged.resize(decision.charged_by_each().len(), 0);
        let sums = self.charged.iter_mut();
        sums.zip(decision.charged_by_each())
            .for_each(|(sum, charged)| *sum += charged);
        self.least += decision.charged();
        self.receipts.push(decision.receipt());
    }

    /// Ends the stream at so many units of each limit: a surplus goes back, newest first, and what is
    /// missing is spent with the newest receipt.
    fn settle(self, limiter: &JointLimiter, used: &[u64]) {
        let balance = self.charged.iter().zip(used);
        let mut owed: Vec<u64> = balance
            .clone()
            .map(|(charged, used)| used.saturating_sub(*charged))
            .collect();
        let mut surplus: Vec<u64> = balance
            .map(|(charged, used)| charged.saturating_sub(*used))
            .collect();
        for receipt in self.receipts.iter().rev() {
            let shares = receipt.each().zip(&mut owed).zip(&mut surplus);
            let ops = shares.map(|((share, owed), surplus)| {
                let back = share.charged().min(*surplus);
                *surplus -= back;
                let kept = share.charged() - back + std::mem::take(owed);
                Op::Settle(kept, share.clone())
            });
            let ops: Vec<_> = ops.collect();
            let settled = each(limiter, &keys(used.len() as u64), &ops);
            let _ = settled.expect("receipts of these limits");
        }
    }
}

/// Settling by what was requested would give back 80 units to the second limit, where 220 are owed: 300 of
/// the 400 that the stream requested were beyond what that limit could owe.
#[test]
fn units_beyond_a_debt_are_not_given_back() {
    let limiter = joint([window(1_000, "roomy"), window(100, "used up")]);
    let mut stream = Stream::default();
    stream.note(&each(&limiter, &keys(2), &[Op::Reserve(100), Op::Reserve(100)]).unwrap());
    for _ in 0..3 {
        stream.note(&each(&limiter, &keys(2), &[Op::Spend(100)]).unwrap());
    }
    let owed = 320 - stream.charged[1];
    assert_eq!((400 - 320, owed), (80, 220));
    stream.settle(&limiter, &[320, 320]);
    assert_eq!(left(&limiter), [680, 0]);
}

/// Settling by the least that a limit was charged would charge the first limit 870 units for 400: the joint
/// decisions charged at least 30.
#[test]
fn each_limit_is_settled_by_its_own_charges() {
    let limiter = joint([window(1_000, "roomy"), window(30, "used up")]);
    let mut stream = Stream::default();
    stream.note(&each(&limiter, &keys(2), &[Op::Reserve(30)]).unwrap());
    for step in [200, 200, 70] {
        stream.note(&each(&limiter, &keys(2), &[Op::Spend(step)]).unwrap());
    }
    let by_the_least = stream.charged[0] + 400 - stream.least;
    assert_eq!(by_the_least, 870);
    stream.settle(&limiter, &[400, 400]);
    assert_eq!(left(&limiter), [600, 0]);
}

/// A debt is charged to the unit, and the surplus of another limit goes back to where it came from.
#[test]
fn stream_is_settled_newest_first() {
    let limiter = joint([
        window(10, "requests"),
        window(100, "tokens").debt(1_000),
        window(1_000, "money"),
    ]);
    let none = Op::Refund(0, None);
    let mut stream = Stream::default();
    let reserve = [Op::Reserve(1), Op::Reserve(100), Op::Reserve(40)];
    stream.note(&each(&limiter, &keys(3), &reserve).unwrap());
    for _ in 0..3 {
        let step = [none.clone(), Op::Spend(50), Op::Spend(20)];
        stream.note(&each(&limiter, &keys(3), &step).unwrap());
    }
    assert_eq!(stream.charged, [1, 250, 100]);
    // The newest two steps of the third limit end at nothing, the third at 15.
    stream.settle(&limiter, &[1, 300, 55]);
    assert_eq!(left(&limiter), [9, 0, 945]);
    let owed = limiter.limiters()[1].refund(&key(1), 201, None);
    assert_eq!(owed.remaining(), Some(1), "200 are owed");
}

/// An operation and its units.
fn any_op() -> impl Strategy<Value = (u8, u64)> {
    (0..9_u8, prop_oneof![4 => 0..4_u64, 2 => 0..30_u64])
}

fn op_of((op, units): (u8, u64), receipt: Option<Receipt>) -> Op {
    match (op, receipt) {
        (0..=1, _) => Op::Acquire(units),
        (2, _) => Op::Reserve(units),
        (3, _) => Op::Peek(units),
        (4, _) => Op::Hit(units),
        (5, _) => Op::Spend(units),
        (6, Some(receipt)) => Op::Settle(units, receipt),
        (7, receipt) => Op::Refund(units, receipt),
        _ => Op::Refund(0, None),
    }
}

fn quotas() -> [Quota; 3] {
    [
        Quota::per_minute(6).burst(9).debt(7).named("a"),
        Quota::per_minute(7).fixed_window().debt(20).named("b"),
        Quota::per_minute(5).sliding_log().named("c"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    /// Each limit is charged as it would be alone, unless another one denies.
    #[test]
    fn limits_decide_as_each_does_alone(
        steps in vec((vec(any_op(), 3), 0..20_000_000_u64, any::<prop::sample::Index>()), 1..60),
    ) {
        let clock = ManualClock::new();
        let alone = quotas().map(|quota| {
            let built = LocalLimiter::builder(quota).clock(clock.clone()).build();
            built.expect("a good quota")
        });
        let store = LocalStore::builder().clock(clock.clone()).build().expect("a good size");
        let limiter = JointLimiter::new(quotas().map(|quota| stored(quota, &store))).unwrap();
        let mut receipts: Vec<(Receipt, Vec<Receipt>)> = Vec::new();
        for (ops, wait, held) in steps {
            clock.advance(Duration::from_micros(wait));
            let held = (!receipts.is_empty()).then(|| held.get(&receipts).clone());
            let joined: Vec<_> = ops
                .iter()
                .map(|op| op_of(*op, held.as_ref().map(|(joint, _)| joint.clone())))
                .collect();
            let decision = each(&limiter, &keys(3), &joined).unwrap();
            let own: Vec<_> = ops
                .iter()
                .enumerate()
                .map(|(at, op)| op_of(*op, held.as_ref().map(|(_, own)| own[at].clone())))
                .collect();
            let fits = own.iter().zip(&alone).all(|(op, limit)| match op {
                Op::Acquire(units) | Op::Reserve(units) => limit.peek(&key(9), *units).is_allowed(),
                _ => true,
            });
            let expected = own.iter().zip(&alone).map(|(op, limit)| match op {
                Op::Acquire(units) | Op::Reserve(units) if !fits => limit.peek(&key(9), *units),
                op => now(limit.apply(&key(9), op.clone()).into_future()).unwrap(),
            });
            let expected: Vec<_> = expected.collect();
            prop_assert!(decision.charged_by_each().eq(expected.iter().map(Decision::charged)));
            prop_assert_eq!(decision.is_denied(), expected.iter().any(Decision::is_denied));
            let remaining = expected.iter().map(Decision::remaining);
            prop_assert!(
                decision.quotas().map(|quota| quota.remaining()).eq(remaining),
                "{:?} of {:?}, not {:?}", own, decision, expected
            );
            receipts.push((decision.receipt(), expected.iter().map(Decision::receipt).collect()));
        }
    }
}

#[test]
fn reservation_that_waits_for_nothing_is_settled_for_each_limit_after_a_minute() {
    let clock = ManualClock::new();
    let store = LocalStore::builder().clock(clock.clone()).build();
    let store = store.expect("a good size");
    let quota = |name| Quota::per_minute(100).fixed_window().named(name);
    let limits = ["a", "b"].map(|name| stored(quota(name), &store));
    let limiter = JointLimiter::new(limits).unwrap();
    let reserved = each(&limiter, &keys(2), &[Op::Reserve(10), Op::Reserve(20)]).unwrap();
    clock.advance(seconds(60));
    let receipt = reserved.receipt();
    let ops = [Op::Settle(4, receipt.clone()), Op::Settle(50, receipt)];
    let settled = each(&limiter, &keys(2), &ops).unwrap();
    // A refund belongs to the window of its receipt, and a spend to the one in force.
    assert_eq!(charged(&settled), [0, 30]);
    assert_eq!(left(&limiter), [100, 70]);
}

/// The answers of a limiter to equal calls, whose caller reads all numbers and those of denials. Both take the same.
fn answers(limiters: &[JointLimiter; 2], costs: &[u64], number: u64) -> [Decision; 2] {
    let key = key(number);
    let charge =
        |(limit, cost): (usize, &u64)| Charge::new(&key, OpRef::Acquire(*cost)).limit(limit);
    let charges: Vec<_> = costs.iter().enumerate().map(charge).collect();
    let wanted = [Numbers::All, Numbers::OfDenials];
    [0, 1].map(|at| {
        let Pending::Ready(answer) = limiters[at].call(&Call::of(&charges).wants(wanted[at]));
        answer.expect("a decision")
    })
}

/// Limits of one quota or of two, of any algorithm.
fn limits(of: &[u8], clock: &ManualClock) -> JointLimiter {
    const NAMES: [[&str; 2]; 6] = [
        ["a", "b"],
        ["c", "d"],
        ["e", "f"],
        ["g", "h"],
        ["i", "j"],
        ["k", "l"],
    ];
    let store = LocalStore::builder().clock(clock.clone()).build();
    let store = store.expect("a good size");
    let limits = of.iter().zip(NAMES).map(|(kind, [name, other])| {
        let quota = Quota::per_minute(7 + u64::from(*kind)).named(name);
        let quotas = match kind {
            0 => vec![quota],
            1 => vec![quota.fixed_window()],
            2 => vec![quota.sliding_window()],
            3 => vec![quota.sliding_log()],
            4 => vec![quota.leaky_bucket(3)],
            _ => vec![quota, Quota::per_day(20).fixed_window().named(other)],
        };
        let built = LocalLimiter::builder(quotas).build_in(&store);
        built.expect("good quotas")
    });
    JointLimiter::new(limits).expect("names of their own")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn who_reads_no_numbers_of_a_charge_takes_as_much(
        kinds in vec(0_u8..6, 1..7),
        calls in vec((vec(0_u64..6, 6), 0_u64..3, 0_u64..20_000), 1..60),
    ) {
        let clock = ManualClock::new();
        let limiters = [limits(&kinds, &clock), limits(&kinds, &clock)];
        for (costs, number, millis) in calls {
            clock.advance(Duration::from_millis(millis));
            let [expected, own] = answers(&limiters, &costs[..kinds.len()], number);
            prop_assert_eq!(own.outcome(), expected.outcome());
            prop_assert_eq!(own.charged(), expected.charged());
            prop_assert_eq!(own.decided_at(), expected.decided_at());
            if expected.outcome() != Outcome::Allowed {
                prop_assert_eq!(own, expected);
                continue;
            }
            // Missing numbers are unknown.
            prop_assert_eq!((own.quotas().len(), own.remaining()), (0, None));
            prop_assert_eq!(own.binding().name(), "default");
            prop_assert_eq!(own.retry_after(), Some(Duration::ZERO));
            prop_assert!(!own.is_excess() && !own.is_blocked() && own.is_counted());
        }
    }
}

#[test]
fn a_receipt_without_numbers_gives_nothing_back() {
    let clock = ManualClock::new();
    let limiters = [(); 2].map(|()| limits(&[5], &clock));
    let [_, own] = answers(&limiters, &[3], 1);
    let [limit] = limiters[1].limiters() else {
        panic!("one limit");
    };
    let before = limit.peek(&key(1), 1);
    let refunded = limit.refund(&key(1), 3, Some(own.receipt()));
    assert!(before.quotas().eq(refunded.quotas()));
    assert_eq!(own.quotas().len(), 0);
    assert_eq!(own.charged_by_each().collect::<Vec<_>>(), [3]);
}
