//! Limiters that are written as an `async fn`.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use super::{Call, Facts, Limiter, Pending, Tier};
use crate::{
    decision::Op,
    decision::{Decision, Policy},
    error::LimiterError,
    key::Key,
};

/// A limiter written as an ordinary `async fn`.
///
/// A layer takes it like any other limiter; every decision costs one boxed future.
///
/// ```
/// use tower_ratelimit::{
///     AsyncLimiter, Decision, Global, Key, LimiterError, RateLimitLayer,
///     clock::{Clock, OsClock},
///     decision::{Op, Policy, QuotaStatus},
/// };
///
/// struct OneOfTwo {
///     policy: [Policy; 1],
///     seen: std::sync::atomic::AtomicU64,
/// }
///
/// impl AsyncLimiter for OneOfTwo {
///     async fn apply(&self, _: &Key, op: Op) -> Result<Decision, LimiterError> {
///         // A reservation, for `count_if` or `wait`, takes units like an acquisition.
///         let (Op::Acquire(cost) | Op::Reserve(cost)) = op else {
///             return Err(LimiterError::unsupported("only acquire"));
///         };
///         let clock = OsClock::new();
///         let now = clock.wall(clock.now());
///         let status = QuotaStatus::new(&self.policy[0]);
///         let seen = self.seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         Ok(if seen.is_multiple_of(2) {
///             Decision::allowed(cost, now, status)
///         } else {
///             Decision::denied(now, status.with_denial(None))
///         })
///     }
///
///     fn policies(&self) -> &[Policy] {
///         &self.policy
///     }
/// }
///
/// let layer = RateLimitLayer::new(
///     OneOfTwo {
///         policy: [Policy::new("half", 1)],
///         seen: 0.into(),
///     },
///     Global,
/// );
/// # let _ = layer;
/// ```
pub trait AsyncLimiter: Send + Sync + 'static {
    /// Does `op` for `key`. See [`Limiter::apply`].
    ///
    /// # Errors
    ///
    /// If the limiter cannot decide. The layer then responds with 503. To let requests pass instead,
    /// return an allowed decision.
    fn apply(
        &self,
        key: &Key,
        op: Op,
    ) -> impl Future<Output = Result<Decision, LimiterError>> + Send;

    /// Does `op` for `key` by the quotas of `tier`.
    ///
    /// # Errors
    ///
    /// The default implementation returns an error for every tier except [`Tier::DEFAULT`].
    fn apply_in(
        &self,
        tier: &Tier,
        key: &Key,
        op: Op,
    ) -> impl Future<Output = Result<Decision, LimiterError>> + Send {
        async move {
            if tier.is_default() {
                return self.apply(key, op).await;
            }
            Err(tier.unknown())
        }
    }

    /// The policies of the quotas in decisions, in the same order.
    fn policies(&self) -> &[Policy];

    /// The abilities of the limiter, for layers. See [`Limiter::facts`].
    fn facts(&self) -> Facts {
        Facts::new()
    }
}

/// An [`AsyncLimiter`] as a [`Limiter`]. Clones share it.
pub struct BoxedLimiter<A>(Arc<A>);

impl<A> BoxedLimiter<A> {
    /// A limiter that calls `limiter`. Layers make it themselves; your own code needs it where a
    /// [`Limiter`] is expected, such as for an [`AnyLimiter`](super::AnyLimiter).
    pub fn new(limiter: A) -> Self {
        Self(Arc::new(limiter))
    }

    /// The async limiter.
    pub fn get_ref(&self) -> &A {
        &self.0
    }
}

impl<A> Clone for BoxedLimiter<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A> fmt::Debug for BoxedLimiter<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedLimiter").finish_non_exhaustive()
    }
}

impl<A: AsyncLimiter> Limiter for BoxedLimiter<A> {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let charge = match call.of_all_classes() {
            Ok(charge) => charge.to_owned(),
            Err(error) => return Pending::Ready(Err(error)),
        };
        let limiter = Arc::clone(&self.0);
        Pending::Later(Box::pin(async move {
            limiter.apply_in(&charge.tier, &charge.key, charge.op).await
        }))
    }

    fn policies(&self) -> &[Policy] {
        self.0.policies()
    }

    fn facts(&self) -> Facts {
        self.0.facts().identified_by(&self.0)
    }
}

impl<A: AsyncLimiter> AsyncLimiter for Arc<A> {
    fn apply(
        &self,
        key: &Key,
        op: Op,
    ) -> impl Future<Output = Result<Decision, LimiterError>> + Send {
        A::apply(self, key, op)
    }

    fn apply_in(
        &self,
        tier: &Tier,
        key: &Key,
        op: Op,
    ) -> impl Future<Output = Result<Decision, LimiterError>> + Send {
        A::apply_in(self, tier, key, op)
    }

    fn policies(&self) -> &[Policy] {
        A::policies(self)
    }

    fn facts(&self) -> Facts {
        A::facts(self)
    }
}
