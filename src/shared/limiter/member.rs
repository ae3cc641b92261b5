//! A limiter as a member of several that are charged together.

use std::sync::Arc;

use tokio::time::Instant;

use super::SharedLimiter;
use crate::{
    decision::Decision,
    limiter::OwnedCharge,
    shared::{hashed_key_names::MeasuredSubject, store_backend::StoreBackend},
};

impl<S: StoreBackend> SharedLimiter<S> {
    pub(in crate::shared) fn client(&self) -> &S::Client {
        &self.0.client
    }

    /// The cached denial of an operation, unless this node holds units for it.
    pub(in crate::shared) fn denial(&self, charge: &OwnedCharge) -> Option<Decision> {
        let (key, op) = (&charge.key, &charge.op);
        let current = Arc::clone(&self.0.current.read());
        let chosen = current.plan.choose(&charge.tier, charge.class, op).ok()?;
        let tag = self.0.ledger.as_ref().map(|ledger| ledger.tag(key));
        if let Some((ledger, tag)) = self.0.ledger.as_ref().zip(tag) {
            let measured = MeasuredSubject {
                tag,
                chosen,
                generation: current.generation,
            };
            if ledger.holds(measured, Instant::now()) {
                return None;
            }
        }
        let subject = self.0.subjects.of_key(&current.keyspace, key).tagged(tag);
        self.0.cached_denial(&subject, chosen, op)
    }

    /// Whether this node leases units.
    pub(in crate::shared) fn has_leases(&self) -> bool {
        self.0.ledger.is_some()
    }
}
