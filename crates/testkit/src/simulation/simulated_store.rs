//! The store, seen by a node through the network.

use std::{collections::HashMap, future::pending, sync::Arc, time::Duration};

use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};
use tower_ratelimit::{
    clock::{Clock, Timestamp},
    shared::{CompareAndSwap, Reply, Store, StoreCall, Versioned, Write},
    store::StoreError,
};

use super::world::{DEADLINE, Life, Passage, World, lease, subject};

/// The values of a database with compare-and-swap, their versions and when they expire.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: HashMap<String, (Vec<u8>, u64, Timestamp)>,
    versions: u64,
}

impl Rows {
    fn load(&self, key: &str, now: Timestamp) -> Versioned<u64> {
        let row = self.rows.get(key);
        let row = row.filter(|(_, _, over_at)| *over_at > now);
        row.map(|(value, version, _)| (value.clone(), *version))
    }

    fn swap(&mut self, key: &str, old: Option<u64>, new: &Write, now: Timestamp) -> Option<u64> {
        let there = self.load(key, now).map(|(_, version)| version);
        if there != old {
            return None;
        }
        self.versions += 1;
        let over_at = now.saturating_add(new.expires_in);
        let row = (new.value.clone(), self.versions, over_at);
        self.rows.insert(key.to_owned(), row);
        Some(self.versions)
    }
}

/// A node's connection to the store.
#[derive(Clone)]
pub(super) struct SimStore {
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
}

impl SimStore {
    /// Delivers a call to the store, unless it is lost.
    async fn go(&self) -> Passage {
        self.world.awake(self.life.node).await;
        let passage = self.world.passage();
        pass(passage.there).await;
        if passage.request_is_lost || !self.world.is_reachable(&self.life) {
            return pending().await;
        }
        passage
    }

    /// Delivers the reply, unless it is lost.
    async fn come_back(&self, passage: &Passage) {
        pass(passage.back).await;
        if passage.reply_is_lost || !self.world.is_reachable(&self.life) {
            return pending().await;
        }
        self.world.awake(self.life.node).await;
    }

    /// Runs the call after this time, whatever its node does meanwhile.
    fn execute_late(&self, key: &str, call: &StoreCall<'_>, after: Duration) {
        let (store, key, call) = (self.clone(), key.to_owned(), call.to_late());
        tokio::spawn(async move {
            sleep(after).await;
            let _ = store.world.execute(&store.life, &key, &call.call()).await;
        });
    }
}

/// A message under way, until its node stops waiting.
struct UnderWay<'a>(&'a World, (u64, u64));

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.holdings().is_over(self.1);
    }
}

/// Waits this long, and at least until other tasks have run: no call takes zero time.
async fn pass(time: Duration) {
    if time.is_zero() {
        yield_now().await
    } else {
        sleep(time).await
    }
}

impl Store for SimStore {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        let (world, sent_at) = (&self.world, Instant::now());
        let who = subject(key).map(|subject| (self.life.number, subject));
        let lease_call = who.zip(lease(call));
        let _under_way = lease_call.map(|(who, clause)| {
            world.holdings().sent(who, clause);
            UnderWay(world, who)
        });
        if let Some(after) = world.late() {
            self.execute_late(key, call, after);
        }
        let passage = self.go().await;
        let (mut reply, mut done) = world.execute(&self.life, key, call).await;
        if let Some(after) = passage.again_after {
            pass(after).await;
            let again = world.execute(&self.life, key, call).await;
            if passage.replies_again {
                (reply, done) = again;
            }
        }
        self.come_back(&passage).await;
        if let (Some((who, clause)), Ok(reply)) = (lease_call, &reply)
            && let Some(answer) = reply.to_message()
        {
            world
                .holdings()
                .received(who, clause, &answer, (sent_at, done));
        }
        reply
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

impl CompareAndSwap for SimStore {
    type Version = u64;

    async fn load(&self, key: &str) -> Result<(Versioned<u64>, Timestamp), StoreError> {
        let passage = self.go().await;
        let now = self.world.clock.now();
        let found = self.world.rows().load(key, now);
        self.come_back(&passage).await;
        Ok((found, now))
    }

    async fn swap(
        &self,
        key: &str,
        old: Option<u64>,
        new: &Write,
    ) -> Result<Option<u64>, StoreError> {
        let passage = self.go().await;
        let swap = || {
            let now = self.world.clock.now();
            self.world.rows().swap(key, old, new, now)
        };
        let version = swap();
        if let Some(after) = passage.again_after {
            pass(after).await;
            swap();
        }
        self.come_back(&passage).await;
        Ok(version)
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }
}
