//! Nodes that count by themselves and exchange counts periodically, as other limiters do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;
use tower_ratelimit::clock::Clock as _;

use super::{
    INTERVAL,
    judge::Judge,
    world::{Life, World},
};

/// The units that all nodes have reported, by key.
#[derive(Debug, Default)]
pub(super) struct Totals(Mutex<BTreeMap<u64, u64>>);

/// A node that decides by its own counts.
pub(super) struct TimerNode {
    life: Arc<Life>,
    counts: Mutex<BTreeMap<u64, Counts>>,
}

/// The counts of one key.
#[derive(Debug)]
struct Counts {
    /// All units that the node has counted or received.
    known: Judge,
    /// Units admitted here since the last exchange.
    own: u64,
    /// The total at the last exchange.
    seen: u64,
}

impl TimerNode {
    pub(super) fn start(world: &Arc<World>, life: Arc<Life>, totals: &Arc<Totals>) -> Arc<Self> {
        // Nodes exchange their counts at different times.
        let millis = 1 + life.node as u64 * 7 % 50;
        let mut wait = Duration::from_millis(millis);
        let node = Arc::new(Self {
            life,
            counts: Mutex::default(),
        });
        let (it, world, totals) = (Arc::downgrade(&node), Arc::clone(world), Arc::clone(totals));
        tokio::spawn(async move {
            loop {
                sleep(wait).await;
                let Some(it) = it.upgrade() else { return };
                it.compare(&world, &totals).await;
                wait = INTERVAL;
            }
        });
        node
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u64, Counts>> {
        self.counts.lock().expect("no panic")
    }

    /// Admits all units or none.
    pub(super) fn acquire(&self, world: &World, key: u64, cost: u64) -> u64 {
        let mut counts = self.counts();
        let counts = counts.entry(key).or_insert_with(|| Counts {
            known: Judge::new(&world.setup.limit),
            own: 0,
            seen: 0,
        });
        let fits = counts.known.try_admit(world.clock.now(), cost);
        let units = if fits { cost } else { 0 };
        counts.own += units;
        units
    }

    /// Reports the counts of each key, and adds those of the others. Reports that do not arrive are
    /// lost.
    async fn compare(&self, world: &World, totals: &Totals) {
        let keys: Vec<u64> = self.counts().keys().copied().collect();
        for key in keys {
            let counts = self.counts().get_mut(&key).map(|counts| {
                let own = std::mem::take(&mut counts.own);
                (own, counts.seen)
            });
            let Some((own, seen)) = counts else { continue };
            let passage = world.passage();
            sleep(passage.there).await;
            if passage.request_is_lost || !world.is_reachable(&self.life) {
                continue;
            }
            let total = totals.add(key, own);
            sleep(passage.back).await;
            if passage.reply_is_lost || self.life.is_dead.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(counts) = self.counts().get_mut(&key) {
                counts.seen = total;
                counts.known.admit(world.clock.now(), total - seen - own);
            }
        }
    }
}

impl Totals {
    fn add(&self, key: u64, units: u64) -> u64 {
        let mut totals = self.0.lock().expect("no panic");
        let total = totals.entry(key).or_default();
        *total += units;
        *total
    }
}
