//! The limits of the rules that apply to a request.

use std::{sync::Arc, time::Duration};

use crate::{
    decision::{Decision, Policy},
    error::LimiterError,
    limiter::{
        AnyLimiter, BoxedFuture, Call, Charge, Facts, JointLimiter, Limiter, OpRef, OwnedCharge,
        Pending,
    },
};

/// The limits of the rules that apply to a request, charged together or not at all.
///
/// A limit of a rule with the action `overflow` does not hold the others back: if it denies, they are charged without
/// it. The decision has the quotas of all limits. It is a denial if one of the others denies, or if all limits
/// overflow.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct RuleLimits {
    limits: JointLimiter<AnyLimiter>,
    /// Whether each of several limits may overflow; empty if none may, or if there is only one.
    overflow: Arc<[bool]>,
}

impl RuleLimits {
    /// The limits that one request meets, see [`JointLimiter::of_request`].
    pub(super) fn of_request(
        limiters: impl IntoIterator<Item = AnyLimiter>,
        policies: Box<[Policy]>,
    ) -> Self {
        Self {
            limits: JointLimiter::of_request(limiters, policies),
            overflow: Arc::default(),
        }
    }

    /// These limits, with those that may `overflow`.
    pub(super) fn with_overflow(mut self, overflow: impl IntoIterator<Item = bool>) -> Self {
        self.overflow = overflow.into_iter().collect();
        let may_overflow = self.overflow.len() > 1 && self.overflow.contains(&true);
        if !may_overflow {
            self.overflow = Arc::default();
        }
        self
    }

    /// Applies operations whose denial depends on the limits that do not overflow.
    #[cold]
    fn call_with_overflow(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        let overflow = call
            .charges
            .iter()
            .map(|charge| self.overflow[charge.index()]);
        let mut attempts = Attempts::new(overflow.collect(), call);
        let mut answer = attempts.call(&self.limits);
        while let Pending::Ready(ready) = answer {
            match attempts.next(ready) {
                NextAttempt::Decided(decision) => return Pending::Ready(decision),
                NextAttempt::Again => answer = attempts.call(&self.limits),
            }
        }
        let limits = self.limits.clone();
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
    fn call(&self, limits: &JointLimiter<AnyLimiter>) -> Pending<BoxedFuture> {
        let charges = self.charges.iter().zip(&self.left_out);
        let charges = charges.filter(|(_, left_out)| !**left_out);
        let charges: Vec<_> = charges.map(|(charge, _)| charge.as_ref()).collect();
        limits.call(&Call::of(&charges).late(self.late))
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

    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        if self.overflow.is_empty() || !call.charges.iter().all(|charge| repeats(charge.op)) {
            return self.limits.call(call);
        }
        self.call_with_overflow(call)
    }

    fn policies(&self) -> &[Policy] {
        self.limits.policies()
    }

    fn facts(&self) -> Facts {
        self.limits.facts()
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
        let policies = limiters.iter().flat_map(|limiter| limiter.policies());
        let limits = RuleLimits::of_request(limiters.clone(), policies.cloned().collect());
        let limits = limits.with_overflow([false, true, false]);
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
