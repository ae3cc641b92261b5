//! The parts that a builder makes a limiter of.

use std::{sync::Arc, time::Duration};

use super::quotas_in_force::CurrentPlan;
use crate::{
    limiter::tier_set::TierSet,
    shared::{deny_cache::DenyCache, fallback::Fallback, ledger::Ledger, mode::LedgerTerms},
};

pub(in super::super) struct Parts {
    pub(in super::super) name: String,
    pub(in super::super) limits: TierSet,
    pub(in super::super) fallback: Fallback,
    /// How long a denial stays cached at most; zero if none is cached.
    pub(in super::super) longest_denial: Duration,
    pub(in super::super) seed: Option<u64>,
    pub(in super::super) leases: Option<LedgerTerms>,
}

impl Parts {
    /// Creates the cache of denials and the ledger, if the limiter needs them.
    pub(super) fn memory(
        &self,
        deadline: Duration,
    ) -> (Option<Arc<DenyCache>>, Option<Arc<Ledger<CurrentPlan>>>) {
        let caches = self.leases.is_some() || !self.longest_denial.is_zero();
        let denials = caches.then(|| Arc::new(DenyCache::new()));
        let ledger = self.leases.zip(denials.clone()).map(|(terms, denials)| {
            let has_blocks = self.limits.block_for.is_some();
            Arc::new(Ledger::new(
                terms,
                has_blocks,
                deadline,
                (denials, self.seed),
            ))
        });
        (denials, ledger)
    }
}
