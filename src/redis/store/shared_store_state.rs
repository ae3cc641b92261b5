//! The state that all servers of a store share.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::script_by_digest::Script;
use crate::{
    lock::unpoisoned,
    store::{health::StoreWatch, runtime_thread::Home},
};

/// The settings of a store, and the counters and listeners for all of its servers.
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
}

impl StoreCommon {
    pub(super) fn new(
        prefix: String,
        deadline: Duration,
        has_sharding_proxy: bool,
        home: Home,
        watch: Arc<StoreWatch>,
    ) -> Self {
        Self {
            prefix,
            deadline,
            has_sharding_proxy,
            home,
            scripts: Mutex::default(),
            watch,
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
}
