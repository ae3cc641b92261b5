//! Permits: the right of a request to be in flight, and where a layer has them from.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

#[cfg(feature = "redis")]
use super::shared_permits::SharedPermits;
use super::{
    in_flight::{InFlight, Permit},
    limit::{Concurrency, OwnedConcurrency},
};
use crate::{
    clock::{Clock, OsClock, Timestamp},
    decision::{Decision, Policy, QuotaStatus},
    error::{ConfigError, LimiterError},
    key::Key,
};

/// A limit that a [`ConcurrencyLayer`](super::ConcurrencyLayer) can be made from: a [`Concurrency`] or
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

/// The permits of a layer. Nobody else can make them, so nobody else implements [`IntoPermits`].
#[derive(Clone)]
pub struct Permits {
    policy: Policy,
    in_flight: Arc<InFlight>,
    source: Source,
}

/// The place where permits are counted.
#[derive(Clone)]
enum Source {
    Process,
    #[cfg(feature = "redis")]
    Nodes(SharedPermits),
}

/// The answer to a request of a key, at once or from other nodes.
pub(super) enum Granting {
    Ready(Grant),
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "a process answers at once")
    )]
    Later(Pin<Box<dyn Future<Output = Grant> + Send>>),
}

/// Whether a request may be in flight, and its key, which a permit keeps.
pub(super) struct Grant {
    pub(super) decision: Result<Decision, LimiterError>,
    pub(super) holder: Holder,
}

/// The one who keeps the key of a request.
pub(super) enum Holder {
    Permit(Permit),
    Nobody(Key),
}

impl Holder {
    pub(super) const fn key(&self) -> &Key {
        match self {
            Self::Permit(permit) => permit.key(),
            Self::Nobody(key) => key,
        }
    }

    pub(super) fn permit(self) -> Option<Permit> {
        match self {
            Self::Permit(permit) => Some(permit),
            Self::Nobody(_) => None,
        }
    }
}

impl Permits {
    fn new(concurrency: &OwnedConcurrency, source: Source) -> Self {
        Self {
            policy: concurrency.policy(),
            in_flight: Arc::new(InFlight::new()),
            source,
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn of_nodes(concurrency: &OwnedConcurrency, shared: SharedPermits) -> Self {
        Self::new(concurrency, Source::Nodes(shared))
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Asks for a permit.
    pub(super) fn acquire(&self, key: Key) -> Granting {
        match &self.source {
            Source::Process => {
                let limit = self.policy.limit();
                Granting::Ready(Grant::counted(&self.policy, &self.in_flight, key, limit))
            }
            #[cfg(feature = "redis")]
            Source::Nodes(shared) => {
                let (shared, policy) = (shared.clone(), self.policy.clone());
                let in_flight = Arc::clone(&self.in_flight);
                let answer = async move { shared.acquire(&policy, &in_flight, key).await };
                Granting::Later(Box::pin(answer))
            }
        }
    }
}

impl Grant {
    /// The answer of this process, if it may have `limit` requests of the key in flight.
    pub(super) fn counted(
        policy: &Policy,
        in_flight: &Arc<InFlight>,
        key: Key,
        limit: u64,
    ) -> Self {
        match in_flight.acquire(key, limit) {
            Ok((permit, left)) => Self::allowed(policy, permit, left),
            Err(key) => Self::denied(policy, key),
        }
    }

    /// The request has a permit, and `left` more may come.
    pub(super) fn allowed(policy: &Policy, permit: Permit, left: u64) -> Self {
        let status = QuotaStatus::new(policy).with_remaining(left);
        Self {
            decision: Ok(Decision::allowed(1, now(), status)),
            holder: Holder::Permit(permit),
        }
    }

    /// The request is one too many.
    pub(super) fn denied(policy: &Policy, key: Key) -> Self {
        let status = QuotaStatus::new(policy).with_remaining(0);
        Self {
            decision: Ok(Decision::denied(now(), status.with_denial(None))),
            holder: Holder::Nobody(key),
        }
    }

    /// The request passes uncounted.
    #[cfg(feature = "redis")]
    pub(super) fn unmeasured(policy: &Policy, key: Key) -> Self {
        Self {
            decision: Ok(Decision::allowed(0, now(), QuotaStatus::new(policy))),
            holder: Holder::Nobody(key),
        }
    }
}

fn now() -> Timestamp {
    OsClock.now()
}

impl IntoPermits for Concurrency {
    fn into_permits(self) -> Result<Permits, ConfigError> {
        OwnedConcurrency::from(self).into_permits()
    }
}

impl IntoPermits for OwnedConcurrency {
    fn into_permits(self) -> Result<Permits, ConfigError> {
        self.check()?;
        Ok(Permits::new(&self, Source::Process))
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
