//! Tiers: named sets of quotas of one limiter.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    iter, mem,
    sync::Arc,
};

use super::per_request_quota::RequestQuota;
use crate::{decision::Op, error::LimiterError, quota::Priority};

/// A tier: the set of a limiter's quotas that measures a request, such as a customer's plan.
///
/// The counters belong to the key, not to the tier: a key that changes its tier keeps its usage.
#[derive(Clone)]
pub struct Tier(Which);

#[derive(Clone)]
enum Which {
    Unlimited,
    Named(&'static str),
    /// A tier with a name from run time; freed with its last clone.
    Owned(Arc<str>),
    Request(RequestQuota),
    /// A tier with the terms of each member of a joint limiter.
    WithTerms(Arc<(Tier, MemberTerms)>),
    /// Such a tier, with the cost of the request for each member.
    WithCosts(Arc<(Tier, Box<[u64]>)>),
    /// The default tier, for requests of this class: without an allocation.
    Class(Priority),
    /// Any other tier, for requests of this class.
    InClass(Arc<(Tier, Priority)>),
}

/// The terms of each member of a joint limiter for one operation, in the members' order. The
/// request's tier carries them, see [`Tier::with_terms`].
pub(crate) struct MemberTerms {
    pub(crate) tiers: Box<[Tier]>,
    /// Whether a denial by the member starts its block at once, even if the operation is a
    /// [`Reserve`](Op::Reserve).
    pub(crate) blocks_at_once: Box<[bool]>,
}

/// The part of a tier that is compared and hashed.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    Unlimited,
    Named(&'a str),
    Request(RequestQuota),
}

impl Tier {
    /// The default tier: the quotas that the limiter was made with. Requests are in it unless the layer has
    /// a [`tier`](crate::RateLimitLayer::tier).
    pub const DEFAULT: Self = Self::named("");

    /// The tier without a quota: requests pass uncounted, and the limiter is not called. Their decisions are
    /// not [counted](crate::Decision::is_counted).
    pub const UNLIMITED: Self = Self(Which::Unlimited);

    /// The tier of this name in the limiter. The empty name is the [default](Self::DEFAULT) tier's. A name
    /// that the limiter does not have is an error of the decision, which a layer answers with 503.
    pub const fn named(name: &'static str) -> Self {
        Self(Which::Named(name))
    }

    /// The tier of a name from run time, such as one of a configuration file or a customer's row. Clones
    /// share the name, and the last of them frees it.
    pub fn named_owned(name: impl Into<Arc<str>>) -> Self {
        Self(Which::Owned(name.into()))
    }

