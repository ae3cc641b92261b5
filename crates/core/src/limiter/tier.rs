//! Tiers: named sets of quotas of one limiter.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    iter,
    sync::Arc,
};

use super::per_request_quota::RequestQuota;
use crate::error::LimiterError;

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
    /// a [`tier`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.tier).
    pub const DEFAULT: Self = Self::named("");

    /// The tier without a quota: requests pass uncounted, and the limiter is not called. Their decisions are
    /// not [counted](crate::Decision::is_counted).
    pub const UNLIMITED: Self = Self(Which::Unlimited);

    /// The tier of this name in the limiter. The empty name is the [default](Self::DEFAULT) tier's. A name
    /// that the limiter does not have is an error of the decision, for which a layer sends 503.
    pub const fn named(name: &'static str) -> Self {
        Self(Which::Named(name))
    }

    /// The tier of a name from run time, such as one of a configuration file or a customer's row. Clones
    /// share the name, and the last of them frees it.
    pub fn named_owned(name: impl Into<Arc<str>>) -> Self {
        Self(Which::Owned(name.into()))
    }

    pub(crate) fn of_name(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::named(name),
            Cow::Owned(name) => Self::named_owned(name),
        }
    }

    /// Whether it is the [default](Self::DEFAULT) tier.
    #[inline]
    #[doc(hidden)]
    pub fn is_default(&self) -> bool {
        match &self.0 {
            // First, because it is nearly always this one.
            Which::Named("") => true,
            Which::Owned(name) => name.is_empty(),
            _ => false,
        }
    }

    #[inline]
    #[doc(hidden)]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.0, Which::Unlimited)
    }

    /// The request's own quota, if it brings one.
    pub(crate) const fn request(&self) -> Option<RequestQuota> {
        match &self.0 {
            Which::Request(quota) => Some(*quota),
            _ => None,
        }
    }

    /// The share of one of `nodes` equal nodes of the request's own quota.
    #[doc(hidden)]
    pub fn shared_by(&self, nodes: std::num::NonZeroU32) -> Option<Self> {
        let quota = self.request()?;
        Some(Self::from(quota.shared_by(nodes)))
    }

    /// The tier's name in a limiter; empty for the default tier and those without a name.
    #[doc(hidden)]
    pub fn name(&self) -> &str {
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

/// The [default](Tier::DEFAULT) tier.
impl Default for Tier {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A request's own quota is a tier of its own.
impl From<RequestQuota> for Tier {
    fn from(quota: RequestQuota) -> Self {
        Self(Which::Request(quota))
    }
}

/// Compared by name, whether static or owned.
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
