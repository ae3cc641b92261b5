//! Tiers: which of a limiter's sets of quotas measures a request.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    iter,
    sync::Arc,
};

use super::RequestQuota;
use crate::error::LimiterError;

/// Which of a limiter's sets of quotas a request is measured by: the plan of a customer, say.
///
/// The counters belong to the key, not to the tier: a key that changes its tier keeps what it has
/// used.
#[derive(Clone)]
pub struct Tier(Which);

#[derive(Clone)]
enum Which {
    Unlimited,
    Named(&'static str),
    /// A tier by a name from data; freed with its last clone.
    Owned(Arc<str>),
    Request(RequestQuota),
    /// A named one, for a request that costs each of several limits something else.
    #[cfg(feature = "rules")]
    WithCosts(Arc<(Tier, Box<[u64]>)>),
}

/// All that tiers are told apart by.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    Unlimited,
    Named(&'a str),
    Request(RequestQuota),
}

impl Tier {
    /// The quotas that the limiter was made with.
    pub const DEFAULT: Self = Self::named("");

    /// No quota: the request passes uncounted.
    pub const UNLIMITED: Self = Self(Which::Unlimited);

    /// The tier of this name, as it was given to the limiter. The empty name is the
    /// [default](Self::DEFAULT) tier's.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self(Which::Named(name))
    }

    /// The tier of a name that is not known before the program runs, from a configuration file or a
    /// customer's row. Clones share it, and it is freed with the last of them.
    #[must_use]
    pub fn named_owned(name: impl Into<Arc<str>>) -> Self {
        Self(Which::Owned(name.into()))
    }

    /// The same tier, for a request that costs each of several limits so much.
    #[cfg(feature = "rules")]
    pub(crate) fn with_costs(&self, costs: Box<[u64]>) -> Self {
        Self(Which::WithCosts(Arc::new((self.clone(), costs))))
    }

    /// The cost of a request for each of several limits, where they differ.
    #[cfg(feature = "rules")]
    pub(crate) fn costs(&self) -> Option<&[u64]> {
        match &self.0 {
            Which::WithCosts(with) => Some(&with.1),
            _ => None,
        }
    }

    pub(crate) fn of_name(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::named(name),
            Cow::Owned(name) => Self::named_owned(name),
        }
    }

    /// Whether it is the [default](Self::DEFAULT) tier.
    #[inline]
    pub(crate) fn is_default(&self) -> bool {
        match &self.0 {
            // First, and nearly always.
            Which::Named("") => true,
            Which::Owned(name) => name.is_empty(),
            _ => false,
        }
    }

    #[inline]
    pub(crate) const fn is_unlimited(&self) -> bool {
        matches!(self.0, Which::Unlimited)
    }

    /// The quota that the request brings.
    pub(crate) const fn request(&self) -> Option<RequestQuota> {
        match self.0 {
            Which::Request(quota) => Some(quota),
            _ => None,
        }
    }

    /// The share of one of `nodes` equal ones of the quota that the request brings.
    #[cfg(feature = "redis")]
    pub(crate) fn shared_by(&self, nodes: std::num::NonZeroU32) -> Option<Self> {
        let quota = self.request()?;
        Some(quota.shared_by(nodes).into())
    }

    /// The name under which a limiter knows it.
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
            #[cfg(feature = "rules")]
            Which::WithCosts(with) => with.0.identity(),
        }
    }

    /// The error of a limiter without tiers.
    pub(crate) fn unknown(&self) -> LimiterError {
        self.unknown_among(iter::once(&Self::DEFAULT))
    }

    /// The error of a limiter that has only the tiers `known`.
    pub(crate) fn unknown_among<'a>(&self, known: impl Iterator<Item = &'a Self>) -> LimiterError {
        if self.request().is_some() {
            return LimiterError::unsupported(
                "the limiter knows no quotas of requests; use a LocalLimiter or a RedisLimiter",
            );
        }
        let known: Vec<_> = known.map(|tier| format!("{tier:?}")).collect();
        LimiterError::unsupported(format!(
            "the limiter was given no quota for {self:?}; there is {}",
            known.join(", ")
        ))
    }
}

/// The quota that a request brings is a tier of its own.
impl From<RequestQuota> for Tier {
    fn from(quota: RequestQuota) -> Self {
        Self(Which::Request(quota))
    }
}

/// By name, wherever the name lives.
impl PartialEq for Tier {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Tier {}

impl Hash for Tier {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity() {
            Identity::Unlimited => f.write_str("the unlimited tier"),
            Identity::Named("") => f.write_str("the default tier"),
            Identity::Named(name) => write!(f, "tier {name:?}"),
            Identity::Request(quota) => quota.fmt(f),
        }
    }
}
