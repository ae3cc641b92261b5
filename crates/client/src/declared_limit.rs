//! Declared limits: quotas that the pacer counts, less a margin, or a limiter of the user's.

use std::time::Duration;

use tower_ratelimit::{
    AnyLimiter, AsyncLimiter, Limiter, Quota,
    limiter::{BoxedLimiter, FromAsync, FromLimiter, FromQuota},
    quota::{Algorithm, IntoQuotas, OwnedQuota},
};

use crate::request_cost::{INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS, Unit};

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

/// A declared limit of a unit, for [`Pacer::all`](crate::Pacer::all).
#[derive(Debug)]
pub struct UnitLimit {
    pub(crate) unit: Unit,
    pub(crate) limit: DeclaredLimit,
}

impl UnitLimit {
    /// A limit of requests.
    pub fn requests<Via>(limit: impl IntoDeclaredLimit<Via>) -> Self {
        Self::of(REQUESTS, limit)
    }

    /// A limit of [`Units::tokens`](crate::Units::tokens).
    pub fn tokens<Via>(limit: impl IntoDeclaredLimit<Via>) -> Self {
        Self::of(TOKENS, limit)
    }

    /// A limit of [`Units::input_tokens`](crate::Units::input_tokens).
    pub fn input_tokens<Via>(limit: impl IntoDeclaredLimit<Via>) -> Self {
        Self::of(INPUT_TOKENS, limit)
    }

    /// A limit of [`Units::output_tokens`](crate::Units::output_tokens).
    pub fn output_tokens<Via>(limit: impl IntoDeclaredLimit<Via>) -> Self {
        Self::of(OUTPUT_TOKENS, limit)
    }

    /// A limit of another unit, see [`Units::of`](crate::Units::of).
    pub fn of<Via>(unit: &'static str, limit: impl IntoDeclaredLimit<Via>) -> Self {
        Self {
            unit,
            limit: limit.into_declared_limit(),
        }
    }
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

/// The token bucket whose requests stay within `declared` when their delays differ by at most
/// `margin`. `None` for other quotas, which stay unchanged.
pub(crate) fn with_margin(declared: &OwnedQuota, margin: Duration) -> Option<OwnedQuota> {
    let quota = declared.quota();
    let is_even = quota.algorithm() == Algorithm::TokenBucket && quota.refill_step().is_none();
    if margin.is_zero() || !is_even || quota.check().is_err() {
        return None;
    }
    // A checked quota has a limit of at least 1.
    let interval = quota.period().as_nanos() / u128::from(quota.limit());
    let (burst, margin) = (u128::from(quota.capacity()), margin.as_nanos());
    let spare = margin.div_ceil(interval.max(1));
    let quota = match burst.checked_sub(spare).filter(|burst| *burst > 0) {
        // The margin only lowers the burst.
        Some(burst) => quota.burst(burst as u64),
        None => {
            let slower = (interval + margin).div_ceil(burst.max(1));
            let nanos = u64::try_from(slower).unwrap_or(u64::MAX);
            Quota::per(1, Duration::from_nanos(nanos))
        }
    };
    Some(match declared.name() {
        Some(name) => quota.named_owned(name),
        None => quota.into(),
    })
}
