//! A server's part in a cluster.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use super::{
    health::StoreHealth,
    slots::{NodeAddress, Redirect},
};

/// The cluster, as its servers see it.
pub(super) trait Siblings: fmt::Debug + Send + Sync {
    /// Has the map of the slots fetched: a replica may have taken a server's place.
    fn fetch_soon(&self);

    /// Whether the server at this address has the key.
    fn has(&self, address: &NodeAddress, key: &[u8]) -> bool;

    /// The server at this host has named another one for a key.
    fn note(&self, host: Option<&str>, key: &[u8], redirect: &Redirect);

    /// The health of all servers together.
    fn health(&self) -> StoreHealth;
}

/// A server's part in a cluster.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) cluster: Weak<dyn Siblings>,
    /// None for the entry, which leads to any of them.
    pub(super) address: Option<NodeAddress>,
}

impl Membership {
    pub(super) fn cluster(&self) -> Option<Arc<dyn Siblings>> {
        self.cluster.upgrade()
    }
}
