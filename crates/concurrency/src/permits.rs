//! Permits: the right of a request to be in flight, and where a layer has them from. This process counts them, or all nodes
//! together by leases in Redis.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

#[cfg(feature = "redis")]
use super::leases::{Acquired, Lease, Leases};
use super::{
    concurrency_limit::{Concurrency, OwnedConcurrency},
    in_flight::{InFlight, Permit},
};
use tower_ratelimit_core::{
    clock::OsClock,
    decision::{Decision, Policy, QuotaStatus},
    error::{ConfigError, LimiterError},
    key::Key,
    quota::Priority,
};
#[cfg(feature = "redis")]
use tower_ratelimit_shared::fallback::Action;
#[cfg(feature = "redis")]
use tower_ratelimit_store::error::StoreError;

/// A limit that a [`ConcurrencyLayer`](crate::layer::ConcurrencyLayer) can be made from: a [`Concurrency`] or
/// an [`OwnedConcurrency`], which each process counts for itself, or a `SharedConcurrency`, which all
/// nodes count together (feature `redis`).
///
/// Only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit on concurrency",
    label = "expected a `Concurrency` or a `SharedConcurrency`",
    note = "`ConcurrencyLayer::new` takes the limit first and the key extractor second"
)]
pub trait IntoPermits {
    /// Makes the permits.
    ///
    /// # Errors
    ///
    /// When the limit makes no sense, see [`Concurrency::check`].
    #[doc(hidden)]
    fn into_permits(self) -> Result<Permits, ConfigError>;
}

/// The permits of a layer. Only this crate can make them, so only it implements [`IntoPermits`].
#[doc(hidden)]
#[derive(Clone)]
pub struct Permits {
    policy: Policy,
    in_flight: Arc<InFlight>,
    source: PermitSource,
}

/// The place where permits are counted.
#[derive(Debug, Clone)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
#[doc(hidden)]
pub enum PermitSource {
    Process,
    #[cfg(feature = "redis")]
    Nodes(SharedPermits),
}

impl Permits {
    pub(super) fn new(concurrency: &OwnedConcurrency, source: PermitSource) -> Self {
        Self::counted_in(Arc::new(InFlight::new()), concurrency.policy(), source)
    }

    /// Permits that count in a table of the caller, which other policies may share.
    pub const fn counted_in(
        in_flight: Arc<InFlight>,
        policy: Policy,
        source: PermitSource,
    ) -> Self {
        Self {
            policy,
            in_flight,
            source,
        }
    }

    #[doc(hidden)]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub const fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    #[doc(hidden)]
    pub fn acquire(&self, key: Key, class: Priority) -> PendingGrant {
        match &self.source {
            PermitSource::Process => {
                PendingGrant::Ready(self.counted(key, self.policy.limit(), class))
            }
            #[cfg(feature = "redis")]
            PermitSource::Nodes(shared) => {
                let (own, shared) = (self.clone(), shared.clone());
                let grant = async move { own.acquire_of_all(&shared, key, class).await };
                PendingGrant::Later(Box::pin(grant))
            }
        }
    }

    /// The answer of this process to a request of this class, if it may have `limit` requests of the key in flight.
    fn counted(&self, key: Key, limit: u64, class: Priority) -> Grant {
        match self.in_flight.acquire(key, class.part_of(limit)) {
            Ok((permit, left)) => self.granted(permit, left),
            Err((key, taken)) => self.denied(key, taken < limit),
        }
    }

    /// The request has a permit, and `left` more may come.
    fn granted(&self, permit: Permit, left: u64) -> Grant {
        let status = QuotaStatus::new(&self.policy).with_remaining(left);
        Grant {
            decision: Ok(Decision::allowed(1, OsClock::wall_now(), status)),
            holder: Holder::Permit(permit),
        }
    }

    /// The request exceeds the limit, or the part of its class alone.
    fn denied(&self, key: Key, shed: bool) -> Grant {
        let status = QuotaStatus::new(&self.policy).with_remaining(0);
        let decision = Decision::denied(OsClock::wall_now(), status.with_denial(None));
        Grant {
            decision: Ok(if shed { decision.into_shed() } else { decision }),
            holder: Holder::Nobody(key),
        }
    }
}

