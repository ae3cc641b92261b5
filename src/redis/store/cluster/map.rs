//! The slot map of a cluster: the server of each slot.

use std::{ops::RangeInclusive, sync::Arc};

use crate::{
    redis::store::{pipeline::Pipeline, slots::SLOTS},
    store::error::NodeAddress,
};

/// The server of each slot. Each server has at least one slot, except the first.
pub(super) struct SlotMap {
    /// For each slot the index of its server. Slots without a server belong to the first one, which
    /// returns the error for them.
    owners: Vec<u16>,
    servers: Vec<Arc<Pipeline>>,
    /// Whether the map is from a server's report.
    is_known: bool,
}

impl Default for SlotMap {
    /// Creates an empty map, to be filled from a server's report.
    fn default() -> Self {
        Self {
            owners: vec![0; SLOTS],
            servers: Vec::new(),
            is_known: true,
        }
    }
}

impl SlotMap {
    /// Creates a map that sends all slots to the entry.
    pub(super) fn unknown(entry: Arc<Pipeline>) -> Self {
        Self {
            servers: vec![entry],
            is_known: false,
            ..Self::default()
        }
    }

    pub(super) const fn is_known(&self) -> bool {
        self.is_known
    }

    pub(super) fn servers(&self) -> &[Arc<Pipeline>] {
        &self.servers
    }

    pub(super) fn server_of(&self, slot: u16) -> Arc<Pipeline> {
        let at = self.owners.get(usize::from(slot)).copied().unwrap_or(0);
        Arc::clone(&self.servers[usize::from(at)])
    }

    pub(super) fn find(&self, address: &NodeAddress) -> Option<Arc<Pipeline>> {
        let known = self.servers.iter();
        let mut known = known.filter(|server| server.address() == Some(address));
        known.next().cloned()
    }

    pub(super) fn has(&self, server: &Arc<Pipeline>) -> bool {
        self.servers.iter().any(|own| Arc::ptr_eq(own, server))
    }

    /// Assigns these slots to the server.
    pub(super) fn give(&mut self, slots: RangeInclusive<u16>, server: &Arc<Pipeline>) {
        let known = self.servers.iter().position(|own| Arc::ptr_eq(own, server));
        let at = known.unwrap_or(self.servers.len());
        let (Ok(place), Some(owners)) = (
            u16::try_from(at),
            self.owners
                .get_mut(usize::from(*slots.start())..=usize::from(*slots.end())),
        ) else {
            return;
        };
        owners.fill(place);
        if known.is_none() {
            self.servers.push(Arc::clone(server));
        }
    }
}
