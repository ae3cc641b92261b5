//! `OnChange::Fresh` on a store that all nodes share: nodes with old and new numbers count apart, in
//! every mode.

use std::time::Duration;

use tokio::time::sleep;
use tower_ratelimit::{
    Decision, Key, Limiter as _, ManualClock, OnChange, OnFailure, Op, Quota, StoreError,
    StoreErrorKind,
    limiter::Tier,
    shared::{Call, MemoryStore, Mode, RedisLimiterBuilder, Reply, SharedLimiter, Store},
};

use crate::leased::wire::Wire;

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
        // The denial is remembered, and forgotten with the change.
        assert!(limiter.acquire(&alice(), 1).await.unwrap().is_denied());
        limiter.set_quota("default", five).unwrap();
        assert_eq!(take(&limiter, 4).await.charged(), 4, "{five:?}");
        limiter.set_quota("default", two).unwrap();
        assert!(limiter.acquire(&alice(), 1).await.unwrap().is_denied());
        limiter.set_quota("default", five).unwrap();
        assert_eq!(take(&limiter, 9).await.charged(), 1, "{five:?}");
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
        let limiter = node(twenty, &memory());
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(limiter.acquire(&alice(), 1).await.unwrap());
        }
        limiter.set_quota("default", more).unwrap();
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
    let build = |store: &MemoryStore| {
        let builder = builder(TWO).tier("pro", FIVE).block_for(600 * SECOND);
        builder.build_on(store.clone()).unwrap()
    };
    let store = memory();
    let limiter = build(&store);
    let pro = Tier::named("pro");
    let upto = Op::AcquireUpTo(99);
    let passed = limiter.apply_in(&pro, &alice(), upto.clone()).await;
    assert_eq!(passed.unwrap().charged(), 5);
    assert!(limiter.acquire(&alice(), 1).await.unwrap().is_denied());
    assert!(limiter.peek(&alice(), 1).await.unwrap().is_blocked());
    limiter.set_quota("default", FIVE).unwrap();
    let mut passed = 0;
    for _ in 0..5 {
        for tier in [&Tier::DEFAULT, &pro] {
            let taken = limiter.apply_in(tier, &alice(), Op::Reserve(1)).await;
            passed += taken.unwrap().charged();
        }
    }
    assert_eq!(passed, 5);
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

/// A store that fails.
#[derive(Clone)]
struct Failing;

impl Store for Failing {
    async fn transact(&self, _: &str, _: &Call<'_>) -> Result<Reply, StoreError> {
        Err(StoreError::new(StoreErrorKind::Other, "no table"))
    }
}

#[tokio::test(start_paused = true)]
async fn fallback_starts_afresh_too() {
    for (two, five) in raised() {
        let limiter = builder(two).on_failure(OnFailure::local());
        let limiter = limiter.build_on(Failing).unwrap();
        let first = take(&limiter, 9).await;
        assert!(first.is_degraded() && first.charged() == 2, "{first:?}");
        limiter.set_quota("default", five).unwrap();
        let receipt = Some(first.receipt());
        assert_eq!(take(&limiter, 3).await.charged(), 3, "{five:?}");
        let _ = limiter.refund(&alice(), 2, receipt).await.unwrap();
        assert_eq!(take(&limiter, 9).await.charged(), 2, "{five:?}");
    }
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

/// A node that holds units of the old limit gives them back to where they came from, and takes none
/// of the old receipts for the new limit. A node with the old numbers continues with its own.
#[tokio::test(start_paused = true)]
async fn leases_of_the_old_limit_go_back_to_it() {
    let (old, new) = (
        Quota::per_hour(1).burst(1_000),
        Quota::per_hour(1).burst(1_500),
    );
    let wire = Wire::new();
    let leased = |seed| {
        let builder = builder(old).mode(Mode::leased().length(SECOND));
        builder.seed(seed).build_on(wire.clone()).unwrap()
    };
    let nodes = [leased(1), leased(2)];
    let before = load(&nodes, 100).await;
    assert_eq!(before, 200);
    let open = nodes[0].acquire(&alice(), 3).await.unwrap();
    assert!(open.is_leased());
    nodes[0].set_quota("default", new).unwrap();

    let mut passed = load(&nodes[..1], 100).await;
    let refunded = nodes[0].refund(&alice(), 3, Some(open.receipt())).await;
    assert!(refunded.is_ok());
    passed += load(&nodes[..1], 2_000).await;
    assert_eq!(passed, 1_500);
    // The first node's units were returned; the receipt returned nothing.
    let rest = load(&nodes[1..], 3_000).await;
    assert_eq!(before + 3 + rest, 1_000);
}

#[tokio::test(start_paused = true)]
async fn eventual_nodes_start_afresh() {
    const AHEAD: u64 = 20;
    let (old, new) = (Quota::per_hour(1).burst(200), Quota::per_hour(1).burst(300));
    let wire = Wire::new();
    let eventual = |seed| {
        let mode = Mode::eventual(Duration::from_millis(50)).ahead(AHEAD as u32);
        builder(old)
            .mode(mode)
            .seed(seed)
            .build_on(wire.clone())
            .unwrap()
    };
    let nodes = [eventual(1), eventual(2)];
    let before = load(&nodes, 500).await;
    assert!((200..=200 + 2 * AHEAD).contains(&before), "{before}");
    nodes[0].set_quota("default", new).unwrap();
    let passed = load(&nodes[..1], 1_000).await;
    assert!((300..=300 + AHEAD).contains(&passed), "{passed}");
    assert_eq!(
        load(&nodes[1..], 500).await,
        0,
        "the other has the old limit"
    );
    nodes[1].set_quota("default", new).unwrap();
    let more = load(&nodes, 500).await;
    assert!(more <= AHEAD, "{more}");
    // Back to the old numbers: nothing of them is left.
    nodes[0].set_quota("default", old).unwrap();
    let back = load(&nodes[..1], 500).await;
    assert!(back <= AHEAD, "{back}");
}
