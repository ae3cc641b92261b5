//! The hub: what those who ask and the driver share.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::{convoy::Convoy, lanes::Lanes};
use crate::lock::unpoisoned;

/// All lanes of a limiter, and the server that they lead to.
pub(super) struct Hub<A, P> {
    pub(super) asker: A,
    lanes: Mutex<Lanes<P>>,
    /// Tells the driver that something waits.
    pub(super) stirred: Notify,
}

impl<A, P> Hub<A, P> {
    pub(super) fn new(asker: A) -> Self {
        Self {
            asker,
            lanes: Mutex::new(Lanes::new()),
            stirred: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Lanes<P>> {
        unpoisoned(self.lanes.lock())
    }

    /// A call of this driver is over.
    pub(super) fn land(&self, driver: u64, call: &Convoy<P>) {
        let mut lanes = self.lock();
        if lanes.driver == Some(driver) {
            lanes.land(call);
        }
    }
}
