//! Nodes that count by themselves and compare from time to time, as other limiters do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::{Decision, Key, LocalLimiter};

use super::world::{Life, World};

/// The time between two comparisons.
const INTERVAL: u64 = 50;

/// The units that all nodes have told of, by key.
#[derive(Debug, Default)]
pub(super) struct Totals(Mutex<BTreeMap<u64, u64>>);

/// A node that decides by what it knows.
pub(super) struct TimerNode {
    local: LocalLimiter,
    life: Arc<Life>,
    counts: Mutex<BTreeMap<u64, Counts>>,
}

/// The counts of one key.
#[derive(Debug, Default)]
struct Counts {
    /// Units that passed here since the last comparison.
    own: u64,
    /// The total then.
    seen: u64,
}

impl TimerNode {
    pub(super) fn start(world: &Arc<World>, life: Arc<Life>, totals: &Arc<Totals>) -> Arc<Self> {
        let limits = LocalLimiter::builder(world.setup.limit.quotas());
        let local = limits.clock(world.clock.clone()).build();
        let node = Arc::new(Self {
            local: local.expect("a limit that makes sense"),
            life,
            counts: Mutex::default(),
        });
        let (it, world, totals) = (Arc::downgrade(&node), Arc::clone(world), Arc::clone(totals));
        tokio::spawn(async move {
            let mut wait = node_offset(&it);
            loop {
                sleep(Duration::from_millis(wait)).await;
                let Some(it) = it.upgrade() else { return };
                it.compare(&world, &totals).await;
                wait = INTERVAL;
            }
        });
        node
    }

    pub(super) fn acquire(&self, key: u64, cost: u64) -> Decision {
        let decision = self.local.acquire(&Key::from(key), cost);
        let mut counts = self.counts.lock().expect("no panic");
        counts.entry(key).or_default().own += decision.charged();
        decision
    }

    /// Tells what was counted here, and counts what the others have. What does not arrive is lost.
    async fn compare(&self, world: &World, totals: &Totals) {
        let keys: Vec<u64> = {
            let counts = self.counts.lock().expect("no panic");
            counts.keys().copied().collect()
        };
        for key in keys {
            let own = {
                let mut counts = self.counts.lock().expect("no panic");
                std::mem::take(&mut counts.entry(key).or_default().own)
            };
            let passage = world.passage();
            sleep(passage.there).await;
            if passage.request_is_lost || !world.is_reachable(&self.life) {
                continue;
            }
            let total = {
                let mut totals = totals.0.lock().expect("no panic");
                let total = totals.entry(key).or_default();
                *total += own;
                *total
            };
            sleep(passage.back).await;
            if passage.reply_is_lost || self.life.is_dead.load(Ordering::Relaxed) {
                continue;
            }
            let mut counts = self.counts.lock().expect("no panic");
            let counts = counts.entry(key).or_default();
            let others = total - counts.seen - own;
            counts.seen = total;
            self.local.hit(&Key::from(key), others);
        }
    }
}

/// Nodes do not compare all at the same time.
fn node_offset(node: &std::sync::Weak<TimerNode>) -> u64 {
    let node = node.upgrade().map_or(0, |node| node.life.node as u64);
    1 + node * 7 % INTERVAL
}
