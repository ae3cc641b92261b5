//! The contract of stores, for each there is, and what a limiter does when its store does not keep it.
#![allow(clippy::unwrap_used)]

mod compare_and_swap;
mod contract;
mod database_in_memory;
mod eventual;
mod failing;
mod fresh_counts_after_a_change;
mod leased;
mod quotas_by_time_of_day;
mod store_breaker;
mod wall_clock;

use std::time::Duration;

use testkit::{store_contract::StoreBench, tokio_paused_clock::START};
use tokio::time::advance;
use tower_ratelimit::{
    AnyLimiter, OnFailure, Quota, RedisLimiter,
    clock::{ManualClock, Timestamp},
    shared::{Cas, MemoryStore},
};

use database_in_memory::Versions;

/// A store, and the clock that it goes by, if that is not tokio's.
struct Bench {
    clock: ManualClock,
    store: AnyStore,
}

enum AnyStore {
    Memory(MemoryStore),
    Cas(Versions),
    #[cfg(target_os = "linux")]
    Redis(
        tower_ratelimit::RedisStore,
        #[allow(dead_code, reason = "it runs until it is dropped")] Box<testkit::servers::Server>,
    ),
}

impl Bench {
    fn new(store: impl FnOnce(ManualClock) -> AnyStore) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(START));
        Self {
            store: store(clock.clone()),
            clock,
        }
    }

    fn memory() -> Self {
        Self::new(|clock| AnyStore::Memory(MemoryStore::with_clock(clock)))
    }

    fn versions() -> Self {
        Self::new(|_| AnyStore::Cas(Versions::new()))
    }

    #[cfg(target_os = "linux")]
    async fn redis() -> Self {
        let server = testkit::servers::Server::start().await;
        let store = tower_ratelimit::RedisStore::builder();
        // A busy machine must not look like a failing server.
        let store = store.deadline(Duration::from_secs(20));
        let store = store.connect(&server.url()).unwrap();
        Self::new(|_| AnyStore::Redis(store, Box::new(server)))
    }
}

impl StoreBench for Bench {
    fn node(&self, name: &str, quota: Quota) -> AnyLimiter {
        let builder = RedisLimiter::builder(quota).name(name);
        let builder = builder
            .remember_denials(false)
            .on_failure(OnFailure::deny());
        match &self.store {
            AnyStore::Memory(store) => AnyLimiter::new(builder.build_on(store.clone()).unwrap()),
            AnyStore::Cas(store) => {
                AnyLimiter::new(builder.build_on(Cas::new(store.clone())).unwrap())
            }
            #[cfg(target_os = "linux")]
            AnyStore::Redis(store, _) => {
                AnyLimiter::new(builder.test_clock(self.clock.clone()).build(store).unwrap())
            }
        }
    }

    async fn advance(&self, time: Duration) {
        match self.store {
            AnyStore::Cas(_) => advance(time).await,
            _ => self.clock.advance(time),
        }
    }
}
