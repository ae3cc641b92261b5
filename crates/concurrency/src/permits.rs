//! Permits: the right of a request to be in flight, and where a layer has them from.

use std::{fmt, sync::Arc};

#[cfg(feature = "redis")]
use super::shared_permits::SharedPermits;
use super::{
    in_flight::{Grant, InFlight, PendingGrant},
    limit::{Concurrency, OwnedConcurrency},
};
use tower_ratelimit_core::{decision::Policy, error::ConfigError, key::Key, quota::Priority};

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
        Self {
            policy: concurrency.policy(),
            in_flight: Arc::new(InFlight::new()),
            source,
        }
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

    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    #[doc(hidden)]
    pub fn acquire(&self, key: Key, class: Priority) -> PendingGrant {
        match &self.source {
            PermitSource::Process => {
                let limit = self.policy.limit();
                let grant = Grant::counted(&self.policy, &self.in_flight, key, limit, class);
                PendingGrant::Ready(grant)
            }
            #[cfg(feature = "redis")]
            PermitSource::Nodes(shared) => {
                let (shared, policy) = (shared.clone(), self.policy.clone());
                let in_flight = Arc::clone(&self.in_flight);
                let answer = async move { shared.acquire(&policy, &in_flight, (key, class)).await };
                PendingGrant::Later(Box::pin(answer))
            }
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
