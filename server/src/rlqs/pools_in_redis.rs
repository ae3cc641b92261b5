//! The pools of all instances, in Redis.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_ratelimit::{
    Key, OnFailure, RedisStore,
    shared::{CompareAndSwap as _, RedisValues, Versioned, Write},
    store::StoreError,
};
use tracing::warn;

/// The name in keys.
const NAME: &str = "rlqs";

/// The time between two lines about failures: each pool has its own.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The values of pools, and what to do without them.
#[derive(Debug)]
pub(super) struct PoolsInRedis {
    values: Values,
    pub(super) on_failure: OnFailure,
    logged_at: Mutex<Option<Instant>>,
    random: RandomState,
    numbers: AtomicU64,
}

#[derive(Debug)]
enum Values {
    Redis(RedisValues),
    #[cfg(test)]
    Fake(super::tests::fake_values::FakeValues),
}

/// The bytes of a pool and their version, and Redis's time.
pub(super) type Loaded = (Versioned<Vec<u8>>, Duration);

impl PoolsInRedis {
    pub(super) fn new(store: &RedisStore, on_failure: OnFailure) -> Self {
        match RedisValues::new(store, NAME) {
            Ok(values) => Self::of(Values::Redis(values), on_failure),
            Err(_) => unreachable!("the name is accepted"),
        }
    }

    #[cfg(test)]
    pub(super) fn fake(
        values: super::tests::fake_values::FakeValues,
        on_failure: OnFailure,
    ) -> Self {
        Self::of(Values::Fake(values), on_failure)
    }

    fn of(values: Values, on_failure: OnFailure) -> Self {
        Self {
            values,
            on_failure,
            logged_at: Mutex::default(),
            random: RandomState::new(),
            numbers: AtomicU64::new(0),
        }
    }

    /// A random number.
    pub(super) fn random(&self) -> u64 {
        self.random.hash_one(self.numbers.fetch_add(1, Relaxed))
    }

    pub(super) async fn load(&self, subject: &Key) -> Result<Loaded, StoreError> {
        let loaded = match &self.values {
            Values::Redis(values) => values.load(&values.name_of(subject)).await,
            #[cfg(test)]
            Values::Fake(values) => values.load(&subject.to_text()).await,
        };
        loaded.map(|(found, time)| (found, Duration::from_micros(time.as_micros())))
    }

    /// Writes a pool if it still has this version.
    pub(super) async fn swap(
        &self,
        subject: &Key,
        version: Option<Vec<u8>>,
        new: &Write,
    ) -> Result<bool, StoreError> {
        let swapped = match &self.values {
            Values::Redis(values) => values.swap(&values.name_of(subject), version, new).await,
            #[cfg(test)]
            Values::Fake(values) => values.swap(&subject.to_text(), version, new).await,
        };
        swapped.map(|version| version.is_some())
    }

    /// Logs a failure, at most once in a minute.
    pub(super) fn log(&self, error: &StoreError) {
        let mut logged_at = self
            .logged_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged_at = Some(Instant::now());
            warn!("shares of limits cannot be divided, and --on-failure decides: {error}");
        }
    }
}
