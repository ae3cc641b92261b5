//! The parts that all servers of a store share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{guard::StoreWatch, health::StoreStats, home::Home, script::Script};
use crate::lock::unpoisoned;

/// The settings of a store, and what is counted and observed for all its servers together.
#[derive(Debug)]
pub(super) struct StoreCommon {
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    /// The runtime that connections are made on, and live on.
    pub(super) home: Home,
    /// The scripts that the store's limiters use.
    scripts: Mutex<Vec<Script>>,
    pub(super) watch: Arc<StoreWatch>,
    pub(super) totals: Arc<Totals>,
}

/// Counts over all connections of a store.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Connections that were made.
    pub(super) connections: AtomicU64,
    /// Scripts that were loaded.
    pub(super) loads: Arc<AtomicU64>,
}

impl StoreCommon {
    pub(super) fn new(prefix: String, deadline: Duration, home: Home, watch: StoreWatch) -> Self {
        Self {
            prefix,
            deadline,
            home,
            scripts: Mutex::default(),
            watch: Arc::new(watch),
            totals: Arc::default(),
        }
    }

    /// A limiter of this store uses the script.
    pub(super) fn use_script(&self, script: &Script) {
        let mut scripts = unpoisoned(self.scripts.lock());
        if !scripts.iter().any(|known| known.is_same(script)) {
            scripts.push(script.clone());
        }
    }

    /// The scripts of this store's limiters.
    pub(super) fn scripts(&self) -> Vec<Script> {
        unpoisoned(self.scripts.lock()).clone()
    }

    pub(super) fn stats(&self) -> StoreStats {
        let Totals { connections, loads } = &*self.totals;
        let connections = connections.load(Ordering::Relaxed);
        self.watch.stats(connections, loads.load(Ordering::Relaxed))
    }
}
