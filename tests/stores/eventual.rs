//! Eventual mode on a store in memory, in virtual time: how far nodes together go beyond the limit, and
//! what becomes of it.

use std::{
    slice,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{
    Decision, Key, Limiter, OnFailure, Quota,
    decision::Op,
    limiter::{Pending, Tier},
    quota::Algorithm,
    shared::{Mode, RedisLimiterBuilder, SharedLimiter},
};

use crate::leased::faulty_store::{Fault, Wire};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// The period of windows.
const PERIOD: Duration = Duration::from_secs(10);
const PERIOD_MICROS: u64 = 10_000_000;

const INTERVAL: Duration = Duration::from_millis(50);

type Node = SharedLimiter<Wire>;

fn key() -> Key {
    Key::from("alice")
}

fn eventual(quota: Quota, ahead: u32, seed: u64) -> RedisLimiterBuilder {
    SharedLimiter::builder(quota)
        .name("test")
        .mode(Mode::eventual(INTERVAL).ahead(ahead))
        .max_leases(1_024)
        .on_failure(OnFailure::deny())
        .seed(seed)
}

fn nodes(count: u64, quota: Quota, ahead: u32, wire: &Wire) -> Vec<Node> {
    let node = |seed| eventual(quota, ahead, seed).build_on(wire.clone()).unwrap();
    (0..count).map(node).collect()
}

/// The units that have passed, with the microsecond at which the store, or the node by itself, let
/// them.
#[derive(Clone)]
struct Passed {
    wire: Wire,
    units: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Passed {
    fn new(wire: &Wire) -> Self {
        Self {
            wire: wire.clone(),
            units: Arc::default(),
        }
    }

    fn note(&self, decision: &Decision) {
        if decision.is_degraded() || decision.charged() == 0 {
            return;
        }
        let at = if decision.is_leased() {
            self.wire.now()
        } else {
            decision.decided_at()
        };
        let mut units = self.units.lock().unwrap();
        units.push((at.as_micros(), decision.charged()));
    }

    fn request(&self, node: &Node) {
        match node.acquire(&key(), 1) {
            Pending::Ready(answer) => {
                if let Ok(decision) = answer {
                    self.note(&decision);
                }
            }
            Pending::Later(answer) => {
                let passed = self.clone();
                tokio::spawn(async move {
                    if let Ok(decision) = answer.await {
                        passed.note(&decision);
                    }
                });
            }
        }
    }

    /// Takes this many units from each node in each step, for this time.
    async fn load(&self, nodes: &[Node], (each, step): (u32, Duration), time: Duration) {
        for _ in 0..time.as_millis() / step.as_millis() {
            for node in nodes {
                for _ in 0..each {
                    self.request(node);
                }
            }
            sleep(step).await;
        }
    }

    fn count(&self) -> u64 {
        self.units
            .lock()
            .unwrap()
            .iter()
            .map(|(_, units)| units)
            .sum()
    }

    fn in_order(&self) -> Vec<(u64, u64)> {
        let mut units = self.units.lock().unwrap().clone();
        units.sort_unstable();
        units
    }

    /// The largest excess over the quota.
    fn beyond(&self, quota: Quota) -> u64 {
        match quota.algorithm() {
            Algorithm::TokenBucket => self.beyond_bucket(quota.limit(), quota.capacity()),
            Algorithm::FixedWindow => self.beyond_window(quota.limit()),
            _ => self.beyond_log(quota.limit()),
        }
    }

    /// The largest excess of a bucket of this many units a second, at any time.
    fn beyond_bucket(&self, per_second: u64, burst: u64) -> u64 {
        let interval = 1_000_000 / per_second;
        let (mut full_at, mut most) = (0, 0);
        for (at, units) in self.in_order() {
            full_at = at.max(full_at) + units * interval;
            most = most.max((full_at - at).div_ceil(interval));
        }
        most.saturating_sub(burst)
    }

    /// The largest excess in a window.
    fn beyond_window(&self, limit: u64) -> u64 {
        let units = self.in_order();
        let windows = units.chunk_by(|a, b| a.0 / PERIOD_MICROS == b.0 / PERIOD_MICROS);
        let counts = windows.map(|window| window.iter().map(|(_, units)| units).sum::<u64>());
        counts.max().unwrap_or(0).saturating_sub(limit)
    }

    /// Units beyond the limit of a log, in any time as long.
    fn beyond_log(&self, limit: u64) -> u64 {
        let units = self.in_order();
        let ends = units.iter().enumerate();
        let counts = ends.map(|(place, (end, _))| {
            let recent = units[..=place].iter().rev();
            let recent = recent.take_while(|(at, _)| at + PERIOD_MICROS > *end);
            recent.map(|(_, units)| units).sum::<u64>()
        });
        counts.max().unwrap_or(0).saturating_sub(limit)
    }
}

/// Units that a node takes at once without waiting, one after another, up to this many.
fn at_once(node: &Node, most: u64) -> u64 {
    let takes = |_: &u64| match node.acquire(&key(), 1) {
        Pending::Ready(answer) => answer.is_ok_and(|decision| decision.is_allowed()),
        Pending::Later(_) => false,
    };
    (0..most).take_while(takes).count() as u64
}

/// Remaining units in the store.
async fn left(node: &Node) -> u64 {
    let look = node.peek(&key(), 1).await.unwrap();
    look.remaining().unwrap()
}

/// One node uses all there is up, unknown to the others. Then all want more than there is.
#[tokio::test(start_paused = true)]
async fn no_more_than_ahead_of_each_other_node_passes_beyond_the_limit() {
    for count in [1, 2, 10] {
        for ahead in [1, 5, 50] {
            let bucket = Quota::per_second(100).burst(600);
            let window = Quota::per(600, PERIOD).fixed_window();
            for quota in [bucket, window, window.sliding_log()] {
                let beyond = beyond(count, ahead, quota).await;
                let most = (count - 1) * u64::from(ahead);
                let context = format!("{count} nodes, {ahead} ahead, {quota:?}");
                assert!(beyond <= most, "{beyond} of {most} with {context}");
                // A bucket fills while answers are under way.
                assert!(beyond + 2 >= most, "{beyond} of {most} with {context}");
            }
        }
    }
}

/// How many units more than the limit have passed at most.
async fn beyond(count: u64, ahead: u32, quota: Quota) -> u64 {
    let wire = Wire::new();
    let nodes = nodes(count, quota, ahead, &wire);
    for node in &nodes {
        let _ = node.acquire(&Key::from("bob"), 1).await.unwrap();
    }
    // The beginning of a window.
    let into_window = wire.now().as_micros() % PERIOD_MICROS;
    sleep(PERIOD - Duration::from_micros(into_window)).await;
    let passed = Passed::new(&wire);
    for _ in 0..1_000 {
        let decision = nodes[0].acquire(&key(), 1).await.unwrap();
        passed.note(&decision);
        if decision.is_denied() {
            break;
        }
    }
    sleep(2 * MS).await;
    passed.load(&nodes, (ahead + 1, MS), MS).await;
    passed.load(&nodes, (1, MS), 300 * MS).await;
    sleep(PERIOD * 3 / 2).await;
    passed.load(&nodes, (3, MS), 100 * MS).await;
    passed.beyond(quota)
}

/// Numbers that are the same for the same seed: SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }

    /// The fault of a call: mostly none.
    fn fault(&mut self) -> Option<Fault> {
        match self.below(12) {
            0 => Some(Fault::LostRequest),
            1 => Some(Fault::LostReply),
            2 => Some(Fault::Again(Duration::ZERO)),
            3 => Some(Fault::Again(Duration::from_millis(1 + self.below(40)))),
            4 => Some(Fault::Again(Duration::from_millis(self.below(3_000)))),
            5 if self.below(4) == 0 => Some(Fault::Fails),
            _ => None,
        }
    }
}

fn seeds() -> u64 {
    let seeds = std::env::var("EVENTUAL_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

/// Loads that begin and end on any node, and calls that are lost, late, or done twice.
#[tokio::test(start_paused = true)]
async fn bound_holds_whatever_becomes_of_messages() {
    let mut touched = 0;
    for seed in 0..seeds() {
        let mut dice = Dice(seed);
        let (count, ahead) = (1 + dice.below(5), 1 + dice.below(30) as u32);
        let quota = match dice.below(3) {
            0 => Quota::per_second(100).burst(150),
            1 => Quota::per(150, PERIOD).fixed_window(),
            _ => Quota::per(150, PERIOD).sliding_log(),
        };
        let wire = Wire::new();
        let nodes = nodes(count, quota, ahead, &wire);
        let passed = Passed::new(&wire);
        wire.next((0..5_000).map(|_| dice.fault()));
        for _ in 0..60 {
            let node = dice.below(count) as usize;
            let load = (
                1 + dice.below(6) as u32,
                Duration::from_millis(1 + dice.below(5)),
            );
            match dice.below(3) {
                0 => sleep(Duration::from_millis(dice.below(400))).await,
                1 => passed.load(&nodes, load, 30 * MS).await,
                _ => passed.load(&nodes[node..=node], load, 30 * MS).await,
            }
        }
        sleep(SECOND).await;
        let beyond = passed.beyond(quota);
        let most = (count - 1) * u64::from(ahead);
        assert!(beyond <= most, "seed {seed}: {beyond} of {most}, {quota:?}");
        touched += u64::from(beyond > 0);
    }
    assert!(touched > seeds() / 10, "{touched} times beyond the limit");
}

/// Units that a bucket owes are paid back.
#[tokio::test(start_paused = true)]
async fn rate_over_ten_minutes_is_exact() {
    let (count, ahead) = (4, 15);
    let wire = Wire::new();
    let nodes = nodes(count, Quota::per_second(10).burst(50), ahead, &wire);
    let passed = Passed::new(&wire);
    let ten_minutes = Duration::from_secs(600);
    passed.load(&nodes, (1, 250 * MS), ten_minutes).await;
    let most = (count - 1) * u64::from(ahead);
    let expected = 600 * 10 + 50;
    let total = passed.count();
    assert!(
        (expected - most..=expected + most).contains(&total),
        "{total} of {expected}"
    );
}

/// Below the limit no request waits but the first, though nothing is known about the others.
#[tokio::test(start_paused = true)]
async fn requests_are_answered_at_once() {
    let wire = Wire::new();
    let node = nodes(1, Quota::per_second(1_000), 50, &wire).remove(0);
    let mut waited = 0;
    for _ in 0..1_000 {
        let answer = node.acquire(&key(), 1);
        waited += u64::from(matches!(answer, Pending::Later(_)));
        assert!(answer.await.unwrap().is_allowed());
        sleep(2 * MS).await;
    }
    assert_eq!(waited, 1, "until it was heard what time it is");
    for number in 0..100 {
        let answer = node.acquire(&Key::from(number), 1);
        assert!(
            matches!(answer, Pending::Ready(_)),
            "a key that was never seen"
        );
    }
    let stats = node.mode_stats();
    assert_eq!((stats.asked, stats.local), (1, 1_099));
    assert!(wire.calls() < 250, "{} calls", wire.calls());
    sleep(SECOND).await;
    assert_eq!(node.mode_stats().settled, 1_099);
}

/// Requests that come while one is under way are decided here, as long as there is enough for it and
/// them: otherwise each of them calls, and is under way when the next one comes.
#[tokio::test(start_paused = true)]
async fn after_a_crowd_requests_are_answered_at_once_again() {
    let wire = Wire::new();
    let node = nodes(1, Quota::per_second(10_000), 100, &wire);
    let passed = Passed::new(&wire);
    passed.load(&node, (1, 10 * MS), 100 * MS).await;
    passed.load(&node, (200, MS), MS).await;
    passed.load(&node, (5, MS), 10 * MS).await;
    let before = node[0].mode_stats();
    assert!(before.asked > 50, "{before:?}");
    passed.load(&node, (5, MS), SECOND).await;
    let stats = node[0].mode_stats();
    assert_eq!(stats.asked, before.asked, "{stats:?}");
}

/// A request takes its units from those that the node may run ahead, and from the remaining ones.
#[tokio::test(start_paused = true)]
async fn units_on_order_go_to_no_other_request() {
    for (limit, free) in [(10_000, 30), (95, 5)] {
        let wire = Wire::new();
        let quota = Quota::per_day(limit).fixed_window();
        let node = &nodes(1, quota, 80, &wire)[0];
        let _ = node.acquire(&Key::from("bob"), 1).await.unwrap();
        assert_eq!(at_once(node, 80), 80);
        // It leaves with the answer to the first forty.
        let Pending::Later(requested) = node.acquire(&key(), 10) else {
            panic!("it is more than may be ahead");
        };
        let requested = tokio::spawn(requested);
        sleep(MS * 5 / 2).await;
        assert_eq!(at_once(node, limit), free, "{limit}");
        let given = requested.await.unwrap().unwrap().charged();
        assert_eq!(given, 10, "{limit}");
    }
}

/// A refund makes answers untrue that are under way. What they gave is not forgotten with them.
#[tokio::test(start_paused = true)]
async fn units_on_order_and_a_refund_are_both_counted() {
    let (wire, limit) = (Wire::new(), 400);
    let node = &nodes(1, Quota::per_day(limit).fixed_window(), 20, &wire)[0];
    let taken = node.acquire(&key(), 10).await.unwrap();
    let passed = Passed::new(&wire);
    for _ in 0..10 {
        passed.load(slice::from_ref(node), (60, MS), MS).await;
        let back = node.refund(&key(), 1, Some(taken.receipt()));
        tokio::spawn(back.into_future());
    }
    sleep(SECOND).await;
    passed.load(slice::from_ref(node), (100, MS), 5 * MS).await;
    sleep(SECOND).await;
    assert_eq!(passed.count(), limit, "the ten came back one after another");
}

#[tokio::test(start_paused = true)]
async fn what_passed_is_counted_once_whatever_becomes_of_messages() {
    let faults = [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Again(Duration::ZERO),
        Fault::Again(20 * MS),
        Fault::Again(2 * SECOND),
    ];
    for fault in faults {
        for quota in [
            Quota::per_day(10_000).fixed_window(),
            Quota::per_day(10_000).sliding_log(),
            Quota::per_hour(1).burst(10_000),
        ] {
            let wire = Wire::new();
            let nodes = nodes(3, quota, 2_000, &wire);
            let passed = Passed::new(&wire);
            // The first request of each node waits, and is the store's to count.
            passed.load(&nodes, (1, 10 * MS), 50 * MS).await;
            wire.next((0..40).map(|at| (at % 3 != 2).then_some(fault)));
            passed.load(&nodes, (1, 5 * MS), SECOND).await;
            sleep(20 * SECOND).await;
            assert!(passed.count() > 500, "{fault:?}");
            let counted = 10_000 - left(&nodes[0]).await;
            assert_eq!(counted, passed.count(), "{fault:?} {quota:?}");
            let reported = nodes.iter().map(|node| node.mode_stats().settled);
            let local = nodes.iter().map(|node| node.mode_stats().local);
            assert_eq!(reported.sum::<u64>(), local.sum::<u64>(), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_as_much_passes_as_may_be_ahead_and_the_fallback_decides_then() {
    let wire = Wire::new();
    let nodes = nodes(1, Quota::per_hour(1).burst(10_000), 200, &wire);
    let passed = Passed::new(&wire);
    passed.load(&nodes, (1, MS), 300 * MS).await;
    sleep(SECOND).await;
    for fault in [Fault::Fails, Fault::LostRequest] {
        let before = left(&nodes[0]).await;
        wire.all(Some(fault));
        assert_eq!(at_once(&nodes[0], 1_000), 200, "{fault:?}");
        let next = nodes[0].acquire(&key(), 1).await;
        assert!(next.is_err() || next.unwrap().is_degraded(), "{fault:?}");
        sleep(30 * SECOND).await;
        assert_eq!(at_once(&nodes[0], 10), 0, "{fault:?}");
        wire.all(None);
        sleep(3 * SECOND).await;
        assert_eq!(before - left(&nodes[0]).await, 200, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reset_on_any_node_is_seen_within_an_interval() {
    for quota in [Quota::per_day(100).fixed_window(), Quota::per_day(100)] {
        let wire = Wire::new();
        let nodes = nodes(2, quota, 20, &wire);
        let passed = Passed::new(&wire);
        passed.load(&nodes, (1, MS), 200 * MS).await;
        assert!((100..=120).contains(&passed.count()));
        let _ = nodes[0].reset(&key()).await.unwrap();
        assert!(nodes[0].acquire(&key(), 1).await.unwrap().is_allowed());
        for _ in 0..3 {
            let _ = nodes[1].acquire(&key(), 1).await.unwrap();
            sleep(INTERVAL).await;
        }
        assert!(
            nodes[1].acquire(&key(), 1).await.unwrap().is_allowed(),
            "{quota:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn block_is_the_store_s() {
    let wire = Wire::new();
    let nodes = nodes(2, Quota::per_second(1_000), 20, &wire);
    Passed::new(&wire).load(&nodes, (1, MS), 100 * MS).await;
    let _ = nodes[0].block(&key(), 2 * SECOND).await.unwrap();
    let _ = nodes[1].acquire(&key(), 1).await.unwrap();
    sleep(2 * INTERVAL).await;
    for node in &nodes {
        for _ in 0..10 {
            let denied = node.acquire(&key(), 1).await.unwrap();
            assert!(denied.is_blocked(), "{denied:?}");
        }
    }
    sleep(2 * SECOND).await;
    assert!(nodes[1].acquire(&key(), 1).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn refund_and_settlement_stay_on_the_node_until_its_next_report() {
    let wire = Wire::new();
    let node = nodes(1, Quota::per_day(1_000).fixed_window(), 100, &wire).remove(0);
    assert!(node.acquire(&key(), 1).await.unwrap().is_allowed());
    let calls = wire.calls();
    let taken = node.acquire(&key(), 5).await.unwrap();
    assert_eq!(taken.remaining(), Some(994));
    let back = node.refund(&key(), 2, Some(taken.receipt())).await.unwrap();
    assert_eq!(back.remaining(), Some(996));
    let reserved = node
        .apply(&key(), Op::Reserve(5))
        .into_future()
        .await
        .unwrap();
    let settle = Op::Settle(8, reserved.receipt());
    let settled = node.apply(&key(), settle).into_future().await.unwrap();
    assert_eq!((settled.charged(), settled.remaining()), (3, Some(988)));
    assert_eq!(wire.calls(), calls);
    sleep(SECOND).await;
    assert_eq!(left(&node).await, 988);
    // The store gives back what it has counted.
    let _ = node
        .refund(&key(), 1, Some(settled.receipt()))
        .await
        .unwrap();
    assert_eq!(left(&node).await, 989);
}

/// A node does not take a key for new that it has counted in another tier, or by other quotas.
#[tokio::test(start_paused = true)]
async fn other_tier_and_changed_quota_begin_with_a_question() {
    let wire = Wire::new();
    let quota = Quota::per_hour(1).burst(100);
    let builder = eventual(quota, 50, 1).tier("gold", quota);
    let node = builder.build_on(wire.clone()).unwrap();
    let _ = node.acquire(&Key::from("bob"), 1).await.unwrap();
    assert_eq!(at_once(&node, 40), 40);
    let gold = Tier::named("gold");
    let first = testkit::apply_in(&node, &gold, &key(), Op::Acquire(1));
    assert!(matches!(first, Pending::Later(_)));
    drop(first.await);
    node.set_quota("default", Quota::per_hour(1).burst(90))
        .unwrap();
    assert!(matches!(node.acquire(&key(), 1), Pending::Later(_)));
}

/// Nor one whose units it has used, or that it has blocked, without counting any itself.
#[tokio::test(start_paused = true)]
async fn key_that_was_used_or_blocked_here_is_not_new() {
    let wire = Wire::new();
    let node = &nodes(1, Quota::per_hour(1).burst(100), 50, &wire)[0];
    let _ = node.acquire(&Key::from("bob"), 1).await.unwrap();
    let hit = node.apply(&Key::from("hit"), Op::Hit(100)).into_future();
    let _ = hit.await.unwrap();
    let _ = node.block(&Key::from("blocked"), 600 * SECOND).await;
    for key in ["hit", "blocked"] {
        let next = node.acquire(&Key::from(key), 1).await.unwrap();
        assert!(next.is_denied(), "{key}: {next:?}");
        // The entry expires meanwhile.
        sleep(60 * SECOND).await;
        for _ in 0..4 {
            let next = node.acquire(&Key::from(key), 1).await.unwrap();
            assert!(next.is_denied(), "{key}: {next:?}");
            sleep(20 * SECOND).await;
        }
    }
}

/// The store decided about a key without room in the table: it is not new when there is.
#[tokio::test(start_paused = true)]
async fn key_that_was_denied_is_not_new_later() {
    let wire = Wire::new();
    let quota = Quota::per_hour(1).burst(20);
    let builder = eventual(quota, 10, 1).tier("second", Quota::per_second(20).burst(20));
    let node = builder.max_leases(4).build_on(wire.clone()).unwrap();
    let second = Tier::named("second");
    // Four keys that hold their places for a second.
    for number in 0..4 {
        for _ in 0..2 {
            let taken = testkit::apply_in(&node, &second, &Key::from(number), Op::Acquire(10));
            let _ = taken.into_future().await.unwrap();
        }
    }
    let mut passed = 0;
    for _ in 0..40 {
        passed += u64::from(node.acquire(&key(), 1).await.unwrap().is_allowed());
    }
    sleep(5 * SECOND).await;
    for _ in 0..40 {
        passed += u64::from(node.acquire(&key(), 1).await.unwrap().is_allowed());
    }
    assert_eq!(passed, 20);
}

/// A key whose entry has expired is as good as one that was never seen.
#[tokio::test(start_paused = true)]
async fn key_that_comes_seldom_never_waits() {
    let wire = Wire::new();
    let node = &nodes(1, Quota::per_second(10), 5, &wire)[0];
    let _ = node.acquire(&Key::from("bob"), 1).await.unwrap();
    for _ in 0..20 {
        sleep(2 * SECOND).await;
        let answer = node.acquire(&key(), 1);
        assert!(matches!(answer, Pending::Ready(_)));
    }
}

/// At four times the limit, after something that the store alone could decide.
#[tokio::test(start_paused = true)]
async fn scarce_units_are_denied_here() {
    let wire = Wire::new();
    let node = nodes(1, Quota::per_second(10_000).burst(200), 100, &wire);
    let passed = Passed::new(&wire);
    passed.load(&node, (40, MS), SECOND).await;
    let before = node[0].mode_stats().asked;
    let part = node[0].apply(&key(), Op::AcquireUpTo(5));
    tokio::spawn(part.into_future());
    passed.load(&node, (40, MS), SECOND).await;
    let requested = node[0].mode_stats().asked - before;
    assert!(requested < 100, "{requested} of 40,000 waited");
    assert!(passed.count() > 19_000, "{}", passed.count());
}

/// A cost that never fits takes nothing from others.
#[tokio::test(start_paused = true)]
async fn costs_beyond_the_limit_have_nobody_wait() {
    let wire = Wire::new();
    let node = nodes(1, Quota::per_second(1_000), 100, &wire);
    let passed = Passed::new(&wire);
    passed.load(&node, (1, 2 * MS), 100 * MS).await;
    let before = node[0].mode_stats().asked;
    for _ in 0..100 {
        let huge = node[0].acquire(&key(), 5_000);
        tokio::spawn(huge.into_future());
        passed.load(&node, (1, 2 * MS), 2 * MS).await;
    }
    let requested = node[0].mode_stats().asked - before;
    assert_eq!(requested, 100, "only those costs");
}

/// Settings that are invalid at first are invalid later.
#[test]
fn quotas_that_can_not_be_counted_afterwards_are_refused() {
    let quota = Quota::per_second(100);
    let node = &nodes(1, quota, 50, &Wire::new())[0];
    for (other, why) in [
        (quota.leaky_bucket(9), "leaky bucket"),
        (Quota::per_second(40), "smallest capacity"),
        (Quota::per_second(100).fixed_window().uncapped(), "uncapped"),
    ] {
        let error = node.set_quota("default", other).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    node.set_quota("default", Quota::per_second(60)).unwrap();
}

/// A dropped limiter reports its spent units.
#[tokio::test(start_paused = true)]
async fn units_of_a_node_that_is_dropped_are_counted() {
    let wire = Wire::new();
    let mut nodes = nodes(2, Quota::per_day(1_000), 500, &wire);
    let _ = nodes[0].acquire(&Key::from("bob"), 1).await.unwrap();
    assert_eq!(at_once(&nodes[0], 100), 100);
    drop(nodes.remove(0));
    sleep(10 * MS).await;
    assert_eq!(left(&nodes[0]).await, 900);
}

/// A table that is full forgets no key that is not as good as new: those beyond call the store.
#[tokio::test(start_paused = true)]
async fn keys_beyond_the_table_are_strict() {
    let wire = Wire::new();
    let builder = eventual(Quota::per_day(10), 5, 1).max_leases(4);
    let node = builder.build_on(wire.clone()).unwrap();
    for _ in 0..20 {
        for number in 0..8 {
            let _ = node.acquire(&Key::from(number), 1).await;
        }
        sleep(10 * MS).await;
    }
    sleep(SECOND).await;
    for number in 0..8 {
        let look = node.peek(&Key::from(number), 1).await.unwrap();
        assert_eq!(look.remaining(), Some(0));
    }
    let stats = node.mode_stats();
    assert!(stats.local < 20 * 8, "{stats:?}");
}
