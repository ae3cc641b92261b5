//! The membership of a server in a cluster.

use std::sync::{Arc, Weak};

use crate::store::{
    error::{NodeAddress, Redirect},
    health::StoreHealth,
};

/// The cluster, as seen by its servers.
pub(super) trait Siblings: Send + Sync {
    /// Starts a fetch of the slot map: a replica may have replaced a server.
    fn fetch_soon(&self);

    /// Whether the server at this address owns the key's slot.
    fn has(&self, address: &NodeAddress, key: &[u8]) -> bool;

    /// Records that the server at this host names another one for a key.
    fn record_redirect(&self, host: Option<&str>, key: &[u8], redirect: &Redirect);

    /// The addresses of the servers whose breakers are open because they do not respond.
    fn lost(&self) -> Vec<String>;

    /// The health of all servers together.
    fn health(&self) -> StoreHealth;
}

/// The membership of a server in a cluster.
pub(super) struct Membership {
    pub(super) cluster: Weak<dyn Siblings>,
    /// `None` for the entry, which leads to any of the servers.
    pub(super) address: Option<NodeAddress>,
}

impl Membership {
    pub(super) fn cluster(&self) -> Option<Arc<dyn Siblings>> {
        self.cluster.upgrade()
    }
}
