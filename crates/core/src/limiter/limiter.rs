//! `Limiter`, the trait of all limiters, `Pending`, its answer, and `IntoLimiter`: what a layer takes as one.

use std::{
    any::Any,
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    call::{Call, Charge, Charged, OpRef},
    tier::Tier,
};
use crate::{
    decision::{Decision, Op, Policy, Receipt},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::Key,
    quota::{OwnedQuota, Priority, Quota},
};

/// A limiter: decides about operations on keys, and keeps their state.
///
/// A limiter that waits, such as for a store, is easier to write as an
/// [`AsyncLimiter`](crate::limiter::AsyncLimiter).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a `Quota`, a `LocalLimiter`, a `GovernorLimiter`, or a `Limiter` of your own"
)]
#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
pub trait Limiter: Send + Sync + 'static {
    /// The future in [`Pending::Later`]. Use [`Never`](super::Never) for a limiter that never waits.
    type Future: Future<Output = Result<Decision, LimiterError>> + Send + 'static;

    /// Applies the operations of all charges in one step, atomically with respect to other operations on their keys.
    ///
    /// A limiter of one limit takes [one](Call::one) charge; one without tiers and classes takes it
    /// [alone](Call::alone). Return a decision without a wait as [`Pending::Ready`]: the layer then calls the inner
    /// service immediately. A dropped future may or may not have applied the operations.
    ///
    /// ```
    /// use tower_ratelimit::{
    ///     Decision, Limiter, LimiterError, LocalLimiter, decision::Policy,
    ///     limiter::{Call, Never, OpRef, Pending},
    /// };
    ///
    /// /// Counts what passes, and nothing else.
    /// struct Acquires(LocalLimiter);
    ///
    /// impl Acquires {
    ///     fn decide(&self, call: &Call<'_>) -> Result<Decision, LimiterError> {
    ///         let (key, op) = call.alone()?;
    ///         match op {
    ///             OpRef::Acquire(cost) => Ok(self.0.acquire(key, cost)),
    ///             _ => Err(LimiterError::unsupported("only acquire")),
    ///         }
    ///     }
    /// }
    ///
    /// impl Limiter for Acquires {
    ///     type Future = Never;
    ///
    ///     fn call(&self, call: &Call<'_>) -> Pending<Never> {
    ///         Pending::Ready(self.decide(call))
    ///     }
    ///
    ///     fn policies(&self) -> &[Policy] {
    ///         self.0.policies()
    ///     }
    /// }
    /// ```
    fn call(&self, call: &Call<'_>) -> Pending<Self::Future>;

    /// Applies `op` to `key` of the limiter's only limit, in the default tier and for a critical request.
    #[inline]
    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        self.call(&Call::of(&[Charge::new(key, op.as_ref())]))
    }

    /// Takes units of the default tier's quotas for a class of requests, as an [`Acquire`](Op::Acquire) does, if the
    /// limiter can at once and without a [`Decision`]: so a layer charges before it takes a request apart. `None`: nothing
    /// was taken, and [`call`](Self::call) decides.
    #[doc(hidden)]
    #[inline]
    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        let _ = (class, key, units);
        None
    }

    /// The policies of the quotas in decisions, in the same order: those of the default tier.
    ///
    /// Layers read them when they are built, for the constant parts of headers. A decision about other
    /// quotas is rendered from its own.
    fn policies(&self) -> &[Policy];

    /// The abilities of the limiter. Layers read them when they are built, and log the settings that will
    /// not work.
    fn facts(&self) -> Facts {
        Facts::new()
    }

    /// The future without its type.
    #[doc(hidden)]
    fn boxed(future: Self::Future) -> BoxedFuture
    where
        Self: Sized,
    {
        Box::pin(future)
    }

    /// The methods of the limiters of this crate that are not in this trait.
    #[doc(hidden)]
    fn internals(&self) -> Option<&dyn Internals> {
        None
    }

    /// Takes `cost` units if they are available, all or nothing. A cost of 0 takes nothing; a cost above
    /// the capacity, soft share included, is always denied, without a
    /// [`retry_after`](Decision::retry_after).
    ///
    /// ```
    /// # async fn f(limiter: impl tower_ratelimit::Limiter) -> Result<(), tower_ratelimit::LimiterError> {
    /// let decision = limiter.acquire(&"alice".into(), 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    fn acquire(&self, key: &Key, cost: u64) -> Pending<Self::Future> {
        self.call(&Call::of(&[Charge::new(key, OpRef::Acquire(cost))]))
    }

    /// Takes what is available, at most `most` units; [`Decision::charged`] is their number. Denied if there
    /// are none.
    fn acquire_up_to(&self, key: &Key, most: u64) -> Pending<Self::Future> {
        self.apply(key, Op::AcquireUpTo(most))
    }

    /// Decides like [`acquire`](Self::acquire) and takes nothing. Another request may take the units before
    /// a later `acquire` does.
    fn peek(&self, key: &Key, cost: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Peek(cost))
    }

    /// Takes `cost` units whether or not they are available, down to exhaustion: for work that was done
    /// already. The outcome is that of [`acquire`](Self::acquire).
    fn hit(&self, key: &Key, cost: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Hit(cost))
    }

    /// Takes `units` that were used already, whether or not they are available: beyond the capacity as far
    /// as the quota's [debt](crate::Quota::debt) goes, see [`Op::Spend`].
    fn spend(&self, key: &Key, units: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Spend(units))
    }

    /// Adds `units` whatever the outcome: a denial if the count then exceeds the limit. The limiter's quotas
    /// must be [uncapped](crate::Quota::uncapped), see [`Op::Count`].
    fn count(&self, key: &Key, units: u64) -> Pending<Self::Future> {
        self.apply(key, Op::Count(units))
    }

    /// Refunds `cost` units, of the decision with this receipt, or of the newest charge. Use a receipt
    /// once.
    fn refund(&self, key: &Key, cost: u64, receipt: Option<Receipt>) -> Pending<Self::Future> {
        self.apply(key, Op::Refund(cost, receipt))
    }

    /// Denies the key everything for this time from now on, at most 18 years, in all tiers and whatever its
    /// quotas hold; zero ends a block.
    fn block(&self, key: &Key, block: Duration) -> Pending<Self::Future> {
        self.apply(key, Op::Block(block))
    }

    /// Resets the key to its initial state, in all tiers, and ends its block.
    fn reset(&self, key: &Key) -> Pending<Self::Future> {
        self.apply(key, Op::Reset)
    }
}

