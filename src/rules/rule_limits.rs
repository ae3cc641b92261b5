//! The limits of a set of rules.

use std::{sync::Arc, time::Duration};

use crate::{
    decision::{Decision, Policy},
    error::LimiterError,
    limiter::{
        AnyLimiter, BoxedFuture, Call, Charge, Facts, Limiter, Member, OpRef, OwnedCharge, Pending,
        joint,
    },
};

/// All limits of a set of rules: those of a call are charged together or not at all. The index of a charge is that of
/// its limit.
///
/// A limit of a rule with the action `overflow` does not hold the others back: if it denies, they are charged without
/// it. The decision has the quotas of all limits of the call. It is a denial if one of the others denies, or if all
/// limits overflow.
#[derive(Debug, Clone)]
pub struct RuleLimits(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    limiters: Box<[AnyLimiter]>,
    /// Whether each may overflow; empty if none may.
    overflow: Box<[bool]>,
    /// Whether some of them perhaps cannot be charged together: not those of one table in this process.
    are_checked: bool,
}

impl RuleLimits {
    /// The limits with these limiters, and whether each may overflow.
    pub(super) fn new(
        limits: impl IntoIterator<Item = (AnyLimiter, bool)>,
        are_checked: bool,
    ) -> Self {
        let (limiters, overflow): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
        let may_overflow = overflow.contains(&true);
        Self(Arc::new(Limits {
            limiters: limiters.into(),
            overflow: if may_overflow {
                overflow.into()
            } else {
                Box::default()
            },
            are_checked,
        }))
    }

    pub(super) fn limiters(&self) -> &[AnyLimiter] {
        &self.0.limiters
    }

    fn get(&self, limit: usize) -> Option<&AnyLimiter> {
        self.0.limiters.get(limit)
    }

    fn overflows(&self, charge: &Charge<'_>) -> bool {
        self.0.overflow.get(charge.index()) == Some(&true)
    }

    /// Charges several limits: those that overflow, if they can.
    #[inline(never)]
    fn call_several(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        let mut charges = call.charges.iter();
        let may_overflow = !self.0.overflow.is_empty()
            && charges.clone().any(|charge| self.overflows(charge))
            && charges.all(|charge| repeats(charge.op));
        if may_overflow {
            return self.call_with_overflow(call);
        }
        self.call_all(call)
    }

    /// Charges the limits of the call: all or none.
    fn call_all(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
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

    /// Applies operations whose denial depends on the limits that do not overflow.
    #[cold]
    fn call_with_overflow(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        let overflow = call.charges.iter().map(|charge| self.overflows(charge));
        let mut attempts = Attempts::new(overflow.collect(), call);
        let mut answer = attempts.call(self);
        while let Pending::Ready(ready) = answer {
            match attempts.next(ready) {
                NextAttempt::Decided(decision) => return Pending::Ready(decision),
                NextAttempt::Again => answer = attempts.call(self),
            }
        }
        let limits = self.clone();
        Pending::Later(Box::pin(async move {
            loop {
                match attempts.next(answer.await) {
                    NextAttempt::Decided(decision) => return decision,
                    NextAttempt::Again => answer = attempts.call(&limits),
                }
            }
        }))
    }
}

/// Attempts to decide without the limits that overflow. Each one leaves out more.
struct Attempts {
    charges: Box<[OwnedCharge]>,
    late: Duration,
    overflow: Box<[bool]>,
    left_out: Vec<bool>,
    last: Option<Decision>,
}

enum NextAttempt {
    Decided(Result<Decision, LimiterError>),
    Again,
}

impl Attempts {
    fn new(overflow: Box<[bool]>, call: &Call<'_>) -> Self {
        Self {
            charges: call.charges.iter().map(Charge::to_owned).collect(),
            late: call.late,
            left_out: vec![false; overflow.len()],
            overflow,
            last: None,
        }
    }

