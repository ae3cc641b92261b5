//! The limits of a set of rules.

use std::sync::Arc;

use crate::{
    decision::Policy,
    limiter::{AnyLimiter, BoxedFuture, Call, Facts, Limiter, Member, Pending},
};

/// All limits of a set of rules: those of a call are charged together or not at all, except that limits of rules with the
/// action `overflow` do not hold the others back. The index of a charge is that of its limit.
#[derive(Debug, Clone)]
pub struct RuleLimits(pub(super) Arc<[AnyLimiter]>);

impl RuleLimits {
    #[inline(never)]
    fn call_several(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        AnyLimiter::call_list(|limit| self.0.get(limit), call)
    }
}

impl Limiter for RuleLimits {
    type Future = BoxedFuture;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        if let [only] = call.charges
            && let Some(limiter) = self.0.get(only.index())
        {
            return limiter.call(call);
        }
        self.call_several(call)
    }

    /// None: which policies a request meets depends on its charges.
    fn policies(&self) -> &[Policy] {
        &[]
    }

    /// All limiters are in this process or in Redis, and alike.
    fn facts(&self) -> Facts {
        Facts::new().identified_by(&self.0)
    }

    fn boxed(future: BoxedFuture) -> BoxedFuture {
        future
    }
}
