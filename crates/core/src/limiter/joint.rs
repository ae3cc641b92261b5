//! Limits with keys of their own that are charged together.

use std::{fmt, sync::Arc};

use http::request::Parts;

use super::{
    any::AnyLimiter,
    call::{Call, Charge, OpRef},
    limiter::{BoxedFuture, Facts, Limiter, Never, Pending},
    local::{LocalLimiter, LocalStore},
    tier::{Tier, several_quotas},
};
use crate::{
    decision::Policy,
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::{Key, extract::KeyExtractor},
    quota::{OwnedQuota, Priority, Quota},
    token_usage::{Tokens, UnitsOf},
};

/// Several limits, each with a key of its own, that are charged together or not at all.
///
/// [`RateLimitLayer::all`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all) makes one. A [call](Limiter::call) has a charge for each limit that
/// counts the request, with the limit's [index](Charge::limit); [`acquire_all`](Self::acquire_all) takes equal units of all.
/// An operation without a limit, such as [`acquire`](Limiter::acquire), is an error unless there is only one. A decision has
/// the quotas of all limits that were charged. A tier applies to the limits that have it; the others use their default
/// quotas.
///
/// ```
/// use tower_ratelimit::{Key, LocalLimiter, LocalStore, Quota, limiter::JointLimiter};
///
/// let store = LocalStore::new();
/// let limiter = |quota| LocalLimiter::builder(quota).build_in(&store);
/// let address = limiter(Quota::per_minute(2).named("address"))?;
/// let everybody = limiter(Quota::per_minute(100).named("everybody"))?;
/// let both = JointLimiter::new([address, everybody.clone()])?;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let keys = [Key::from("203.0.113.7"), Key::global()];
/// for _ in 0..10 {
///     let _ = both.acquire_all(&keys, 1).await?;
/// }
/// // Eight were denied, and took nothing from the others.
/// assert_eq!(everybody.peek(&Key::global(), 1).remaining(), Some(98));
/// # Ok::<_, tower_ratelimit::LimiterError>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// A clone is a handle to the same limits, and so is each of its [`limiters`](Self::limiters).
pub struct JointLimiter<L = LocalLimiter>(Arc<Inner<L>>);

static DEFAULT_TIER: Tier = Tier::DEFAULT;

struct Inner<L> {
    limiters: Box<[L]>,
    policies: Box<[Policy]>,
}

impl<L: Member> JointLimiter<L> {
    /// A limiter of all these limits together.
    ///
    /// # Errors
    ///
    /// If there is no limit, two of their quotas have one name, a [`LocalLimiter`] has a table of its
    /// own or is in another [`LocalStore`] than the first, or a `RedisLimiter` has a
    /// leaky bucket or a block, which it could not undo.
    pub fn new(limiters: impl IntoIterator<Item = L>) -> Result<Self, ConfigError> {
        let limiters: Box<[L]> = limiters.into_iter().collect();
        if limiters.is_empty() {
            return Err(refused("no limit at all; at least one is needed"));
        }
        let policies: Box<[Policy]> = limiters
            .iter()
            .flat_map(|limiter| limiter.policies().iter().cloned())
            .collect();
        for (at, policy) in policies.iter().enumerate() {
            let name = policy.name();
            if policies[..at].iter().any(|other| other.name() == name) {
                return Err(ConfigError::new(
                    ConfigErrorKind::QuotaList,
                    format!(
                        "two quotas are named {name:?}; give one another name, `.named(\"...\")`"
                    ),
                ));
            }
        }
        check(&limiters)?;
        Ok(Self(Arc::new(Inner { limiters, policies })))
    }

    /// The limits, in their order: handles to peek, refund, block or reset a key of one limit, or to
    /// change its quota. Each takes its own part of a receipt of several. A receipt of one limit is for that
    /// limit only.
    pub fn limiters(&self) -> &[L] {
        &self.0.limiters
    }

    /// Takes `cost` units of every limit for its key in `keys`, all or nothing.
    ///
    /// ```
    /// # use tower_ratelimit::{Key, LocalLimiter, LocalStore, Quota, limiter::JointLimiter};
    /// # let store = LocalStore::new();
    /// # let limiter = |name| LocalLimiter::builder(Quota::per_minute(1).named(name)).build_in(&store);
    /// let both = JointLimiter::new([limiter("address")?, limiter("everybody")?])?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let keys = [Key::from("203.0.113.7"), Key::global()];
    /// assert!(both.acquire_all(&keys, 1).await?.is_allowed());
    /// # Ok::<_, tower_ratelimit::LimiterError>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is another number of keys than of limits, and those of the limiters.
    pub fn acquire_all(&self, keys: &[Key], cost: u64) -> Pending<L::Future> {
        if keys.len() != self.0.limiters.len() {
            return Pending::Ready(Err(self.wrong_number(keys.len())));
        }
        let charge = |(limit, key)| Charge::new(key, OpRef::Acquire(cost)).limit(limit);
        let charges: Vec<_> = keys.iter().enumerate().map(charge).collect();
        self.call(&Call::of(&charges))
    }

