//! Permits that all nodes count together: leases in Redis.

use std::sync::Arc;

use super::in_flight::{Grant, Holder, InFlight};
use crate::leases::{Acquired, Lease, Leases};
use tower_ratelimit_core::{decision::Policy, error::LimiterError, key::Key, quota::Priority};
pub(crate) use tower_ratelimit_shared::fallback::{Action, OnFailure};
use tower_ratelimit_store::error::StoreError;

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

    /// Acquires a permit. An allowed request without a permit is not counted.
    pub(super) async fn acquire(
        &self,
        policy: &Policy,
        in_flight: &Arc<InFlight>,
        (key, class): (Key, Priority),
    ) -> Grant {
        if let Some(error) = self.leases.refusal(&key) {
            let lease = self.leases.lease(&key);
            return self.stand_in(policy, in_flight, (key, class), lease, error);
        }
        // A process that itself holds the whole limit need not call Redis.
        if in_flight.of(&key) >= policy.limit() {
            return Grant::denied(policy, key, false);
        }
        let lease = self.leases.lease(&key);
        let part = class.part_of(policy.limit());
        match lease.acquire(part).await {
            Ok(Acquired::Granted(left)) => {
                let permit = in_flight.add(key).with(lease);
                Grant::allowed(policy, permit, left)
            }
            Ok(Acquired::Refused { shed }) => Grant::denied(policy, key, shed),
            Err(error) => self.stand_in(policy, in_flight, (key, class), lease, error),
        }
    }

    /// Decides by the fallback, because Redis failed with `error`.
    fn stand_in(
        &self,
        policy: &Policy,
        in_flight: &Arc<InFlight>,
        (key, class): (Key, Priority),
        lease: Lease,
        error: StoreError,
    ) -> Grant {
        self.leases.record_degraded(&error);
        let reason = error.degradation();
        let answer = match self.on_failure {
            Action::Local(nodes) => {
                // Rounded up.
                let share = policy.limit().div_ceil(u64::from(nodes.get()));
                let mut answer = Grant::counted(policy, in_flight, key, share, class);
                if let Holder::Permit(permit) = answer.holder {
                    lease.hold();
                    answer.holder = Holder::Permit(permit.with(lease));
                }
                answer
            }
            Action::Allow => Grant::unmeasured(policy, key),
            Action::Deny => {
                return Grant {
                    decision: Err(LimiterError::unavailable(error).logged()),
                    holder: Holder::Nobody(key),
                };
            }
        };
        Grant {
            decision: answer
                .decision
                .map(|decision| decision.into_degraded(reason)),
            holder: answer.holder,
        }
    }
}