    /// Applies the operations on the limits that are not left out.
    fn call(&self, limits: &RuleLimits) -> Pending<BoxedFuture> {
        let charges = self.charges.iter().zip(&self.left_out);
        let charges = charges.filter(|(_, left_out)| !**left_out);
        let charges: Vec<_> = charges.map(|(charge, _)| charge.as_ref()).collect();
        let call = Call::of(&charges).late(self.late);
        match &*charges {
            [_] => limits.call(&call),
            _ => limits.call_all(&call),
        }
    }

    /// The step after this answer.
    fn next(&mut self, answer: Result<Decision, LimiterError>) -> NextAttempt {
        let mut decision = match (answer, &self.last) {
            (Ok(rest), Some(last)) => rest.among(last, &self.left_out),
            (Ok(decision), None) => decision,
            (error, _) => return NextAttempt::Decided(error),
        };
        if decision.is_allowed() {
            return NextAttempt::Decided(Ok(decision));
        }
        let before = self.left_out.clone();
        for limit in decision.denying(before.len()) {
            self.left_out[limit] |= self.overflow[limit] && !decision.is_blocked_by(limit);
        }
        if self.left_out.iter().all(|left_out| *left_out) {
            return NextAttempt::Decided(Ok(decision));
        }
        if self.left_out == before {
            // Another limit denies, so these do not decide the wait either.
            let left_out = (0..before.len()).filter(|limit| before[*limit]);
            left_out.for_each(|limit| decision.pardon(limit));
            return NextAttempt::Decided(Ok(decision));
        }
        self.last = Some(decision);
        NextAttempt::Again
    }
}

/// Whether another attempt does not apply the operation a second time.
const fn repeats(op: OpRef<'_>) -> bool {
    matches!(
        op,
        OpRef::Acquire(_)
            | OpRef::Reserve(_)
            | OpRef::Peek(_)
            | OpRef::Deny(_)
            | OpRef::Refund(0, _)
    )
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

#[cfg(test)]
mod tests {
    use super::RuleLimits;
    use crate::{
        AnyLimiter, Key, LocalLimiter, LocalStore, Quota,
        limiter::{Call, Charge, Limiter, OpRef, Pending},
    };

    #[test]
    fn limit_that_overflows_is_left_out_with_its_operation() {
        let store = LocalStore::new();
        let quotas = [(9, "a"), (5, "b"), (100, "c")];
        let limiters = quotas.map(|(limit, name)| {
            let quota = Quota::per_day(limit).fixed_window().named(name);
            let limiter = LocalLimiter::builder(quota).build_in(&store);
            AnyLimiter::new(limiter.expect("a good quota"))
        });
        let limits = RuleLimits::new(limiters.into_iter().zip([false, true, false]), false);
        let key = Key::global();
        let call = |ops: &[(usize, OpRef<'_>)]| {
            let charges = ops.iter();
            let charges = charges.map(|(limit, op)| Charge::new(&key, *op).limit(*limit));
            let Pending::Ready(decision) = limits.call(&Call::of(&charges.collect::<Vec<_>>()))
            else {
                panic!("limits in this process");
            };
            decision.expect("operations that all support")
        };
        let charged = |ops: &[(usize, OpRef<'_>)]| {
            let decision = call(ops);
            assert!(decision.is_allowed());
            decision.charged_by_each().collect::<Vec<_>>()
        };
        let ops = [
            (0, OpRef::Acquire(2)),
            (1, OpRef::Acquire(6)),
            (2, OpRef::Reserve(30)),
        ];
        assert_eq!(charged(&ops), [2, 0, 30]);
        assert_eq!(charged(&ops[1..]), [0, 30]);
        assert_eq!(charged(&ops[..2]), [2, 0]);
        let fitting = [(1, OpRef::Acquire(3)), (2, OpRef::Acquire(1))];
        assert_eq!(charged(&fitting), [3, 1]);
        // Units that were used already are charged once.
        let denied = call(&[
            (0, OpRef::Refund(0, None)),
            (1, OpRef::Reserve(6)),
            (2, OpRef::Spend(10)),
        ]);
        assert!(denied.is_denied() && denied.charged_by_each().eq([0, 0, 10]));
        let left = denied.quotas().map(|quota| quota.remaining());
        assert!(left.eq([Some(5), Some(2), Some(29)]));
    }
}