/// The abilities of a limiter, for layers: see [`Limiter::facts`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Facts {
    /// A bit for each kind of operation.
    ops: u32,
    /// Whether [`Op::Deny`] and [`Op::Settle`] may start a block. If a limiter never blocks, layers save the
    /// operations that report denials, and responses whose cost equals the reservation.
    pub blocks: bool,
    /// Whether the limiter decides by the [class](Charge::class) of requests, else why not. A layer with a
    /// [`priority`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.priority) needs a limiter that does.
    pub classes: Result<(), ConfigError>,
    /// A number that is equal for all handles to one limiter, if there is one. By it a layer detects that a
    /// request was charged already.
    pub identity: Option<usize>,
    /// Whether it answers each call at once, never [later](Pending::Later): a layer then charges before it takes a request
    /// apart.
    #[doc(hidden)]
    pub answers_at_once: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self::new()
    }
}

impl Facts {
    /// The facts of a limiter that supports all operations, may block, and knows no classes of requests.
    pub fn new() -> Self {
        Self {
            ops: u32::MAX,
            blocks: true,
            classes: Err(ConfigError::new(
                ConfigErrorKind::Priority,
                "the limiter does not support priorities; use a LocalLimiter or a RedisLimiter",
            )),
            identity: None,
            answers_at_once: false,
        }
    }

    /// The facts of a limiter that supports operations like these and no others. An unsupported operation is an error of
    /// the kind [`Unsupported`](crate::LimiterErrorKind::Unsupported).
    #[must_use]
    pub fn only(self, ops: &[Op]) -> Self {
        let ops = ops.iter().fold(0, |all, op| all | op.bit());
        Self { ops, ..self }
    }

    /// These facts for a limiter that does not support operations like this one.
    #[must_use]
    pub fn without(self, op: &Op) -> Self {
        let ops = self.ops & !op.bit();
        Self { ops, ..self }
    }

    /// Whether the limiter supports operations like `op`.
    pub fn supports(&self, op: &Op) -> bool {
        self.ops & op.bit() != 0
    }

    /// These facts for a limiter whose handles share this, unless it has an identity.
    #[doc(hidden)]
    #[must_use]
    pub fn identified_by<T: ?Sized>(mut self, shared: &Arc<T>) -> Self {
        let own = || Some(Arc::as_ptr(shared).addr());
        self.identity = self.identity.or_else(own);
        self
    }

