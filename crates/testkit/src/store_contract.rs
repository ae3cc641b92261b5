//! The contract of stores: what limiters on one, as nodes that share it, have to answer. Run by the
//! tests of each store that there is.

use std::{future::Future, time::Duration};

use crate::AGE;
use tower_ratelimit::{AnyLimiter, Decision, Key, Limiter as _, Quota, decision::Op};

/// A store to be tested.
pub trait StoreBench {
    /// A limiter of this name on the store, as a node has it: it remembers no denials, and fails
    /// where the store does.
    fn node(&self, name: &str, quota: Quota) -> AnyLimiter;

    /// Lets the store's clock run, which otherwise stands still.
    fn advance(&self, time: Duration) -> impl Future<Output = ()>;
}

const MINUTE: Duration = Duration::from_secs(60);

/// Ten a minute, by each algorithm that denies.
pub fn quotas() -> [Quota; 5] {
    let ten = Quota::per_minute(10);
    [
        ten,
        ten.refill_every(MINUTE),
        ten.fixed_window(),
        ten.sliding_window().slices(6),
        ten.sliding_log(),
    ]
}

fn two_nodes(bench: &impl StoreBench, name: &str, quota: Quota) -> [AnyLimiter; 2] {
    [(); 2].map(|()| bench.node(name, quota))
}

async fn acquire(limiter: &AnyLimiter, key: &Key) -> Decision {
    limiter.acquire(key, 1).await.unwrap()
}

/// All nodes count together, keys and names apart.
pub async fn one_limit(bench: &impl StoreBench) {
    for (at, quota) in quotas().into_iter().enumerate() {
        let [one, two] = two_nodes(bench, &format!("limit-{at}"), quota);
        let (alice, bob) = (Key::from("alice"), Key::from("bob"));
        for left in (0..5).rev() {
            assert!(acquire(&one, &alice).await.is_allowed(), "{quota:?}");
            let decision = acquire(&two, &alice).await;
            assert_eq!(decision.remaining(), Some(2 * left), "{quota:?}");
        }
        assert!(!acquire(&one, &alice).await.is_allowed(), "{quota:?}");
        assert!(!acquire(&two, &alice).await.is_allowed(), "{quota:?}");
        assert_eq!(acquire(&two, &bob).await.remaining(), Some(9), "{quota:?}");
        let [other, _] = two_nodes(bench, &format!("other-{at}"), quota);
        assert_eq!(acquire(&other, &alice).await.remaining(), Some(9));
    }
}

/// A denied request passes at the reported time, and not a microsecond before.
pub async fn exact_waits(bench: &impl StoreBench) {
    for (at, quota) in quotas().into_iter().enumerate() {
        let [one, two] = two_nodes(bench, &format!("waits-{at}"), quota);
        let key = Key::from("alice");
        assert!(one.acquire(&key, 10).await.unwrap().is_allowed());
        let wait = acquire(&two, &key).await.retry_after().unwrap();
        bench.advance(wait - Duration::from_micros(1)).await;
        assert!(!acquire(&two, &key).await.is_allowed(), "{quota:?}");
        bench.advance(Duration::from_micros(1)).await;
        assert!(acquire(&two, &key).await.is_allowed(), "{quota:?}");
    }
}

/// Refunds, resets and blocks of one node take effect on the other.
pub async fn corrections(bench: &impl StoreBench) {
    for (at, quota) in quotas().into_iter().enumerate() {
        let [one, two] = two_nodes(bench, &format!("corrections-{at}"), quota);
        let key = Key::from("alice");
        let charged = one.acquire(&key, 8).await.unwrap();
        let settled = Op::Settle(3, charged.receipt());
        two.apply(&key, settled).await.unwrap();
        let left = one.peek(&key, 0).await.unwrap().remaining();
        assert_eq!(left, Some(7), "{quota:?}");

        two.block(&key, MINUTE).await.unwrap();
        let blocked = acquire(&one, &key).await;
        assert!(blocked.is_blocked(), "{quota:?}");
        assert_eq!(blocked.retry_after(), Some(MINUTE));
        one.reset(&key).await.unwrap();
        assert_eq!(acquire(&two, &key).await.remaining(), Some(9), "{quota:?}");
    }
}

/// Exactly as many of many requests on two nodes at once pass as may.
pub async fn at_once(bench: &impl StoreBench) {
    let quota = Quota::per(100, AGE).fixed_window();
    let [one, two] = two_nodes(bench, "at-once", quota);
    let requested: Vec<_> = (0..300)
        .map(|at| {
            let limiter = if at % 2 == 0 {
                one.clone()
            } else {
                two.clone()
            };
            tokio::spawn(async move { acquire(&limiter, &Key::from("alice")).await.is_allowed() })
        })
        .collect();
    let mut passed = 0;
    for answer in requested {
        passed += u32::from(answer.await.unwrap());
    }
    assert_eq!(passed, 100);
}

/// A window that counts on counts the reports of both nodes, also beyond the limit.
pub async fn counts_on(bench: &impl StoreBench) {
    let quota = Quota::per_minute(10).fixed_window().uncapped();
    let [one, two] = two_nodes(bench, "counts-on", quota);
    let key = Key::from("alice");
    let rows = [
        (&one, 8, true, 8),
        (&two, 0, true, 8),
        (&two, 5, false, 13),
        (&one, 0, false, 13),
        (&one, 1, false, 14),
    ];
    for (node, units, passes, used) in rows {
        let decision = node.count(&key, units).await.unwrap();
        let reported = (decision.is_allowed(), decision.binding().used());
        assert_eq!(reported, (passes, Some(used)), "{units} more");
    }
    let wait = one.count(&key, 0).await.unwrap().retry_after().unwrap();
    bench.advance(wait).await;
    let fresh = two.count(&key, 10).await.unwrap();
    assert_eq!((fresh.is_allowed(), fresh.remaining()), (true, Some(0)));
}
