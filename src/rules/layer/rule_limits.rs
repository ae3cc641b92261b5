//! The limits of the rules that apply to a request.

use std::sync::Arc;

use crate::{
    decision::{Decision, Op, Policy},
    error::{ConfigError, LimiterError},
    key::Key,
    limiter::{AnyLimiter, JointLimiter, Limiter, Pending, Tier, type_erased_member::BoxedFuture},
};

/// The limits of the rules that apply to a request, charged together or not at all.
///
/// A limit of a rule with the action `overflow` does not hold the others back: if it denies, they are charged without
/// it. The decision has the quotas of all limits. It is a denial if one of the others denies, or if all limits
/// overflow.
#[derive(Clone)]
pub(super) struct RuleLimits {
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

    /// Applies an operation whose denial depends on the limits that do not overflow.
    #[cold]
    fn apply_with_overflow(&self, tier: &Tier, key: &Key, op: Op) -> Pending<BoxedFuture> {
        let mut attempts = Attempts::new(&self.overflow);
        let mut answer = self.limits.apply_in(tier, key, op.clone());
        while let Pending::Ready(ready) = answer {
            match attempts.next(ready, key) {
                NextAttempt::Decided(decision) => return Pending::Ready(decision),
                NextAttempt::Again(rest) => answer = self.limits.apply_in(tier, &rest, op.clone()),
            }
        }
        let (limits, tier, key) = (self.limits.clone(), tier.clone(), key.clone());
        Pending::Later(Box::pin(async move {
            loop {
                match attempts.next(answer.await, &key) {
                    NextAttempt::Decided(decision) => return decision,
                    NextAttempt::Again(rest) => answer = limits.apply_in(&tier, &rest, op.clone()),
                }
            }
        }))
    }
}

/// Attempts to decide without the limits that overflow. Each one leaves out more.
struct Attempts {
    overflow: Arc<[bool]>,
    left_out: Vec<bool>,
    /// The last decision, with the statuses of all limits.
    last: Option<Decision>,
}

/// The step after an attempt.
enum NextAttempt {
    Decided(Result<Decision, LimiterError>),
    /// Another attempt, with the key of the other limits.
    Again(Key),
}

impl Attempts {
    fn new(overflow: &Arc<[bool]>) -> Self {
        Self {
            overflow: Arc::clone(overflow),
            left_out: vec![false; overflow.len()],
            last: None,
        }
    }

    /// The step after this answer; `key` has the keys of all limits.
    fn next(&mut self, answer: Result<Decision, LimiterError>, key: &Key) -> NextAttempt {
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
        let parts = key.parts().zip(&self.left_out);
        NextAttempt::Again(Key::of_limits(
            parts.map(|(part, left_out)| part.filter(|_| !left_out)),
        ))
    }
}

impl Limiter for RuleLimits {
    type Future = BoxedFuture;

    fn apply(&self, key: &Key, op: Op) -> Pending<BoxedFuture> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    #[inline]
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<BoxedFuture> {
        let may_deny = matches!(
            op,
            Op::Acquire(_) | Op::Reserve(_) | Op::Peek(_) | Op::Deny(_)
        );
        if self.overflow.is_empty() || !may_deny {
            return self.limits.apply_in(tier, key, op);
        }
        self.apply_with_overflow(tier, key, op)
    }

    fn policies(&self) -> &[Policy] {
        self.limits.policies()
    }

    fn supports(&self, op: &Op) -> bool {
        self.limits.supports(op)
    }

    fn supports_priority(&self) -> bool {
        self.limits.supports_priority()
    }

    fn check_priority(&self) -> Result<(), ConfigError> {
        self.limits.check_priority()
    }

    fn blocks(&self) -> bool {
        self.limits.blocks()
    }

    fn identity(&self) -> Option<usize> {
        self.limits.identity()
    }

    fn epoch(&self, limit: usize) -> u32 {
        self.limits.epoch(limit)
    }

    fn boxed(future: BoxedFuture) -> BoxedFuture {
        future
    }
}
