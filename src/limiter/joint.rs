//! Limits with keys of their own that are charged together.

use std::{fmt, sync::Arc, time::Duration};

use http::request::Parts;

use super::{
    Facts, Limiter, LocalLimiter, LocalStore, Never, Pending, Tier,
    limiter::{MemberCall, one_operation},
    per_request_quota::several_quotas,
};
use crate::{
    decision::{Op, Policy, of_other_limits},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::{JointParts, Key, KeyExtractor},
    quota::{OwnedQuota, Priority, Quota},
    spend::Tokens,
};

/// Several limits, each with a key of its own, that are charged together or not at all.
///
/// [`RateLimitLayer::all`](crate::RateLimitLayer::all) makes one. Call it with a [`Key::joint`], which
/// has a key for each limit; a single limit also takes its own key. A decision has the quotas of all
/// limits. A tier applies to the limits that have it; the others use their default quotas.
/// [`apply_each`](Limiter::apply_each) takes an operation of its own for each limit.
///
/// ```
/// use tower_ratelimit::{Key, Limiter, LocalLimiter, LocalStore, Quota, limiter::JointLimiter};
///
/// let store = LocalStore::new();
/// let limiter = |quota| LocalLimiter::builder(quota).build_in(&store);
/// let address = limiter(Quota::per_minute(2).named("address"))?;
/// let everybody = limiter(Quota::per_minute(100).named("everybody"))?;
/// let both = JointLimiter::new([address, everybody.clone()])?;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let key = Key::joint([Key::from("203.0.113.7"), Key::global()]);
/// for _ in 0..10 {
///     let _ = both.acquire(&key, 1).await?;
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
    /// own or is in another [`LocalStore`](crate::LocalStore) than the first, or a `RedisLimiter` has a
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
        L::check(&limiters.iter().collect::<Vec<_>>())?;
        Ok(Self(Arc::new(Inner { limiters, policies })))
    }

    /// The limits that one request meets, whose decisions are about `policies`: those of the tiers
    /// that the request's [terms](crate::limiter::tier::MemberTerms) name. A single limit takes its own key instead
    /// of a joint one. Limits that cannot be charged together decide nothing, as an empty list does:
    /// every operation is an error.
    #[cfg(feature = "rules")]
    pub(crate) fn of_request(
        limiters: impl IntoIterator<Item = L>,
        policies: Box<[Policy]>,
    ) -> Self {
        let mut limiters: Box<[L]> = limiters.into_iter().collect();
        if limiters.len() > 1 && L::check(&limiters.iter().collect::<Vec<_>>()).is_err() {
            limiters = Box::default();
        }
        Self(Arc::new(Inner { limiters, policies }))
    }

    /// The limits, in their order: handles to peek, refund, block or reset a key of one limit, or to
    /// change its quota. Each takes its own share of a joint receipt. A receipt of one limit is for that
    /// limit only: the joint limiter refuses it.
    pub fn limiters(&self) -> &[L] {
        &self.0.limiters
    }

    fn submit(&self, tier: &Tier, key: &Key, op: &Op, late: Duration) -> Pending<L::Future> {
        let (parts, ops) = match self.prepare(tier, key, op) {
            Ok(prepared) => prepared,
            Err(error) => return Pending::Ready(Err(error)),
        };
        let ops = ops.as_deref();
        self.call(tier, parts, |at| ops.map_or(op, |ops| &ops[at]), late)
    }

    fn submit_each(
        &self,
        tier: &Tier,
        key: &Key,
        ops: &[Op],
        late: Duration,
    ) -> Pending<L::Future> {
        match self.prepare_each(tier, key, ops) {
            Ok((parts, ops)) => self.call(tier, parts, |at| &ops[at], late),
            Err(error) => Pending::Ready(Err(error)),
        }
    }

    /// The only limit, if `key` is its own, with its tier and the operation on it.
    #[inline]
    fn alone<'a>(&'a self, tier: &'a Tier, key: &Key, op: &Op) -> Option<(&'a L, &'a Tier, Op)> {
        let [limiter] = &*self.0.limiters else {
            return None;
        };
        if key.is_joint() {
            return None;
        }
        let op = match tier.costs() {
            Some(_) => tier.op_of_member(0, op),
            None => op.clone(),
        };
        let terms = tier.terms();
        let tier = terms.map_or(tier.without_costs(), |terms| &terms.tiers[0]);
        Some((limiter, tier, op))
    }

    /// Applies to each limit that has a key the operation at its index among these.
    #[inline(always)]
    fn call<'a>(
        &'a self,
        tier: &'a Tier,
        parts: JointParts<'a>,
        op_at: impl Fn(usize) -> &'a Op,
        late: Duration,
    ) -> Pending<L::Future> {
        let terms = tier.terms();
        let tier = tier.without_costs();
        let is_default = tier.has_default_quotas();
        let present = self.present(parts).enumerate();
        let calls = present.map(|(at, (place, limiter, key))| {
            let tier = match terms {
                Some(terms) => &terms.tiers[place],
                None if is_default || limiter.knows(tier) => tier,
                None => Tier::of_class(tier.priority()),
            };
            MemberCall {
                limiter,
                key,
                tier,
                op: op_at(at),
                late,
            }
        });
        L::apply_together(calls)
    }

    /// The keys of all limits, and the operation on each limit that has a key, if it is not the same for
    /// all.
    fn prepare<'k>(
        &self,
        tier: &Tier,
        key: &'k Key,
        op: &Op,
    ) -> Result<(JointParts<'k>, Option<Vec<Op>>), LimiterError> {
        let parts = self.parts(key)?;
        self.check_tier(tier)?;
        let mut ops = ops_of_each(op, || self.present(parts.clone()).count())?;
        if ops.is_none() && tier.divides(op) {
            let present = self.present(parts.clone());
            let own = present.map(|(place, ..)| tier.op_of_member(place, op));
            ops = Some(own.collect());
        }
        Ok((parts, ops))
    }

    /// The keys of all limits, and the operation on each limit that has a key, from these, which are in
    /// the order of these limits.
    fn prepare_each<'k>(
        &self,
        tier: &Tier,
        key: &'k Key,
        ops: &[Op],
    ) -> Result<(JointParts<'k>, Vec<Op>), LimiterError> {
        let parts = self.parts(key)?;
        self.check_tier(tier)?;
        let count = self.present(parts.clone()).count();
        if ops.len() != count {
            return Err(wrong_count(ops.len(), count));
        }
        let available = ops.iter().filter_map(Op::most_available).min();
        let present = self.present(parts.clone()).zip(ops).enumerate();
        let own = present.map(|(at, ((place, ..), op))| {
            let own = match available.filter(|_| op.most_available().is_some()) {
                Some(most) => Some(Op::AcquireUpTo(most)),
                None => op.of_place(at, count)?,
            };
            Ok(tier.own_op_of_member(place, own.as_ref().unwrap_or(op)))
        });
        let own: Result<_, _> = own.collect();
        Ok((parts, own?))
    }

    fn parts<'k>(&self, key: &'k Key) -> Result<JointParts<'k>, LimiterError> {
        key.joint_parts()
            .filter(|parts| parts.clone().count() == self.0.limiters.len())
            .ok_or_else(|| self.wrong_key())
    }

    /// The limits that have a key, with their places and keys.
    fn present<'a>(
        &'a self,
        parts: JointParts<'a>,
    ) -> impl Iterator<Item = (usize, &'a L, &'a [u8])> {
        let pairs = self.0.limiters.iter().zip(parts).enumerate();
        pairs.filter_map(|(place, (limiter, part))| Some((place, limiter, part?)))
    }

    fn check_tier(&self, tier: &Tier) -> Result<(), LimiterError> {
        if tier.terms().is_some() {
            return Ok(());
        }
        if tier.request().is_some() {
            return Err(several_quotas());
        }
        let mut limiters = self.0.limiters.iter();
        if !tier.has_default_quotas() && !limiters.any(|limiter| limiter.knows(tier)) {
            return Err(tier.unknown());
        }
        Ok(())
    }

    #[cold]
    fn wrong_key(&self) -> LimiterError {
        let count = self.0.limiters.len();
        LimiterError::unsupported(match count {
            0 => "these limits cannot be charged together".to_owned(),
            1 => "this limiter has 1 limit: call it with that limit's key".to_owned(),
            _ => format!(
                "this limiter has {count} limits: call it with `Key::joint` of {count} keys"
            ),
        })
    }
}

