//! `AnyLimiter`: any limiter behind one type, and `AsyncLimiter` for those that wait.

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc};

use super::{
    call::{Call, Charged},
    limiter::{BoxedFuture, Facts, Internals, IntoLimiter, Limiter, Pending},
    tier::Tier,
};
use crate::{
    decision::{Decision, Op, Policy},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::Key,
    quota::{OwnedQuota, Priority},
};

/// A limiter of any type, chosen at run time: in this process while developing, through Redis in
/// production. A layer with one is a `RateLimitLayer<AnyLimiter>` in both cases.
///
/// A clone is a handle to the same limiter. Each call costs one indirect call more; a future is boxed
/// only if the limiter waits. A [`BoxedLimiter`](super::BoxedLimiter) serves another purpose: it turns
/// an [`AsyncLimiter`](super::AsyncLimiter) into a limiter and boxes every call.
///
/// Several can be charged together by a [`JointLimiter`](super::JointLimiter), if all are
/// `LocalLimiter`s of one store, or all are `RedisLimiter`s.
///
/// ```
/// use tower_ratelimit::{AnyLimiter, Key, LocalLimiter, PeerIp, Quota, RateLimitLayer};
///
/// fn limiter(redis: Option<&str>) -> Result<AnyLimiter, tower_ratelimit::ConfigError> {
///     let quota = Quota::per_second(10).burst(20).named("api");
///     match redis {
///         Some(url) => Ok(AnyLimiter::new(tower_ratelimit::RedisLimiter::connect(url, quota)?)),
///         _ => Ok(AnyLimiter::new(LocalLimiter::try_new(quota)?)),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layer: RateLimitLayer<AnyLimiter> = RateLimitLayer::new(limiter(None)?, PeerIp);
/// let left = layer.limiter().peek(&Key::from("alice"), 1).await?;
/// assert_eq!(left.remaining(), Some(20));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AnyLimiter(Arc<dyn Erased>);

/// A [`Limiter`] without its type of future.
trait Erased: Send + Sync {
    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture>;

    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>>;

    fn policies(&self) -> &[Policy];

    fn facts(&self) -> Facts;

    fn internals(&self) -> Option<&dyn Internals>;
}

impl<L: Limiter> Erased for L {
    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        boxed::<L>(Limiter::call(self, call))
    }

    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        Limiter::charge(self, class, key, units)
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(self)
    }

    fn facts(&self) -> Facts {
        Limiter::facts(self)
    }

    fn internals(&self) -> Option<&dyn Internals> {
        Limiter::internals(self)
    }
}

#[inline(always)]
pub fn boxed<L: Limiter>(answer: Pending<L::Future>) -> Pending<BoxedFuture> {
    match answer {
        Pending::Ready(answer) => Pending::Ready(answer),
        Pending::Later(future) => Pending::Later(L::boxed(future)),
    }
}

impl AnyLimiter {
    /// The limiter without its type. An `AnyLimiter` in another one costs a second indirect call.
    pub fn new(limiter: impl Limiter) -> Self {
        match (&limiter as &dyn Any).downcast_ref::<Self>() {
            Some(any) => any.clone(),
            None => Self(Arc::new(limiter)),
        }
    }

    /// Changes the quota of this name in the default tier, as
    /// [`LocalLimiter::set_quota`](crate::LocalLimiter::set_quota) and `RedisLimiter::set_quota` do.
    ///
    /// # Errors
    ///
    /// The errors of the limiter's own `set_quota`, or
    /// [`QuotaList`](ConfigErrorKind::QuotaList) if this is neither a `LocalLimiter` nor a
    /// `RedisLimiter`.
    pub fn set_quota(&self, name: &str, quota: impl Into<OwnedQuota>) -> Result<(), ConfigError> {
        let internals = self.0.internals().ok_or_else(|| {
            ConfigError::new(
                ConfigErrorKind::QuotaList,
                "the quotas of this limiter cannot be changed: only those of a LocalLimiter or a \
                 RedisLimiter can",
            )
        })?;
        internals.replace_quota(name, quota.into())
    }