    /// The quotas of this tier, for requests of the class `priority`. Defaults to
    /// [`Priority::CRITICAL`]. Call only limiters that
    /// [support priorities](crate::limiter::Facts::classes) with another one.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        let of_all = match self.0 {
            Which::Class(_) => Self::DEFAULT,
            Which::InClass(of) => of.0.clone(),
            _ => self,
        };
        if priority.is_critical() || of_all.is_unlimited() {
            return of_all;
        }
        Self(if of_all.is_default() {
            Which::Class(priority)
        } else {
            Which::InClass(Arc::new((of_all, priority)))
        })
    }

    /// The class of the requests.
    pub fn priority(&self) -> Priority {
        match &self.0 {
            Which::Class(class) => *class,
            Which::InClass(of) => of.1,
            _ => Priority::CRITICAL,
        }
    }

    /// The default tier for requests of this class.
    #[inline]
    pub(crate) fn of_class(class: Priority) -> &'static Self {
        static CLASSES: [Tier; 100] = {
            let mut classes = [const { Tier::DEFAULT }; 100];
            let mut percent = 1;
            while percent < 100 {
                if let Some(class) = Priority::share(percent) {
                    let of_class = Tier(Which::Class(class));
                    // No destructor runs in a constant.
                    mem::forget(mem::replace(&mut classes[percent as usize], of_class));
                }
                percent += 1;
            }
            classes
        };
        // The default tier itself has the place of 0 %.
        &CLASSES[usize::from(class.percent() % 100)]
    }

    /// The tier, whatever the class of the requests is.
    #[inline]
    pub(super) fn of_all_classes(&self) -> &Self {
        static DEFAULT: Tier = Tier::DEFAULT;
        match &self.0 {
            Which::Class(_) => &DEFAULT,
            Which::InClass(of) => of.0.of_all_classes(),
            Which::WithTerms(with) => with.0.of_all_classes(),
            Which::WithCosts(with) => with.0.of_all_classes(),
            _ => self,
        }
    }

    /// Whether it carries more than a class.
    #[inline]
    pub(super) fn has_terms_or_costs(&self) -> bool {
        match &self.0 {
            Which::WithTerms(_) | Which::WithCosts(_) => true,
            Which::InClass(of) => of.0.has_terms_or_costs(),
            _ => false,
        }
    }

    /// This tier with the terms of each member of a joint limiter. Requests wait and are observed under
    /// this tier's name.
    pub(crate) fn with_terms(self, terms: MemberTerms) -> Self {
        Self(Which::WithTerms(Arc::new((self, terms))))
    }

    /// The terms of each member of a joint limiter, if they differ.
    #[inline]
    pub(crate) fn terms(&self) -> Option<&MemberTerms> {
        match &self.0 {
            Which::WithTerms(with) => Some(&with.1),
            Which::WithCosts(with) => with.0.terms(),
            Which::InClass(of) => of.0.terms(),
            _ => None,
        }
    }

    /// This tier, for a request with a cost for each member of a joint limiter.
    pub(crate) fn with_costs(&self, costs: Box<[u64]>) -> Self {
        Self(Which::WithCosts(Arc::new((self.clone(), costs))))
    }

    /// The cost of a request in units for each of several limits, where they differ.
    fn costs(&self) -> Option<&[u64]> {
        match &self.0 {
            Which::WithCosts(with) => Some(&with.1),
            Which::InClass(of) => of.0.costs(),
            _ => None,
        }
    }

    /// Whether an operation like `op` differs between the members of a joint limiter.
    #[inline]
    pub(super) fn divides(&self, op: &Op) -> bool {
        self.costs().is_some() || (matches!(op, Op::Reserve(_)) && self.terms().is_some())
    }

    /// The operation on the member at `place`, at that member's cost.
    pub(super) fn op_of_member(&self, place: usize, op: &Op) -> Op {
        let cost_at_place = self.costs().and_then(|costs| costs.get(place)).copied();
        let own = |cost: &u64| cost_at_place.unwrap_or(*cost);
        match &self.own_op_of_member(place, op) {
            Op::Reserve(cost) => Op::Reserve(own(cost)),
            Op::Acquire(cost) => Op::Acquire(own(cost)),
            Op::Deny(cost) => Op::Deny(own(cost)),
            Op::Peek(cost) => Op::Peek(own(cost)),
            Op::Hit(cost) => Op::Hit(own(cost)),
            Op::Spend(cost) => Op::Spend(own(cost)),
            other => other.clone(),
        }
    }

    /// The operation of the member at `place`, whose cost is its own.
    pub(super) fn own_op_of_member(&self, place: usize, op: &Op) -> Op {
        let terms = self.terms();
        match op {
            Op::Reserve(cost) if terms.is_some_and(|terms| terms.blocks_at_once[place]) => {
                Op::Acquire(*cost)
            }
            own => own.clone(),
        }
    }

    pub(crate) fn of_name(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::named(name),
            Cow::Owned(name) => Self::named_owned(name),
        }
    }

    /// Whether it is the [default](Self::DEFAULT) tier, for critical requests.
    #[inline]
    pub(crate) fn is_default(&self) -> bool {
        match &self.0 {
            // First, because it is nearly always this one.
            Which::Named("") => true,
            Which::Owned(name) => name.is_empty(),
            _ => false,
        }
    }

    #[inline]
    pub(crate) const fn is_unlimited(&self) -> bool {
        matches!(self.0, Which::Unlimited)
    }

    /// The request's own quota, if it brings one.
    pub(crate) fn request(&self) -> Option<RequestQuota> {
        match &self.0 {
            Which::Request(quota) => Some(*quota),
            Which::InClass(of) => of.0.request(),
            _ => None,
        }
    }

    /// The share of one of `nodes` equal nodes of the request's own quota.
    #[cfg(feature = "shared")]
    pub(crate) fn shared_by(&self, nodes: std::num::NonZeroU32) -> Option<Self> {
        let quota = self.request()?;
        Some(Self::from(quota.shared_by(nodes)))
    }

    /// The tier's name in a limiter; empty for the default tier and those without a name.
    pub(crate) fn name(&self) -> &str {
        match self.identity() {
            Identity::Named(name) => name,
            Identity::Unlimited | Identity::Request(_) => "",
        }
    }

    fn identity(&self) -> Identity<'_> {
        match &self.0 {
            Which::Unlimited => Identity::Unlimited,
            Which::Named(name) => Identity::Named(name),
            Which::Owned(name) => Identity::Named(name),
            Which::Request(quota) => Identity::Request(*quota),
            Which::WithTerms(with) => with.0.identity(),
            Which::WithCosts(with) => with.0.identity(),
            Which::Class(_) => Identity::Named(""),
            Which::InClass(of) => of.0.identity(),
        }
    }

    /// Whether both are one tier, whatever the classes of the requests are.
    pub(crate) fn has_quotas_of(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Whether it is the default tier, whatever the class of the requests is.
    pub(crate) fn has_default_quotas(&self) -> bool {
        matches!(self.identity(), Identity::Named(""))
    }

    /// The error of a limiter without tiers.
    pub(crate) fn unknown(&self) -> LimiterError {
        self.unknown_among(iter::once(&Self::DEFAULT))
    }

    /// The error of a limiter that has only the tiers `known`.
    pub(crate) fn unknown_among<'a>(&self, known: impl Iterator<Item = &'a Self>) -> LimiterError {
        if self.request().is_some() {
            return LimiterError::unsupported(
                "the limiter supports no quotas of requests; use a LocalLimiter or a RedisLimiter",
            );
        }
        let known: Vec<_> = known.map(|tier| format!("{tier:?}")).collect();
        LimiterError::unsupported(format!(
            "the limiter was given no quota for {self:?}; there is {}",
            known.join(", ")
        ))
    }
}

/// A request's own quota is a tier of its own.
impl From<RequestQuota> for Tier {
    fn from(quota: RequestQuota) -> Self {
        Self(Which::Request(quota))
    }
}

/// Compared by name, whether static or owned, and by the class of the requests.
impl PartialEq for Tier {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.priority() == other.priority()
    }
}

impl Eq for Tier {}

impl Hash for Tier {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
        self.priority().hash(state);
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity() {
            Identity::Unlimited => f.write_str("the unlimited tier")?,
            Identity::Named("") => f.write_str("the default tier")?,
            Identity::Named(name) => write!(f, "tier {name:?}")?,
            Identity::Request(quota) => quota.fmt(f)?,
        }
        match self.priority() {
            Priority::CRITICAL => Ok(()),
            class => write!(f, " for a share of {class}"),
        }
    }
}