    /// The charges of a call, if they are not what each limit is to be charged: a tier is that of the limits that have
    /// it, and limits that take what is available take equal units.
    fn charges_of_each<'a>(
        &self,
        charges: &[Charge<'a>],
    ) -> Result<Option<Vec<Charge<'a>>>, LimiterError> {
        let limiters = &*self.0.limiters;
        let mut next = 0;
        for charge in charges {
            match charge.limit {
                None if limiters.len() > 1 => return Err(self.wrong_number(1)),
                _ if charge.index() >= limiters.len() => {
                    return Err(self.wrong_number(charge.index().saturating_add(1)));
                }
                _ if charge.index() < next => {
                    return Err(LimiterError::unsupported(
                        "the charges of a call are one for each limit at most, in the order of the limits",
                    ));
                }
                _ => next = charge.index() + 1,
            }
        }
        if charges.is_empty() {
            return Err(self.wrong_number(0));
        }
        let is_usual = |charge: &Charge<'_>| {
            charge.tier.is_default() && !matches!(charge.op, OpRef::AcquireUpTo(_))
        };
        if limiters.len() == 1 || charges.iter().all(is_usual) {
            return Ok(None);
        }
        let available = charges.iter().filter_map(|charge| match charge.op {
            OpRef::AcquireUpTo(most) => Some(most),
            _ => None,
        });
        let available = available.min();
        let knows = |limiter: &L, tier| limiter.internals().is_some_and(|own| own.knows(tier));
        let own = charges.iter().map(|charge| {
            let charge = match (charge.op, available) {
                (OpRef::AcquireUpTo(_), Some(most)) => charge.op(OpRef::AcquireUpTo(most)),
                _ => *charge,
            };
            if charge.tier.request().is_some() {
                return Err(several_quotas());
            }
            if charge.tier.is_default() || knows(&limiters[charge.index()], charge.tier) {
                return Ok(charge);
            }
            if limiters.iter().any(|limiter| knows(limiter, charge.tier)) {
                return Ok(charge.tier(&DEFAULT_TIER));
            }
            Err(charge.tier.unknown())
        });
        own.collect::<Result<_, _>>().map(Some)
    }

    #[cold]
    fn wrong_number(&self, given: usize) -> LimiterError {
        LimiterError::unsupported(match self.0.limiters.len() {
            1 => format!("this limiter has 1 limit, and the call has a charge of limit {given}"),
            count => format!(
                "this limiter has {count} limits, and the call is for {given}: pass `acquire_all` {count} keys, or `call` \
                 a charge with its `limit` for each"
            ),
        })
    }
}

/// Checks that these limiters can be charged together.
pub fn check(limiters: &[impl Limiter]) -> Result<(), ConfigError> {
    let all: Option<Vec<_>> = limiters.iter().map(Limiter::internals).collect();
    match all.as_deref() {
        Some(all @ [first, ..]) => first.check(all),
        _ => Err(refused(
            "limits are charged together only if each is a LocalLimiter or a RedisLimiter",
        )),
    }
}

fn refused(fault: impl Into<std::borrow::Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Joint, fault)
}

impl<L: Member> Limiter for JointLimiter<L> {
    type Future = L::Future;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let own = match self.charges_of_each(call.charges) {
            Ok(own) => own,
            Err(error) => return Pending::Ready(Err(error)),
        };
        let charges = own.as_deref().unwrap_or(call.charges);
        let call = &Call { charges, ..*call };
        match &*self.0.limiters {
            [only] => only.call(call),
            limiters => L::call_list(|limit| limiters.get(limit), call),
        }
    }

    fn policies(&self) -> &[Policy] {
        &self.0.policies
    }

    fn facts(&self) -> Facts {
        let each = self.0.limiters.iter().map(Limiter::facts);
        Facts::of_all(each).identified_by(&self.0)
    }
}

impl<L> Clone for JointLimiter<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> fmt::Debug for JointLimiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointLimiter")
            .field("policies", &self.0.policies)
            .finish_non_exhaustive()
    }
}

/// A limiter that can be charged together with others of its kind: a [`LocalLimiter`] in a
/// [`LocalStore`](crate::LocalStore), a `RedisLimiter`, or an [`AnyLimiter`](crate::AnyLimiter)
/// around one of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be charged together with others",
    label = "expected a `LocalLimiter` in a `LocalStore`, or a `RedisLimiter`"
)]
#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
pub trait Member: Limiter + sealed::Sealed + Sized {
    /// Applies the charges of the call, each to the limit that `of` gives for its index. Operations that take units
    /// take them from all limits, or from none.
    #[doc(hidden)]
    fn call_list<'a>(
        of: impl Fn(usize) -> Option<&'a Self>,
        call: &Call<'_>,
    ) -> Pending<Self::Future>;
}

#[doc(hidden)]
pub mod sealed {
    /// For limiters of this crate.
    pub trait Sealed {}
}

impl sealed::Sealed for LocalLimiter {}

