//! `OnChange::Fresh` on a store that all nodes share: nodes with old and new numbers count apart, in
//! every mode.

use std::{slice, time::Duration};

use tokio::time::sleep;
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Quota,
    clock::ManualClock,
    decision::Op,
    limiter::{OnChange, Tier},
    shared::{MemoryStore, Mode, RedisLimiterBuilder, SharedLimiter, Store},
};

use crate::leased::faulty_store::Wire;

const TWO: Quota = Quota::per_minute(2);
const FIVE: Quota = Quota::per_minute(5);
const SECOND: Duration = Duration::from_secs(1);

fn alice() -> Key {
    Key::from("alice")
}

fn builder(quota: Quota) -> RedisLimiterBuilder {
    SharedLimiter::builder(quota)
        .name("login")
        .on_change(OnChange::Fresh)
        .on_failure(OnFailure::deny())
}

fn node(quota: Quota, store: &MemoryStore) -> SharedLimiter<MemoryStore> {
    builder(quota).build_on(store.clone()).unwrap()
}

fn raised() -> [(Quota, Quota); 5] {
    [
        (TWO, FIVE),
        (TWO.leaky_bucket(1), FIVE.leaky_bucket(4)),
        (TWO.fixed_window(), FIVE.fixed_window()),
        (TWO.sliding_window(), FIVE.sliding_window()),
        (TWO.sliding_log(), FIVE.sliding_log()),
    ]
}

async fn take<S: Store>(limiter: &SharedLimiter<S>, most: u64) -> Decision {
    limiter.acquire_up_to(&alice(), most).await.unwrap()
}

fn memory() -> MemoryStore {
    MemoryStore::with_clock(ManualClock::new())
}

#[tokio::test]
async fn raised_limit_frees_at_once_and_a_change_back_keeps_the_counts() {
    for (two, five) in raised() {
        let store = memory();
        let limiter = node(two, &store);
        assert_eq!(take(&limiter, 9).await.charged(), 2);
        assert!(limiter.acquire(&alice(), 1).await.unwrap().is_denied());
        assert_eq!(take(&node(five, &store), 4).await.charged(), 4, "{five:?}");
        let back = node(two, &store);
        assert!(back.acquire(&alice(), 1).await.unwrap().is_denied());
        assert_eq!(take(&node(five, &store), 9).await.charged(), 1, "{five:?}");
    }
}

#[tokio::test]
async fn old_and_new_nodes_never_undo_each_other() {
    for (two, five) in raised() {
        let store = memory();
        let [old, new] = [two, five].map(|quota| node(quota, &store));
        let mut passed = [0, 0];
        for _ in 0..20 {
            passed[0] += old.acquire(&alice(), 1).await.unwrap().charged();
            passed[1] += new.acquire(&alice(), 1).await.unwrap().charged();
        }
        assert_eq!(passed, [2, 5], "{five:?}");
        // A restart with either file continues.
        assert_eq!(take(&node(two, &store), 9).await.charged(), 0);
        assert_eq!(take(&node(five, &store), 9).await.charged(), 0);
    }
}

#[tokio::test]
async fn receipt_from_before_gives_nothing() {
    for (twenty, more) in [
        (FIVE.burst(20), FIVE.burst(21)),
        (
            Quota::per_minute(20).fixed_window(),
            Quota::per_minute(21).fixed_window(),
        ),
        (
            Quota::per_minute(20).sliding_log(),
            Quota::per_minute(21).sliding_log(),
        ),
    ] {
        let store = memory();
        let old = node(twenty, &store);
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(old.acquire(&alice(), 1).await.unwrap());
        }
        let limiter = node(more, &store);
        let mut passed = 0;
        for decision in &open {
            passed += limiter.acquire(&alice(), 1).await.unwrap().charged();
            let op = Op::Settle(0, decision.receipt());
            let _ = limiter.apply(&alice(), op).await.unwrap();
        }
        passed += take(&limiter, 99).await.charged();
        assert_eq!(passed, 21, "{more:?}");
    }
}

#[tokio::test]
async fn blocks_end_and_tiers_keep_sharing() {
    let store = memory();
    let build = |quota| {
        let builder = builder(quota).tier("pro", FIVE).block_for(600 * SECOND);
        builder.build_on(store.clone()).unwrap()
    };
    let limiter = build(TWO);
    let pro = Tier::named("pro");
    let upto = Op::AcquireUpTo(99);
    let passed = testkit::apply_in(&limiter, &pro, &alice(), upto.clone()).await;
    assert_eq!(passed.unwrap().charged(), 5);
    assert!(limiter.acquire(&alice(), 1).await.unwrap().is_denied());
    assert!(limiter.peek(&alice(), 1).await.unwrap().is_blocked());
    let limiter = build(FIVE);
    let mut passed = 0;
    for _ in 0..5 {
        for tier in [&Tier::DEFAULT, &pro] {
            let taken = testkit::apply_in(&limiter, tier, &alice(), Op::Reserve(1)).await;
            passed += taken.unwrap().charged();
        }
    }
    assert_eq!(passed, 5);
}

