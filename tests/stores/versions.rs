//! A database in memory that compares and swaps.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::task::yield_now;
use tower_ratelimit::{
    Clock, ManualClock, StoreError, Timestamp,
    shared::{CompareAndSwap, Versioned, Write},
};

/// Values and their versions.
type Rows = HashMap<String, (Vec<u8>, u64)>;

#[derive(Clone)]
pub(crate) struct Versions {
    clock: ManualClock,
    rows: Arc<Mutex<Rows>>,
}

impl Versions {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self {
            clock,
            rows: Arc::default(),
        }
    }
}

impl CompareAndSwap for Versions {
    type Version = u64;

    async fn load(&self, key: &str) -> Result<(Versioned<u64>, Timestamp), StoreError> {
        let row = self.rows.lock().unwrap().get(key).cloned();
        let now = self.clock.now();
        // Others come in between.
        yield_now().await;
        Ok((row, now))
    }

    async fn swap(&self, key: &str, old: Option<u64>, new: &Write) -> Result<bool, StoreError> {
        let mut rows = self.rows.lock().unwrap();
        let is_as_before = rows.get(key).map(|(_, version)| *version) == old;
        if is_as_before {
            let row = (new.value.clone(), old.map_or(1, |version| version + 1));
            rows.insert(key.to_owned(), row);
        }
        Ok(is_as_before)
    }

    fn deadline(&self) -> Duration {
        // A busy machine must not look like a failing database.
        Duration::from_secs(20)
    }
}