    /// The default tier's quota of this name, as it is in force.
    #[doc(hidden)]
    pub fn quota(&self, name: &str) -> Option<crate::quota::Quota> {
        self.0.internals()?.quota(name)
    }

    /// Hands the limit over to `next`, see [`Internals::hand_over_to`].
    #[doc(hidden)]
    pub fn hand_over_to(&self, next: &Self) {
        if let (Some(own), Some(next)) = (self.0.internals(), next.0.internals()) {
            own.hand_over_to(next);
        }
    }
}

/// Implements for an asynchronous limiter the methods of a [`LocalLimiter`](crate::LocalLimiter), with
/// equal names and arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! handle_methods {
    ($limiter:ty $(where $store:ident: $bound:path)?) => {
        impl$(<$store: $bound>)? $limiter {
            /// Takes `cost` units if they are available, all or nothing. A cost above the capacity, soft
            /// share included, is always denied, without a
            /// [`retry_after`](crate::Decision::retry_after).
            pub fn acquire(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::acquire(self, key, cost)
            }

            /// Takes what is available, at most `most` units;
            /// [`Decision::charged`](crate::Decision::charged) returns how many. Denied if there are none.
            pub fn acquire_up_to(
                &self,
                key: &Key,
                most: u64,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::acquire_up_to(self, key, most)
            }

            /// Decides like [`acquire`](Self::acquire) and takes nothing. Another request, also of another
            /// node, may take the units before a later `acquire` does.
            pub fn peek(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::peek(self, key, cost)
            }

            /// Takes `cost` units whether or not they are available, down to exhaustion: for work that was
            /// done already. The outcome is that of [`acquire`](Self::acquire).
            pub fn hit(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::hit(self, key, cost)
            }

            /// Refunds `cost` units. With the receipt of the decision that charged them, at most its
            /// charge less the units that have returned since; without a receipt, units of the newest
            /// charge.
            pub fn refund(
                &self,
                key: &Key,
                cost: u64,
                receipt: Option<$crate::decision::Receipt>,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::refund(self, key, cost, receipt)
            }

            /// Denies the key everything for this time from now on, at most 18 years; zero ends a
            /// block.
            pub fn block(
                &self,
                key: &Key,
                block: std::time::Duration,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::block(self, key, block)
            }

            /// Resets the key to its initial state, in all tiers, and ends its block.
            pub fn reset(&self, key: &Key) -> Pending<<Self as Limiter>::Future> {
                Limiter::reset(self, key)
            }
        }
    };
}

#[doc(hidden)]
pub use handle_methods;

handle_methods!(AnyLimiter);

#[allow(
    private_interfaces,
    reason = "nobody else implements the hidden methods"
)]
impl Limiter for AnyLimiter {
    type Future = BoxedFuture;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        self.0.call(call)
    }

    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        self.0.charge(class, key, units)
    }

    fn policies(&self) -> &[Policy] {
        self.0.policies()
    }

    fn facts(&self) -> Facts {
        self.0.facts().identified_by(&self.0)
    }

    fn boxed(future: BoxedFuture) -> BoxedFuture {
        future
    }

    fn internals(&self) -> Option<&dyn Internals> {
        self.0.internals()
    }
}

impl fmt::Debug for AnyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyLimiter")
            .field("policies", &self.0.policies())
            .finish_non_exhaustive()
    }
}

/// Marks the conversion of an [`AsyncLimiter`] to a [`BoxedLimiter`].
#[derive(Debug)]
#[non_exhaustive]
pub struct FromAsync;

impl<A: AsyncLimiter> IntoLimiter<FromAsync> for A {
    type Limiter = BoxedLimiter<A>;

    fn into_limiter(self) -> Result<BoxedLimiter<A>, ConfigError> {
        Ok(BoxedLimiter::new(self))
    }
}

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
    /// [`Limiter`] is expected, such as for an [`AnyLimiter`].
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