/// The operation on each limit that has a key, if it has a receipt; `None` if one operation is for all.
fn ops_of_each(op: &Op, count: impl FnOnce() -> usize) -> Result<Option<Vec<Op>>, LimiterError> {
    let Some(receipt) = op.receipt() else {
        return Ok(None);
    };
    let count = count();
    let receipts = match receipt.of_each() {
        None if count == 1 => return Ok(None),
        Some(receipts) if receipts.len() == count => receipts,
        _ => return Err(of_other_limits()),
    };
    let ops = receipts.iter();
    let ops = ops.map(|of| op.with_receipt(of.receipt.clone()));
    Ok(Some(ops.collect()))
}

#[cold]
fn wrong_count(ops: usize, limits: usize) -> LimiterError {
    LimiterError::unsupported(format!(
        "{ops} operations for a key of {limits} limits: pass one for each; `Op::Refund(0, None)` does \
         nothing"
    ))
}

fn refused(fault: impl Into<std::borrow::Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Joint, fault)
}

impl<L: Member> Limiter for JointLimiter<L> {
    type Future = L::Future;

    fn apply(&self, key: &Key, op: Op) -> Pending<Self::Future> {
        self.apply_in(&Tier::DEFAULT, key, op)
    }

    #[inline]
    fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Pending<Self::Future> {
        match self.alone(tier, key, &op) {
            Some((limiter, tier, op)) => limiter.apply_in(tier, key, op),
            None => self.submit(tier, key, &op, Duration::ZERO),
        }
    }

