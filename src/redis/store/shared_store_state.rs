//! The state that all servers of a store share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::script_by_digest::Script;
use crate::{
    lock::unpoisoned,
    store::{breaker_guard::StoreWatch, runtime_thread::Home, stats::StoreStats},
};

/// The settings of a store, and the counters and listeners for all of its servers.
#[derive(Debug)]
pub(super) struct StoreCommon {
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    /// Whether the address is a proxy that sends each command to the server of its first key. `SCRIPT
    /// LOAD`, which has no key, would reach one server only.
    pub(super) has_sharding_proxy: bool,
    /// The runtime on which connections are opened and live.
    pub(super) home: Home,
    /// The scripts used by the store's limiters.
    scripts: Mutex<Vec<Script>>,
    pub(super) watch: Arc<StoreWatch>,
    pub(super) totals: Arc<Totals>,
}

/// Counters over all connections of a store.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Connections that were opened.
    pub(super) connections: AtomicU64,
    /// Scripts that were loaded.
    pub(super) loads: Arc<AtomicU64>,
}

impl StoreCommon {
    pub(super) fn new(
        prefix: String,
        deadline: Duration,
        has_sharding_proxy: bool,
        home: Home,
        watch: StoreWatch,
    ) -> Self {
        Self {
            prefix,
            deadline,
            has_sharding_proxy,
            home,
            scripts: Mutex::default(),
            watch: Arc::new(watch),
            totals: Arc::default(),
        }
    }

    /// Registers a script that a limiter of this store uses.
    pub(super) fn use_script(&self, script: &Script) {
        let mut scripts = unpoisoned(self.scripts.lock());
        if !scripts.iter().any(|known| known.is_same(script)) {
            scripts.push(script.clone());
        }
    }

    /// The scripts used by this store's limiters.
    pub(super) fn scripts(&self) -> Vec<Script> {
        unpoisoned(self.scripts.lock()).clone()
    }

    pub(super) fn stats(&self) -> StoreStats {
        let Totals { connections, loads } = &*self.totals;
        let connections = connections.load(Ordering::Relaxed);
        self.watch.stats(connections, loads.load(Ordering::Relaxed))
    }
}
