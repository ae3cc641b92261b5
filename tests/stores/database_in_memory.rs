//! A database in memory that compares and swaps.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use testkit::tokio_paused_clock::PausedClock;
use tokio::task::yield_now;
use tower_ratelimit::{
    clock::{Clock, Timestamp},
    shared::{CompareAndSwap, Versioned, Write},
    store::StoreError,
};

/// A value, its version, and when it is over.
type Row = (Vec<u8>, u64, Timestamp);

#[derive(Clone)]
pub(crate) struct Versions(Arc<Inner>);

struct Inner {
    clock: PausedClock,
    rows: Mutex<HashMap<String, Row>>,
    versions: AtomicU64,
    loads: AtomicU32,
    swaps: AtomicU32,
}

impl Versions {
    /// An empty database in a runtime whose time is paused.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            clock: PausedClock::new(),
            rows: Mutex::default(),
            versions: AtomicU64::new(0),
            loads: AtomicU32::new(0),
            swaps: AtomicU32::new(0),
        }))
    }

    pub(crate) fn clock(&self) -> PausedClock {
        self.0.clock
    }

    /// How many values were read and how many were to be written since the last call of this.
    pub(crate) fn statements(&self) -> (u32, u32) {
        let take = |count: &AtomicU32| count.swap(0, Ordering::Relaxed);
        (take(&self.0.loads), take(&self.0.swaps))
    }

    /// Removes all values, as an operator might.
    pub(crate) fn clear(&self) {
        self.0.rows.lock().unwrap().clear();
    }

    /// Gives each value another version, as one that is written again.
    pub(crate) fn touch(&self) {
        for row in self.0.rows.lock().unwrap().values_mut() {
            row.1 = self.next_version();
        }
    }

    fn next_version(&self) -> u64 {
        self.0.versions.fetch_add(1, Ordering::Relaxed)
    }
}

impl CompareAndSwap for Versions {
    type Version = u64;

    async fn load(&self, key: &str) -> Result<(Versioned<u64>, Timestamp), StoreError> {
        self.0.loads.fetch_add(1, Ordering::Relaxed);
        let now = self.0.clock.now();
        let row = self.0.rows.lock().unwrap().get(key).cloned();
        let row = row.filter(|(_, _, over_at)| *over_at > now);
        // Others come in between.
        yield_now().await;
        Ok((row.map(|(value, version, _)| (value, version)), now))
    }

    async fn swap(
        &self,
        key: &str,
        old: Option<u64>,
        new: &Write,
    ) -> Result<Option<u64>, StoreError> {
        self.0.swaps.fetch_add(1, Ordering::Relaxed);
        let now = self.0.clock.now();
        let mut rows = self.0.rows.lock().unwrap();
        let there = rows.get(key).filter(|(_, _, over_at)| *over_at > now);
        if there.map(|(_, version, _)| *version) != old {
            return Ok(None);
        }
        let version = self.next_version();
        let over_at = now.saturating_add(new.expires_in);
        rows.insert(key.to_owned(), (new.value.clone(), version, over_at));
        Ok(Some(version))
    }

    fn deadline(&self) -> Duration {
        // A test that has much to do must not look like a failing database.
        Duration::from_secs(20)
    }
}