    /// The facts of limits that are charged together.
    pub(super) fn of_all(each: impl Iterator<Item = Self>) -> Self {
        let nothing = Self {
            blocks: false,
            classes: Ok(()),
            ..Self::new()
        };
        each.fold(nothing, |all, of| Self {
            ops: all.ops & of.ops,
            blocks: all.blocks || of.blocks,
            classes: all.classes.and(of.classes),
            identity: None,
            answers_at_once: false,
        })
    }
}

#[allow(
    private_interfaces,
    reason = "hidden methods are for limiters of this crate"
)]
impl<L: Limiter> Limiter for Arc<L> {
    type Future = L::Future;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        L::call(self, call)
    }

    #[inline]
    fn charge(&self, class: Priority, key: &Key, units: u64) -> Option<Charged<'_>> {
        L::charge(self, class, key, units)
    }

    fn policies(&self) -> &[Policy] {
        L::policies(self)
    }

    fn facts(&self) -> Facts {
        L::facts(self).identified_by(self)
    }

    fn boxed(future: Self::Future) -> BoxedFuture {
        L::boxed(future)
    }

    fn internals(&self) -> Option<&dyn Internals> {
        L::internals(self)
    }
}

/// A limiter's answer, or its future. `.await` works for both.
///
/// A caller that need not wait matches on it: a decision of this process is always ready.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third state")]
#[must_use = "the limiter's answer may be that the request is denied"]
pub enum Pending<F> {
    /// The answer.
    Ready(Result<Decision, LimiterError>),
    /// The future of the answer. The operation may be in flight already, so dropping it does not mean that
    /// nothing is charged.
    Later(F),
}

/// The future of a limiter that never waits: a type without values.
///
/// A `Pending<Never>` is always [`Ready`](Pending::Ready):
///
/// ```
/// use tower_ratelimit::{Key, Limiter, LocalLimiter, Quota, decision::Op, limiter::Pending};
///
/// let limiter = LocalLimiter::new(Quota::per_minute(1));
/// let Pending::Ready(answer) = limiter.apply(&Key::global(), Op::Acquire(1));
/// assert!(answer?.is_allowed());
/// # Ok::<(), tower_ratelimit::LimiterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
pub enum Never {}

impl Future for Never {
    type Output = Result<Decision, LimiterError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match *self {}
    }
}

impl<F> IntoFuture for Pending<F>
where
    F: Future<Output = Result<Decision, LimiterError>>,
{
    type Output = F::Output;
    type IntoFuture = PendingFuture<F>;

    fn into_future(self) -> PendingFuture<F> {
        let (answer, future) = match self {
            Self::Ready(answer) => (Some(answer), None),
            Self::Later(future) => (None, Some(future)),
        };
        PendingFuture { answer, future }
    }
}

pin_project_lite::pin_project! {
    /// The future of a [`Pending`].
    pub struct PendingFuture<F> {
        answer: Option<Result<Decision, LimiterError>>,
        #[pin]
        future: Option<F>,
    }
}

impl<F> Future for PendingFuture<F>
where
    F: Future<Output = Result<Decision, LimiterError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match this.future.as_pin_mut() {
            Some(future) => future.poll(cx),
            None => Poll::Ready(this.answer.take().expect("polled after it was ready")),
        }
    }
}

impl<F> fmt::Debug for PendingFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingFuture").finish_non_exhaustive()
    }
}

pub type BoxedFuture = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

/// The methods of the limiters of this crate that are not in the public trait: for [`JointLimiter`](super::JointLimiter) and
/// [`AnyLimiter`](super::AnyLimiter).
pub trait Internals {
    fn as_any(&self) -> &dyn Any;

    /// Checks that `all`, of which this is the first, can be charged together.
    fn check(&self, all: &[&dyn Internals]) -> Result<(), ConfigError>;

    /// Whether the limiter has quotas for this tier.
    fn knows(&self, tier: &Tier) -> bool;

    /// Applies the charges of the call, each to the limit that `of` gives for its index, which are of this type.
    /// Operations that take units take them from all limits, or from none.
    fn call_list<'a>(
        &self,
        of: &dyn Fn(usize) -> Option<&'a dyn Internals>,
        call: &Call<'_>,
    ) -> Pending<BoxedFuture>;

    /// Replaces the default tier's quota of this name.
    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError>;

    /// The default tier's quota of this name, as it is in force.
    fn quota(&self, name: &str) -> Option<Quota>;

    /// Hands the limit over to `next`: refunds of charges that `next` could not have made are dropped.
    fn hand_over_to(&self, next: &dyn Internals) {
        let _ = next;
    }
}

