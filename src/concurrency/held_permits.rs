//! The permits of one request.

#[cfg(feature = "rules")]
use std::{mem, sync::Arc};

use super::in_flight::Permit;

/// The permits of a request that asks for an upgrade, in the extensions of the request.
///
/// A service that upgrades the connection keeps it until the connection ends, which is after the end of the response's
/// body. Clones hold the same permits.
#[cfg(feature = "rules")]
#[derive(Debug, Clone)]
pub struct RequestPermits {
    _permits: Arc<HeldPermits>,
}

/// The permits that a request holds; released when this is dropped. The first needs no heap.
#[derive(Debug, Default)]
pub(crate) struct HeldPermits {
    first: Option<Permit>,
    more: Vec<Permit>,
    /// The permits that an upgraded connection holds, too.
    #[cfg(feature = "rules")]
    shared: Option<RequestPermits>,
}

impl HeldPermits {
    #[cfg(feature = "rules")]
    pub(crate) fn push(&mut self, permit: Permit) {
        match &self.first {
            None => self.first = Some(permit),
            Some(_) => self.more.push(permit),
        }
    }

    #[cfg(feature = "rules")]
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none() && self.shared.is_none()
    }

    /// Shares the permits with an upgraded connection.
    #[cfg(feature = "rules")]
    pub(crate) fn share(&mut self) -> RequestPermits {
        let permits = RequestPermits {
            _permits: Arc::new(mem::take(self)),
        };
        self.shared = Some(permits.clone());
        permits
    }

    pub(crate) fn release(&mut self) {
        self.first = None;
        self.more.clear();
        #[cfg(feature = "rules")]
        self.shared.take();
    }
}

impl From<Option<Permit>> for HeldPermits {
    fn from(first: Option<Permit>) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }
}
