//! The hub: what those who ask and the drivers share.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use tokio::runtime::Id;

use super::{convoy::Convoy, lanes::Lanes};
use crate::lock::unpoisoned;

/// The lanes of each runtime that has a driver.
type AllLanes<P> = HashMap<Id, Lanes<P>>;

/// All lanes of a limiter, and the server that they lead to.
pub(super) struct Hub<A, P> {
    pub(super) asker: A,
    lanes: Mutex<AllLanes<P>>,
}

impl<A, P> Hub<A, P> {
    pub(super) fn new(asker: A) -> Self {
        Self {
            asker,
            lanes: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, AllLanes<P>> {
        unpoisoned(self.lanes.lock())
    }

    /// A call of this runtime is over.
    pub(super) fn land(&self, runtime: Id, call: &Convoy<P>) {
        if let Some(lanes) = self.lock().get_mut(&runtime) {
            lanes.land(call);
        }
    }
}
