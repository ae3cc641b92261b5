//! The store in this process's memory: [`MemoryStore`].

use std::{collections::HashMap, fmt, sync::Arc, sync::Mutex};

use super::{
    user_store::Store,
    wire::{Reply, StoreCall, Write},
};
use tower_ratelimit_core::{
    clock::{Clock, OsClock, SharedClock, Timestamp},
    lock::unpoisoned,
};
use tower_ratelimit_store::error::StoreError;

/// A [`Store`] in memory: for tests and simulations, in which limiters are nodes that share it.
///
/// A clone is a handle to the same values. Expired values are removed when the number of values has
/// doubled since the last removal; there is no other bound. A service with one process uses a
/// [`LocalLimiter`](tower_ratelimit_core::LocalLimiter).
///
/// ```
/// # tokio_test();
/// # fn tokio_test() {
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// use tower_ratelimit::{Key, Quota, shared::{MemoryStore, SharedLimiter}};
///
/// let store = MemoryStore::new();
/// let node = || SharedLimiter::builder(Quota::per_second(10)).build_on(store.clone());
/// let (one, two) = (node()?, node()?);
/// one.acquire(&Key::from("alice"), 7).await?;
/// assert_eq!(two.acquire(&Key::from("alice"), 1).await?.remaining(), Some(2));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    clock: SharedClock,
    values: Mutex<Values>,
}

/// Values, each with the time at which it expires.
#[derive(Default)]
struct Values {
    all: HashMap<String, (Vec<u8>, Timestamp)>,
    /// Number of values after the last removal of expired ones.
    kept: usize,
}

impl MemoryStore {
    /// Creates an empty store on the system's clock.
    pub fn new() -> Self {
        Self::with_clock(OsClock::new())
    }

    /// Creates an empty store on this clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self(Arc::new(Inner {
            clock: SharedClock::new(clock),
            values: Mutex::default(),
        }))
    }

    /// Number of values, including expired ones that have not been removed yet.
    pub fn len(&self) -> usize {
        unpoisoned(self.0.values.lock()).all.len()
    }

    /// Whether the store has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all values.
    pub fn clear(&self) {
        *unpoisoned(self.0.values.lock()) = Values::default();
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    async fn transact(&self, key: &str, call: &StoreCall<'_>) -> Result<Reply, StoreError> {
        let mut values = unpoisoned(self.0.values.lock());
        // Read under the lock, so that no value is later than now unless the clock stepped back.
        let now = self.0.clock.read().wall;
        let applied = call.apply(values.get(key, now), now)?;
        if let Some(write) = applied.write {
            values.put(key, write, now);
        }
        Ok(applied.reply)
    }
}

impl Values {
    fn get(&self, key: &str, now: Timestamp) -> Option<&[u8]> {
        let (value, expires_at) = self.all.get(key)?;
        (*expires_at > now).then_some(value)
    }

    fn put(&mut self, key: &str, write: Write, now: Timestamp) {
        let expires_at = now.saturating_add(write.expires_in);
        self.all.insert(key.to_owned(), (write.value, expires_at));
        if self.all.len() > 2 * self.kept.max(64) {
            self.all.retain(|_, (_, expires_at)| *expires_at > now);
            self.kept = self.all.len();
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("clock", &self.0.clock)
            .field("len", &self.len())
            .finish()
    }
}
