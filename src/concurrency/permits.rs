use std::{fmt, sync::Arc};

use super::{Concurrency, OwnedConcurrency, in_flight::InFlight};
use crate::{decision::Policy, error::ConfigError};

/// A limit that a [`ConcurrencyLayer`](super::ConcurrencyLayer) can be made from: a [`Concurrency`] or
/// an [`OwnedConcurrency`], which each process counts for itself, or a `SharedConcurrency`, which all nodes count together
/// (feature `redis`).
///
/// Only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit on concurrency",
    label = "expected a `Concurrency` or a `SharedConcurrency`",
    note = "`ConcurrencyLayer::new` takes the limit first and the key extractor second"
)]
pub trait IntoPermits {
    /// Where the layer's permits come from.
    type Permits: Clone;

    /// Makes them.
    ///
    /// # Errors
    ///
    /// When the limit makes no sense, see [`Concurrency::check`].
    #[doc(hidden)]
    fn into_permits(self) -> Result<Opened<Self::Permits>, ConfigError>;
}

/// What a layer is made from. Nobody else can make one, so nobody else implements [`IntoPermits`].
pub struct Opened<P> {
    pub(super) policy: Policy,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) permits: P,
}

/// Permits are counted in this process.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LocalPermits;

impl IntoPermits for Concurrency {
    type Permits = LocalPermits;

    fn into_permits(self) -> Result<Opened<LocalPermits>, ConfigError> {
        OwnedConcurrency::from(self).into_permits()
    }
}

impl IntoPermits for OwnedConcurrency {
    type Permits = LocalPermits;

    fn into_permits(self) -> Result<Opened<LocalPermits>, ConfigError> {
        self.check()?;
        Ok(Opened {
            policy: self.policy(),
            in_flight: Arc::new(InFlight::new(self.limit())),
            permits: LocalPermits,
        })
    }
}

impl<P> fmt::Debug for Opened<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
