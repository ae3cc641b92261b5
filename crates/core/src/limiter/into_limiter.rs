//! `IntoLimiter`: conversions of quotas and limiters to the limiter of a layer.

use super::{AsyncLimiter, BoxedLimiter, Limiter, LocalLimiter};
use crate::{
    error::ConfigError,
    quota::{OwnedQuota, Quota},
};

/// A type that a layer can use as its limiter: a [`Quota`], a [`Limiter`] or an [`AsyncLimiter`].
///
/// `Via` is inferred. It distinguishes the conversions, so that the implementations do not overlap.
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
    /// If a quota is invalid, see [`Quota::check`].
    fn into_limiter(self) -> Result<Self::Limiter, ConfigError>;
}

/// Marks the conversion of a type that is a [`Limiter`] already. Inferred as `Via` of [`IntoLimiter`]; it
/// has no values outside of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub struct FromLimiter;

/// Marks the conversion of an [`AsyncLimiter`] to a [`BoxedLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FromAsync;

/// Marks the conversion of a [`Quota`], or of several that are charged together, to a [`LocalLimiter`].
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

/// Implements the conversion for lists of quotas.
macro_rules! from_quotas {
    ($([$($generics:tt)*] $quotas:ty),+ $(,)?) => {$(
        impl<$($generics)*> IntoLimiter<FromQuota> for $quotas {
            type Limiter = LocalLimiter;

            fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
                LocalLimiter::builder(self).build()
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
