//! Declared limits: quotas that the pacer counts, or a limiter of the user's.

use tower_ratelimit::{
    AnyLimiter, AsyncLimiter, IntoQuotas, Limiter, OwnedQuota,
    limiter::{BoxedLimiter, FromAsync, FromLimiter, FromQuota},
};

/// A limit that the program knows, made from a [`Quota`](tower_ratelimit::Quota), several quotas or a
/// limiter by [`IntoDeclaredLimit`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DeclaredLimit {
    /// Quotas, counted in this process, less the [margin](crate::PacerBuilder::margin).
    Quotas(Vec<OwnedQuota>),
    /// A limiter, used as it is: no margin is subtracted.
    Limiter(AnyLimiter),
}

/// Anything that a [`Pacer`](crate::Pacer) accepts as its declared limit.
///
/// Implemented for every [`IntoQuotas`], every [`Limiter`] and every [`AsyncLimiter`]. The compiler
/// infers `Via`, which separates the three.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a `Quota`, several of them, or a type that implements `Limiter` or `AsyncLimiter`",
    note = "a text such as `\"10/second\"` is read by `.parse()`: `\"10/second\".parse::<Quota>()?`"
)]
pub trait IntoDeclaredLimit<Via> {
    /// Makes the declared limit.
    fn into_declared_limit(self) -> DeclaredLimit;
}

impl<Q: IntoQuotas> IntoDeclaredLimit<FromQuota> for Q {
    fn into_declared_limit(self) -> DeclaredLimit {
        DeclaredLimit::Quotas(self.into_quotas())
    }
}

impl<L: Limiter> IntoDeclaredLimit<FromLimiter> for L {
    fn into_declared_limit(self) -> DeclaredLimit {
        DeclaredLimit::Limiter(AnyLimiter::new(self))
    }
}

impl<A: AsyncLimiter> IntoDeclaredLimit<FromAsync> for A {
    fn into_declared_limit(self) -> DeclaredLimit {
        DeclaredLimit::Limiter(AnyLimiter::new(BoxedLimiter::new(self)))
    }
}
