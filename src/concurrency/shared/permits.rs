use std::{num::NonZeroU32, sync::Arc};

use crate::{
    concurrency::{
        admission::{allowed, denied, unmeasured},
        in_flight::{InFlight, Permit},
    },
    decision::{Decision, Policy},
    error::LimiterError,
    key::Key,
    redis::{
        permits::lease::{Lease, Leases},
        store::error::StoreError,
    },
    shared::fallback::{Action, OnFailure},
};

/// Permits are leases in Redis.
#[derive(Debug, Clone)]
pub struct SharedPermits {
    leases: Leases,
    on_failure: Action,
}

impl SharedPermits {
    pub(super) fn new(leases: Leases, on_failure: OnFailure) -> Self {
        Self {
            leases,
            on_failure: on_failure.action(),
        }
    }

    /// A permit and the decision that gives it. Without one the decision is a denial, or nobody
    /// counts.
    ///
    /// # Errors
    ///
    /// Neither Redis decided nor does anybody else.
    pub(in crate::concurrency) async fn acquire(
        &self,
        policy: &Policy,
        in_flight: &Arc<InFlight>,
        key: &Key,
    ) -> Result<(Option<Permit>, Decision), LimiterError> {
        if let Some(error) = self.leases.refusal() {
            let lease = self.leases.lease(key);
            return self.stand_in(policy, in_flight, key, lease, error);
        }
        // Whoever holds all there are need not ask whether there is another one.
        if in_flight.of(key) >= policy.limit() {
            return Ok((None, denied(policy)));
        }
        let lease = self.leases.lease(key);
        match lease.ask().await {
            Ok(Some(left)) => {
                let permit = in_flight.add(key.clone()).with(lease);
                Ok((Some(permit), allowed(policy, left)))
            }
            Ok(None) => Ok((None, denied(policy))),
            Err(error) => self.stand_in(policy, in_flight, key, lease, error),
        }
    }

    /// Decides in place of Redis, which failed with `error`.
    fn stand_in(
        &self,
        policy: &Policy,
        in_flight: &Arc<InFlight>,
        key: &Key,
        lease: Lease,
        error: StoreError,
    ) -> Result<(Option<Permit>, Decision), LimiterError> {
        self.leases.go_without(&error);
        let reason = error.degradation();
        let (permit, decision) = match self.on_failure {
            Action::Local(nodes) => match in_flight.acquire_of(key.clone(), share(policy, nodes)) {
                Ok((permit, left)) => {
                    lease.hold();
                    (Some(permit.with(lease)), allowed(policy, left))
                }
                Err(_) => (None, denied(policy)),
            },
            Action::Allow => (None, unmeasured(policy)),
            Action::Deny => return Err(LimiterError::unavailable(error)),
        };
        Ok((permit, decision.into_degraded(reason)))
    }
}

/// What one of so many nodes may have, rounded up.
fn share(policy: &Policy, nodes: NonZeroU32) -> u64 {
    policy.limit().div_ceil(u64::from(nodes.get()))
}
