//! The contract of stores, for each there is, and what a limiter does when its store does not keep it.
#![allow(clippy::unwrap_used)]

mod contract;
mod failing;
mod leased;
mod versions;

use tower_ratelimit::{
    AnyLimiter, ManualClock, OnFailure, Timestamp,
    shared::{Cas, MemoryStore, RedisLimiterBuilder},
};

use versions::Versions;

/// A store, and the clock that it goes by.
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
        #[allow(dead_code, reason = "it runs until it is dropped")] testkit::servers::Server,
    ),
}

impl Bench {
    fn new(store: impl FnOnce(ManualClock) -> AnyStore) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_767_225_600));
        Self {
            store: store(clock.clone()),
            clock,
        }
    }

    fn memory() -> Self {
        Self::new(|clock| AnyStore::Memory(MemoryStore::with_clock(clock)))
    }

    fn versions() -> Self {
        Self::new(|clock| AnyStore::Cas(Versions::new(clock)))
    }

    #[cfg(target_os = "linux")]
    async fn redis() -> Self {
        let server = testkit::servers::Server::start().await;
        let store = tower_ratelimit::RedisStore::builder();
        // A busy machine must not look like a failing server.
        let store = store.deadline(std::time::Duration::from_secs(20));
        let store = store.connect(&server.url()).unwrap();
        Self::new(|_| AnyStore::Redis(store, server))
    }

    /// A node's limiter.
    fn node(&self, builder: RedisLimiterBuilder) -> AnyLimiter {
        let builder = builder.on_failure(OnFailure::deny());
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
}
