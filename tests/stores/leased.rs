//! Leased mode on a store in memory, in virtual time: nodes that share a limit, and calls that go
//! wrong.

mod faults;
pub(crate) mod faulty_store;
mod priority;
mod refunds_resets_and_changes;
mod totals;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{
    Decision, Key, Limiter as _, OnFailure, Quota,
    limiter::Pending,
    shared::{Mode, ModeStats, RedisLimiterBuilder, SharedLimiter},
};

use faulty_store::{Fault, Wire};

const MS: Duration = Duration::from_millis(1);
const LENGTH: Duration = Duration::from_secs(1);

type Node = SharedLimiter<Wire>;

fn key() -> Key {
    Key::from("alice")
}

/// A limiter's settings on a node that leases, with hashes that are the same for the same seed.
fn leased(quota: Quota, seed: u64) -> RedisLimiterBuilder {
    SharedLimiter::builder(quota)
        .name("test")
        .mode(Mode::leased().length(LENGTH))
        .on_failure(OnFailure::deny())
        .seed(seed)
}

/// Nodes that share a limit.
fn nodes(count: u64, quota: Quota, wire: &Wire) -> Vec<Node> {
    let node = |seed| leased(quota, seed).build_on(wire.clone()).unwrap();
    (0..count).map(node).collect()
}

/// Allowed requests of all nodes.
#[derive(Clone, Default)]
struct Passed(Arc<AtomicU64>);

impl Passed {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn note(&self, decision: &Decision) {
        if !decision.is_degraded() {
            self.0.fetch_add(decision.charged(), Ordering::Relaxed);
        }
    }

    /// Takes a unit from a node; one that has to be waited for is waited for elsewhere.
    fn request(&self, node: &Node) {
        match node.acquire(&key(), 1) {
            // Refused while the breaker is open: nothing has passed.
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

    /// Takes this many units from each node a millisecond, for this time.
    async fn load(&self, nodes: &[Node], each: u32, time: Duration) {
        for _ in 0..time.as_millis() {
            for node in nodes {
                for _ in 0..each {
                    self.request(node);
                }
            }
            sleep(MS).await;
        }
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

/// The decision about a cost that fits at once.
fn at_once_for(node: &Node, cost: u64) -> Option<Decision> {
    match node.acquire(&key(), cost) {
        Pending::Ready(answer) => answer.ok(),
        Pending::Later(_) => None,
    }
}

fn sum(nodes: &[Node], count: impl Fn(ModeStats) -> u64) -> u64 {
    nodes.iter().map(|node| count(node.mode_stats())).sum()
}

/// A quota that is not leased from the start is not leased after a change.
#[test]
fn quotas_that_only_the_store_counts_are_refused() {
    let quota = Quota::per_second(100);
    let node = &nodes(1, quota, &Wire::new())[0];
    for (other, why) in [
        (quota.leaky_bucket(9), "leaky bucket"),
        (quota.fixed_window().uncapped(), "uncapped"),
    ] {
        let error = node.set_quota("default", other).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    node.set_quota("default", quota.fixed_window()).unwrap();
}