#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
impl Member for LocalLimiter {
    fn call_list<'a>(of: impl Fn(usize) -> Option<&'a Self>, call: &Call<'_>) -> Pending<Never> {
        Pending::Ready(Self::decide_many(of, call))
    }
}

impl sealed::Sealed for AnyLimiter {}

#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
impl Member for AnyLimiter {
    fn call_list<'a>(
        of: impl Fn(usize) -> Option<&'a Self>,
        call: &Call<'_>,
    ) -> Pending<BoxedFuture> {
        let of = |limit| Limiter::internals(of(limit)?);
        match call.charges.first().and_then(|first| of(first.index())) {
            Some(first) => first.call_list(&of, call),
            None => Pending::Ready(Err(LimiterError::unsupported(
                "the call has no charge of any limit",
            ))),
        }
    }
}

/// A limit with its key extractor: an item of the list that
/// [`RateLimitLayer::all`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all) takes.
///
/// Made by [`Quota::by`] or [`LocalLimiter::by`].
#[must_use]
#[non_exhaustive]
pub struct KeyedLimit<I = Quota> {
    #[doc(hidden)]
    pub limit: I,
    #[doc(hidden)]
    pub extractor: Arc<dyn KeyExtractor>,
    #[doc(hidden)]
    pub priority: Option<PriorityOf>,
    #[doc(hidden)]
    pub units: Option<UnitsOf>,
}

type PriorityOf = Arc<dyn Fn(&Parts) -> Priority + Send + Sync>;

impl<I> KeyedLimit<I> {
    /// `limit`, counted by the key that `extractor` finds.
    pub fn new(limit: I, extractor: impl KeyExtractor) -> Self {
        Self {
            limit,
            extractor: Arc::new(extractor),
            priority: None,
            units: None,
        }
    }

    /// The class of a request at this limit. Defaults to the layer's
    /// [`priority`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.priority).
    pub fn priority(
        mut self,
        priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static,
    ) -> Self {
        self.priority = Some(Arc::new(priority));
        self
    }

    /// Charges this limit the units of the tokens that a response uses, in a layer that is
    /// [`spending`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.spending). Called with all that is known so far, after each
    /// frame. Defaults to none: the limit is charged the layer's [`cost`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.cost).
    ///
    /// ```
    /// # {
    /// use tower_ratelimit::{Header, Quota, RateLimitLayer, spend::{Tokens, llm::Llm}};
    ///
    /// let user = || Header::new("x-api-key");
    /// let layer = RateLimitLayer::all([
    ///     Quota::per_minute(60).named("requests").by(user()),
    ///     Quota::per_minute(100_000).named("tokens").debt(100_000).by(user()).spends(Tokens::total),
    /// ])
    /// .spending(Llm::any());
    /// # let _ = layer;
    /// # }
    /// ```
    pub fn spends(mut self, units: impl Fn(&Tokens) -> u64 + Send + Sync + 'static) -> Self {
        self.units = Some(Arc::new(units));
        self
    }
}

impl Quota {
    /// This quota, counted by the key that `extractor` finds, for a list of limits that are
    /// [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

impl OwnedQuota {
    /// This quota, counted by the key that `extractor` finds, for a list of limits that are
    /// [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

impl LocalLimiter {
    /// This limiter, counted by the key that `extractor` finds, for a list of limits that are
    /// [charged together](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.all). It must be in a [store](LocalStore).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

/// A limit for a list of limits that are charged together: a [`Quota`], or a limiter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be charged together with others",
    label = "expected a `Quota`, a `LocalLimiter` in a `LocalStore`, or a `RedisLimiter`"
)]
pub trait IntoMembers: Sized {
    /// The type of the limiters.
    type Limiter: Member;

    /// Makes limiters of a whole list.
    #[doc(hidden)]
    fn into_members(limits: Vec<Self>) -> Result<Vec<Self::Limiter>, ConfigError>;
}

impl<L: Member> IntoMembers for L {
    type Limiter = L;

    fn into_members(limits: Vec<Self>) -> Result<Vec<L>, ConfigError> {
        Ok(limits)
    }
}

impl IntoMembers for Quota {
    type Limiter = LocalLimiter;

    fn into_members(limits: Vec<Self>) -> Result<Vec<LocalLimiter>, ConfigError> {
        OwnedQuota::into_members(limits.into_iter().map(Into::into).collect())
    }
}

impl IntoMembers for OwnedQuota {
    type Limiter = LocalLimiter;

    /// Makes limiters in a new store.
    fn into_members(limits: Vec<Self>) -> Result<Vec<LocalLimiter>, ConfigError> {
        let store = LocalStore::new();
        let count = limits.len();
        let limiters = limits.into_iter().map(|quota| {
            let named = quota.quota().named_as(quota.name_in(count));
            LocalLimiter::builder(named).build_in(&store)
        });
        limiters.collect()
    }
}

impl<I> fmt::Debug for KeyedLimit<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimit").finish_non_exhaustive()
    }
}