/// A running limiter keeps its counts, and with them its place in the store.
#[tokio::test]
async fn changed_quota_of_a_running_limiter_keeps_the_counts() {
    for (two, five) in raised() {
        let (kept, fresh) = (memory(), memory());
        let plain = SharedLimiter::builder(two).name("login");
        let plain = plain.on_failure(OnFailure::deny()).build_on(kept);
        let mut left = Vec::new();
        for limiter in [plain.unwrap(), node(two, &fresh)] {
            assert_eq!(take(&limiter, 9).await.charged(), 2);
            limiter.set_quota("default", five).unwrap();
            left.push(take(&limiter, 9).await.charged());
        }
        assert_eq!(left[0], left[1], "{five:?}");
        assert_eq!(take(&node(two, &fresh), 9).await.charged(), 0, "{five:?}");
        assert_eq!(take(&node(five, &fresh), 9).await.charged(), 5, "{five:?}");
    }
}

/// Kept counts stand where they stood before there was a choice.
#[tokio::test]
async fn keep_is_the_default_and_counts_in_one_place() {
    let store = memory();
    let build = |builder: RedisLimiterBuilder| builder.build_on(store.clone()).unwrap();
    let plain = || SharedLimiter::builder(FIVE).name("login");
    assert_eq!(take(&build(plain()), 3).await.charged(), 3);
    let kept = build(plain().on_change(OnChange::Keep));
    assert_eq!(take(&kept, 9).await.charged(), 2);
    // One that starts afresh counts elsewhere from the start.
    assert_eq!(
        take(&build(plain().on_change(OnChange::Fresh)), 9)
            .await
            .charged(),
        5
    );
}

/// Takes a unit a millisecond from each node; the units that passed.
async fn load(nodes: &[SharedLimiter<Wire>], times: u32) -> u64 {
    let mut passed = 0;
    for _ in 0..times {
        for node in nodes {
            let decision = node.acquire(&alice(), 1).await.unwrap();
            passed += decision.charged();
        }
        sleep(Duration::from_millis(1)).await;
    }
    passed
}

/// A node that held units of the old limit gave them back to where they came from, and its successor takes
/// none of the old receipts for the new limit. A node with the old numbers continues with its own.
#[tokio::test(start_paused = true)]
async fn leases_of_the_old_limit_go_back_to_it() {
    let (old, new) = (
        Quota::per_hour(1).burst(1_000),
        Quota::per_hour(1).burst(1_500),
    );
    let wire = Wire::new();
    let leased = |quota, seed| {
        let builder = builder(quota).mode(Mode::leased().length(SECOND));
        builder.seed(seed).build_on(wire.clone()).unwrap()
    };
    let nodes = [leased(old, 1), leased(old, 2)];
    let before = load(&nodes, 100).await;
    assert_eq!(before, 200);
    let open = nodes[0].acquire(&alice(), 3).await.unwrap();
    assert!(open.is_leased());
    let [first, other] = nodes;
    drop(first);
    let successor = [leased(new, 3)];

    let mut passed = load(&successor, 100).await;
    let refunded = successor[0].refund(&alice(), 3, Some(open.receipt())).await;
    assert!(refunded.is_ok());
    passed += load(&successor, 2_000).await;
    assert_eq!(passed, 1_500);
    // The first node's units were returned; the receipt returned nothing.
    let rest = load(&[other], 3_000).await;
    assert_eq!(before + 3 + rest, 1_000);
}

#[tokio::test(start_paused = true)]
async fn eventual_nodes_start_afresh() {
    const AHEAD: u64 = 20;
    let (old, new) = (Quota::per_hour(1).burst(200), Quota::per_hour(1).burst(300));
    let wire = Wire::new();
    let eventual = |quota, seed| {
        let mode = Mode::eventual(Duration::from_millis(50)).ahead(AHEAD as u32);
        let builder = builder(quota).mode(mode).seed(seed);
        builder.build_on(wire.clone()).unwrap()
    };
    let nodes = [eventual(old, 1), eventual(old, 2)];
    let before = load(&nodes, 500).await;
    assert!((200..=200 + 2 * AHEAD).contains(&before), "{before}");
    let successor = eventual(new, 3);
    let passed = load(slice::from_ref(&successor), 1_000).await;
    assert!((300..=300 + AHEAD).contains(&passed), "{passed}");
    assert_eq!(
        load(&nodes[1..], 500).await,
        0,
        "the other has the old limit"
    );
    let more = load(&[successor, eventual(new, 4)], 500).await;
    assert!(more <= AHEAD, "{more}");
    // Back to the old numbers: nothing of them is left.
    let back = load(&[eventual(old, 5)], 500).await;
    assert!(back <= AHEAD, "{back}");
}
