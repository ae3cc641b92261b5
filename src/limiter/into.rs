//! Conversions: what can be handed to a layer as its limiter.

use super::{AsyncLimiter, BoxedLimiter, Limiter, LocalLimiter};
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
    /// What it becomes.
    type Limiter: Limiter;

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`].
    fn into_limiter(self) -> Result<Self::Limiter, ConfigError>;
}

/// It is a [`Limiter`] already.
#[derive(Debug)]
#[non_exhaustive]
pub struct FromLimiter;

/// It is an [`AsyncLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FromAsync;

/// It is a [`Quota`] or several, for a [`LocalLimiter`].
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

impl IntoLimiter<FromQuota> for Quota {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::try_new(self)
    }
}

impl IntoLimiter<FromQuota> for OwnedQuota {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::try_new(self)
    }
}

impl<Q: Into<OwnedQuota>, const N: usize> IntoLimiter<FromQuota> for [Q; N] {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::try_new(self)
    }
}

impl<Q: Into<OwnedQuota> + Clone> IntoLimiter<FromQuota> for &[Q] {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::try_new(self)
    }
}

impl<Q: Into<OwnedQuota> + Clone, const N: usize> IntoLimiter<FromQuota> for &[Q; N] {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::try_new(self.as_slice())
    }
}

impl<Q: Into<OwnedQuota>> IntoLimiter<FromQuota> for Vec<Q> {
    type Limiter = LocalLimiter;

    fn into_limiter(self) -> Result<LocalLimiter, ConfigError> {
        LocalLimiter::try_new(self)
    }
}
