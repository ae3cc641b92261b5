//! Conversions: what can be handed to a layer as its limiter.

#[cfg(feature = "client")]
use std::sync::Arc;

use super::{AsyncLimiter, BoxedLimiter, Limiter, LocalLimiter};
#[cfg(feature = "client")]
use crate::{clock::Clock, quota::IntoQuotas};
use crate::{
    error::ConfigError,
    quota::{OwnedQuota, Quota},
};

/// Anything that a layer can use as its limiter.
///
/// `Via` is inferred; it keeps apart the ways of becoming a limiter, so that a [`Quota`], a
/// [`Limiter`] and an [`AsyncLimiter`] can all be handed in as they are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a `Quota`, a `LocalLimiter`, a `GovernorLimiter`, or a type that implements `Limiter` or `AsyncLimiter`",
    note = "`RateLimitLayer::new` takes the quota first and the key extractor second",
    note = "a text such as `\"10/second\"` is read by `.parse()`: `\"10/second\".parse::<Quota>()?`"
)]
pub trait IntoLimiter<Via> {
    /// The type of the limiter.
    type Limiter: Limiter;

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`].
    fn into_limiter(self) -> Result<Self::Limiter, ConfigError>;

    /// Makes the limiter of outgoing requests: of quotas one of those that `change` makes of them,
    /// by this clock. What is a limiter already stays as it is.
    #[cfg(feature = "client")]
    #[doc(hidden)]
    fn into_client_limiter(
        self,
        change: &dyn Fn(OwnedQuota) -> OwnedQuota,
        clock: Arc<dyn Clock>,
    ) -> Result<Self::Limiter, ConfigError>
    where
        Self: Sized,
    {
        let _ = (change, clock);
        self.into_limiter()
    }
}

/// For a type that is a [`Limiter`] already.
#[derive(Debug)]
#[non_exhaustive]
pub struct FromLimiter;

/// For an [`AsyncLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FromAsync;

/// For a [`Quota`] or several, which become a [`LocalLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FromQuota;

impl<L: Limiter> IntoLimiter<FromLimiter> for L {
    type Limiter = L;

    fn into_limiter(self) -> Result<L, ConfigError> {
        Ok(self)
    }
}

impl<A: AsyncLimiter> IntoLimiter<FromAsync> for A {
    type Limiter = BoxedLimiter<A>;

    fn into_limiter(self) -> Result<BoxedLimiter<A>, ConfigError> {
        Ok(BoxedLimiter::new(self))
    }
}

/// Implements the conversion for whatever is a list of quotas.
macro_rules! from_quotas {
    ($([$($generics:tt)*] $quotas:ty),+ $(,)?) => {$(
        impl<$($generics)*> IntoLimiter<FromQuota> for $quotas {
            type Limiter = LocalLimiter;

            fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
                LocalLimiter::builder(self).build()
            }

            #[cfg(feature = "client")]
            fn into_client_limiter(
                self,
                change: &dyn Fn(OwnedQuota) -> OwnedQuota,
                clock: Arc<dyn Clock>,
            ) -> Result<LocalLimiter, ConfigError> {
                let quotas = self.into_quotas().into_iter().map(change);
                LocalLimiter::builder(quotas.collect::<Vec<_>>())
                    .clock(clock)
                    .build()
            }
        }
    )+};
}

from_quotas! {
    [] Quota,
    [] OwnedQuota,
    [Q: Into<OwnedQuota>, const N: usize] [Q; N],
    [Q: Into<OwnedQuota> + Clone] &[Q],
    [Q: Into<OwnedQuota> + Clone, const N: usize] &[Q; N],
    [Q: Into<OwnedQuota>] Vec<Q>,
}
