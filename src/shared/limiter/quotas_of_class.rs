//! The quotas that measure a request of a class.

use super::{SharedLimiter, quotas_in_force::CurrentPlan};
use crate::{
    decision::Op,
    error::{ConfigError, LimiterError},
    limiter::{Tier, tier_set::Chosen},
    shared::store_backend::StoreBackend,
};

impl<S: StoreBackend> SharedLimiter<S> {
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
}
