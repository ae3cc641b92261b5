//! A limiter as a member of several that are charged together.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use super::{SharedLimiter, quotas_in_force::CurrentPlan};
use crate::{
    decision::{Decision, Op},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{Tier, tier_set::Chosen},
    shared::{hashed_key_names::MeasuredSubject, store_backend::StoreBackend},
};

impl<S: StoreBackend> SharedLimiter<S> {
    /// Adds the name and the policies.
    pub(in crate::shared) fn debug(&self, debug: &mut fmt::DebugStruct<'_, '_>) {
        debug
            .field("name", &self.0.name)
            .field("policies", &self.0.policies);
    }

    /// Checks that the limiter's mode can decide for classes of requests.
    pub(super) fn check_mode(&self) -> Result<(), ConfigError> {
        let ledger = self.0.ledger.as_ref();
        ledger.map_or(Ok(()), |ledger| ledger.check_priority())
    }

    /// The quotas that measure `op` in `tier`.
    pub(super) fn choose(
        &self,
        current: &CurrentPlan,
        tier: &Tier,
        op: &Op,
    ) -> Result<Chosen, LimiterError> {
        let chosen = current.plan.choose(tier, op)?;
        if !chosen.class().is_critical() {
            let check = self.check_mode();
            check.map_err(|error| LimiterError::unsupported(error.to_string()))?;
        }
        Ok(chosen)
    }

    pub(in crate::shared) fn client(&self) -> &S::Client {
        &self.0.client
    }

    /// The cached denial of an operation, unless this node holds units for it.
    pub(in crate::shared) fn denial(&self, tier: &Tier, key: &Key, op: &Op) -> Option<Decision> {
        let current = Arc::clone(&self.0.current.read());
        let chosen = current.plan.choose(tier, op).ok()?;
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