/// The limiters of one type.
///
/// # Errors
///
/// If one is of another type.
pub fn all_typed<'a, T: 'static>(all: &[&'a dyn Internals]) -> Result<Vec<&'a T>, ConfigError> {
    let typed = all.iter().map(|of| of.typed());
    typed.collect::<Option<_>>().ok_or_else(|| {
        ConfigError::new(
            ConfigErrorKind::Joint,
            "limits are charged together only if all are in one LocalStore, or all in Redis",
        )
    })
}

impl dyn Internals + '_ {
    pub fn typed<T: 'static>(&self) -> Option<&T> {
        self.as_any().downcast_ref()
    }
}

/// A type that a layer can use as its limiter: a [`Quota`](crate::Quota), a [`Limiter`] or an [`AsyncLimiter`](super::AsyncLimiter).
///
/// `Via` is inferred. It distinguishes the conversions, so that the implementations do not overlap.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a `Quota`, a `LocalLimiter`, a `GovernorLimiter`, or a type that implements `Limiter` or `AsyncLimiter`",
    note = "`RateLimitLayer::new` takes the quota first and the key extractor second",
    note = "a text such as `\"10/second\"` is read by `.parse()`: `\"10/second\".parse::<Quota>()?`"
)]
pub trait IntoLimiter<Via> {
    /// The type of the limiter.
    type Limiter: Limiter;

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// If a quota is invalid, see [`Quota::check`](crate::quota::Quota::check).
    fn into_limiter(self) -> Result<Self::Limiter, ConfigError>;
}

/// Marks the conversion of a type that is a [`Limiter`] already. Inferred as `Via` of [`IntoLimiter`]; it
/// has no values outside of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub struct FromLimiter;

impl<L: Limiter> IntoLimiter<FromLimiter> for L {
    type Limiter = L;

    fn into_limiter(self) -> Result<L, ConfigError> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::ManualClock,
        limiter::{LocalLimiter, LocalStore, any::AnyLimiter},
    };

    const QUOTA: Quota = Quota::per_minute(4);

    #[test]
    fn a_charge_is_the_decision_of_an_acquire() -> Result<(), ConfigError> {
        let clock = ManualClock::new();
        let alone = || LocalLimiter::builder(QUOTA).clock(clock.clone()).build();
        let (other, key) = (alone()?, Key::from("alice"));
        let limiters = (
            alone()?,
            Arc::new(alone()?),
            AnyLimiter::new(alone()?),
            Arc::new(AnyLimiter::new(Arc::new(alone()?))),
        );
        assert!(limiters.0.facts().answers_at_once && limiters.1.facts().answers_at_once);
        assert!(limiters.2.facts().answers_at_once && limiters.3.facts().answers_at_once);
        let (low, critical) = (Priority::share(50).expect("half"), Priority::CRITICAL);
        for (class, units) in [(low, 1), (low, 1), (low, 1), (critical, 2), (critical, 1)] {
            let charge = Charge::new(&key, crate::limiter::OpRef::Acquire(units)).class(class);
            let Pending::Ready(expected) = other.call(&Call::of(&[charge]));
            let expected = expected.expect("a decision");
            for charged in [
                Limiter::charge(&limiters.0, class, &key, units),
                limiters.1.charge(class, &key, units),
                limiters.2.charge(class, &key, units),
                limiters.3.charge(class, &key, units),
            ] {
                let charged = charged.expect("a charge");
                assert_eq!(charged.is_taken(), expected.is_allowed());
                assert_eq!(charged.decision(), expected);
            }
        }
        Ok(())
    }

    #[test]
    fn a_limiter_of_other_quotas_decides_by_calls() -> Result<(), ConfigError> {
        let key = Key::from("alice");
        let changed = LocalLimiter::new(QUOTA);
        changed.set_quota("default", QUOTA.burst(7))?;
        let others = [
            LocalLimiter::builder(QUOTA).build_in(&LocalStore::new())?,
            LocalLimiter::new([QUOTA.named("a"), Quota::per_day(9).named("b")]),
            LocalLimiter::new(QUOTA.fixed_window()),
            changed,
        ];
        for limiter in others {
            assert!(limiter.facts().answers_at_once);
            assert!(limiter.charge(Priority::CRITICAL, &key, 1).is_none());
            assert!(limiter.peek(&key, 4).is_allowed());
        }
        Ok(())
    }
}