    fn apply_late(
        &self,
        tier: &Tier,
        key: &Key,
        ops: &[Op],
        late: Duration,
    ) -> Pending<Self::Future> {
        let [op] = ops else {
            return self.submit_each(tier, key, ops, late);
        };
        match self.alone(tier, key, op) {
            Some((limiter, tier, op)) => limiter.apply_late(tier, key, &[op], late),
            None => self.submit(tier, key, op, late),
        }
    }

    fn apply_each(&self, tier: &Tier, key: &Key, ops: &[Op]) -> Pending<Self::Future> {
        if let [_] = &*self.0.limiters
            && !key.is_joint()
        {
            return match one_operation(ops) {
                Ok(op) => self.apply_in(tier, key, op.clone()),
                Err(error) => Pending::Ready(Err(error)),
            };
        }
        self.submit_each(tier, key, ops, Duration::ZERO)
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
    /// Checks that these limiters can be charged together.
    #[doc(hidden)]
    fn check(limiters: &[&Self]) -> Result<(), ConfigError>;

    /// Whether the limiter has quotas for this tier.
    #[doc(hidden)]
    fn knows(&self, tier: &Tier) -> bool;

    /// Applies one operation to each member. Operations that take units take them from all members,
    /// or from none.
    #[doc(hidden)]
    fn apply_together<'a>(
        calls: impl Iterator<Item = MemberCall<'a, Self>>,
    ) -> Pending<Self::Future>;

    /// Replaces the default tier's quota of this name.
    #[doc(hidden)]
    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError>;

    /// The default tier's quota of this name, as it is in force.
    #[doc(hidden)]
    fn quota(&self, name: &str) -> Option<Quota>;

    /// Hands the limit over to `next`: refunds of charges that `next` could not have made are
    /// dropped.
    #[doc(hidden)]
    fn hand_over_to(&self, next: &Self) {
        let _ = next;
    }
}

pub(crate) mod sealed {
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
    fn check(limiters: &[&Self]) -> Result<(), ConfigError> {
        let refused = |fault| Err(ConfigError::new(ConfigErrorKind::Joint, fault));
        for (at, limiter) in limiters.iter().enumerate() {
            if !limiter.shares_store_with(limiters[0]) {
                return refused(
                    "limiters in this process are charged together only in one store: make a \
                     LocalStore, and end each builder with build_in(&store)",
                );
            }
            if limiters[..at]
                .iter()
                .any(|other| limiter.counts_with(other))
            {
                return refused("one limit is in the list twice, or two are of one name");
            }
        }
        Ok(())
    }

    fn knows(&self, tier: &Tier) -> bool {
        self.has_tier(tier)
    }

    fn apply_together<'a>(calls: impl Iterator<Item = MemberCall<'a, Self>>) -> Pending<Never> {
        Pending::Ready(Self::decide_many(calls))
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        self.set_quota(name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.with_limits(|limits| limits.quota(name))
    }
}

/// A limit with its key extractor: an item of the list that
/// [`RateLimitLayer::all`](crate::RateLimitLayer::all) takes.
///
/// Made by [`Quota::by`] or [`LocalLimiter::by`].
#[must_use]
pub struct KeyedLimit<I = Quota> {
    pub(crate) limit: I,
    pub(crate) extractor: Arc<dyn KeyExtractor>,
    pub(crate) priority: Option<PriorityOf>,
    pub(crate) units: Option<UnitsOf>,
}

type PriorityOf = Arc<dyn Fn(&Parts) -> Priority + Send + Sync>;

pub(crate) type UnitsOf = Arc<dyn Fn(&Tokens) -> u64 + Send + Sync>;

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
    /// [`priority`](crate::RateLimitLayer::priority).
    pub fn priority(
        mut self,
        priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static,
    ) -> Self {
        self.priority = Some(Arc::new(priority));
        self
    }

    /// Charges this limit the units of the tokens that a response uses, in a layer that is
    /// [`spending`](crate::RateLimitLayer::spending). Called with all that is known so far, after each
    /// frame. Defaults to none: the limit is charged the layer's [`cost`](crate::RateLimitLayer::cost).
    ///
    /// ```
    /// # #[cfg(feature = "llm")] {
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
    /// [charged together](crate::RateLimitLayer::all).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

impl OwnedQuota {
    /// This quota, counted by the key that `extractor` finds, for a list of limits that are
    /// [charged together](crate::RateLimitLayer::all).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

impl LocalLimiter {
    /// This limiter, counted by the key that `extractor` finds, for a list of limits that are
    /// [charged together](crate::RateLimitLayer::all). It must be in a [store](LocalStore).
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
