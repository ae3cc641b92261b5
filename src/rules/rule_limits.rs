//! The limits of a set of rules.

use std::sync::Arc;

use crate::{
    decision::Policy,
    error::LimiterError,
    limiter::{AnyLimiter, BoxedFuture, Call, Charge, Facts, Limiter, Member, Pending, joint},
};

/// All limits of a set of rules: those of a call are charged together or not at all, except that limits of rules with the
/// action `overflow` do not hold the others back. The index of a charge is that of its limit.
#[derive(Debug, Clone)]
pub struct RuleLimits(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    limiters: Box<[AnyLimiter]>,
    /// Whether some of them perhaps cannot be charged together: not those of one table in this process.
    are_checked: bool,
}

impl RuleLimits {
    pub(super) fn new(limiters: impl IntoIterator<Item = AnyLimiter>, are_checked: bool) -> Self {
        Self(Arc::new(Limits {
            limiters: limiters.into_iter().collect(),
            are_checked,
        }))
    }

    pub(super) fn limiters(&self) -> &[AnyLimiter] {
        &self.0.limiters
    }

    fn get(&self, limit: usize) -> Option<&AnyLimiter> {
        self.0.limiters.get(limit)
    }

    #[inline(never)]
    fn call_several(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        if self.0.are_checked && !self.check(call.charges) {
            let fault = "these limits cannot be charged together";
            return Pending::Ready(Err(LimiterError::unsupported(fault)));
        }
        AnyLimiter::call_list(|limit| self.get(limit), call)
    }

    /// Whether the limits of these charges can be charged together.
    fn check(&self, charges: &[Charge<'_>]) -> bool {
        let limiters = charges.iter().map(|charge| self.get(charge.index()));
        let limiters: Option<Vec<_>> = limiters.map(Option::<&_>::cloned).collect();
        limiters.is_some_and(|limiters| joint::check(&limiters).is_ok())
    }
}

impl Limiter for RuleLimits {
    type Future = BoxedFuture;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        if let [only] = call.charges
            && let Some(limiter) = self.get(only.index())
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
