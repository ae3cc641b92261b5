//! Grants: the answers to requests for a permit.

use std::{future::Future, pin::Pin, sync::Arc};

use super::in_flight::{InFlight, Permit};
use crate::{
    clock::OsClock,
    decision::{Decision, Policy, QuotaStatus},
    error::LimiterError,
    key::Key,
    quota::Priority,
};

/// An answer, now or when other nodes have decided.
pub(crate) enum PendingGrant {
    Ready(Grant),
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "a process answers at once")
    )]
    Later(Pin<Box<dyn Future<Output = Grant> + Send>>),
}

/// An answer to a request, with its key, which a permit contains.
pub(crate) struct Grant {
    pub(crate) decision: Result<Decision, LimiterError>,
    pub(crate) holder: Holder,
}

/// The holder of a request's key.
pub(crate) enum Holder {
    Permit(Permit),
    Nobody(Key),
}

impl Holder {
    pub(crate) const fn key(&self) -> &Key {
        match self {
            Self::Permit(permit) => permit.key(),
            Self::Nobody(key) => key,
        }
    }

    pub(crate) fn permit(self) -> Option<Permit> {
        match self {
            Self::Permit(permit) => Some(permit),
            Self::Nobody(_) => None,
        }
    }
}

impl Grant {
    /// The answer of this process to a request of this class, if it may have `limit` requests of the key in
    /// flight.
    pub(crate) fn counted(
        policy: &Policy,
        in_flight: &Arc<InFlight>,
        key: Key,
        limit: u64,
        class: Priority,
    ) -> Self {
        match in_flight.acquire(key, class.part_of(limit)) {
            Ok((permit, left)) => Self::allowed(policy, permit, left),
            Err((key, taken)) => Self::denied(policy, key, taken < limit),
        }
    }

    /// The request has a permit, and `left` more may come.
    pub(super) fn allowed(policy: &Policy, permit: Permit, left: u64) -> Self {
        let status = QuotaStatus::new(policy).with_remaining(left);
        Self {
            decision: Ok(Decision::allowed(1, OsClock::wall_now(), status)),
            holder: Holder::Permit(permit),
        }
    }

    /// The request exceeds the limit, or the part of its class alone.
    pub(super) fn denied(policy: &Policy, key: Key, shed: bool) -> Self {
        let status = QuotaStatus::new(policy).with_remaining(0);
        let decision = Decision::denied(OsClock::wall_now(), status.with_denial(None));
        Self {
            decision: Ok(if shed { decision.into_shed() } else { decision }),
            holder: Holder::Nobody(key),
        }
    }

    /// The request passes uncounted.
    #[cfg(feature = "redis")]
    pub(super) fn unmeasured(policy: &Policy, key: Key) -> Self {
        Self {
            decision: Ok(Decision::allowed(
                0,
                OsClock::wall_now(),
                QuotaStatus::new(policy),
            )),
            holder: Holder::Nobody(key),
        }
    }
}