/// Permits that all nodes count together: leases in Redis.
#[cfg(feature = "redis")]
#[derive(Debug, Clone)]
pub struct SharedPermits {
    pub(super) leases: Arc<Leases>,
    pub(super) on_failure: Action,
}

#[cfg(feature = "redis")]
impl Permits {
    /// Acquires a permit of all nodes. An allowed request without a permit is not counted.
    async fn acquire_of_all(&self, shared: &SharedPermits, key: Key, class: Priority) -> Grant {
        if let Some(error) = shared.leases.refusal(&key) {
            let lease = shared.leases.lease(&key);
            return self.stand_in(shared, (key, class), lease, error);
        }
        // A process that itself holds the whole limit need not call Redis.
        if self.in_flight.of(&key) >= self.policy.limit() {
            return self.denied(key, false);
        }
        let lease = shared.leases.lease(&key);
        let part = class.part_of(self.policy.limit());
        match lease.acquire(part).await {
            Ok(Acquired::Granted(left)) => {
                let permit = self.in_flight.add(key).with(lease);
                self.granted(permit, left)
            }
            Ok(Acquired::Refused { shed }) => self.denied(key, shed),
            Err(error) => self.stand_in(shared, (key, class), lease, error),
        }
    }

    /// Decides by the fallback, because Redis failed with `error`.
    fn stand_in(
        &self,
        shared: &SharedPermits,
        (key, class): (Key, Priority),
        lease: Lease,
        error: StoreError,
    ) -> Grant {
        shared.leases.record_degraded(&error);
        let reason = error.degradation();
        let grant = match shared.on_failure {
            Action::Local(nodes) => {
                let share = self.policy.limit().div_ceil(u64::from(nodes.get()));
                let mut grant = self.counted(key, share, class);
                if let Holder::Permit(permit) = grant.holder {
                    lease.hold();
                    grant.holder = Holder::Permit(permit.with(lease));
                }
                grant
            }
            Action::Allow => {
                let status = QuotaStatus::new(&self.policy);
                Grant {
                    decision: Ok(Decision::allowed(0, OsClock::wall_now(), status)),
                    holder: Holder::Nobody(key),
                }
            }
            Action::Deny => Grant {
                decision: Err(LimiterError::unavailable(error).logged()),
                holder: Holder::Nobody(key),
            },
        };
        let decision = grant.decision;
        Grant {
            decision: decision.map(|decision| decision.into_degraded(reason)),
            ..grant
        }
    }
}

/// An answer, now or when other nodes have decided.
#[allow(
    clippy::exhaustive_enums,
    missing_debug_implementations,
    reason = "hidden"
)]
#[doc(hidden)]
pub enum PendingGrant {
    Ready(Grant),
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "a process answers at once")
    )]
    Later(Pin<Box<dyn Future<Output = Grant> + Send>>),
}

/// An answer to a request, with its key, which a permit contains.
#[allow(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "hidden"
)]
#[doc(hidden)]
pub struct Grant {
    pub decision: Result<Decision, LimiterError>,
    pub holder: Holder,
}

/// The holder of a request's key.
#[allow(missing_debug_implementations, reason = "hidden")]
pub enum Holder {
    Permit(Permit),
    Nobody(Key),
}

impl Holder {
    pub const fn key(&self) -> &Key {
        match self {
            Self::Permit(permit) => permit.key(),
            Self::Nobody(key) => key,
        }
    }

    pub fn permit(self) -> Option<Permit> {
        match self {
            Self::Permit(permit) => Some(permit),
            Self::Nobody(_) => None,
        }
    }
}

impl IntoPermits for Concurrency {
    fn into_permits(self) -> Result<Permits, ConfigError> {
        OwnedConcurrency::from(self).into_permits()
    }
}

impl IntoPermits for OwnedConcurrency {
    fn into_permits(self) -> Result<Permits, ConfigError> {
        self.check()?;
        Ok(Permits::new(&self, PermitSource::Process))
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
