//! Limits with their key extractors, for lists of limits that are charged together.

use std::{fmt, sync::Arc};

use http::request::Parts;

use super::member::Member;
use crate::{
    error::ConfigError,
    key::KeyExtractor,
    limiter::{LocalLimiter, LocalStore},
    quota::{OwnedQuota, Priority, Quota},
    spend::Tokens,
};

/// A limit with its key extractor: an item of the list that
/// [`RateLimitLayer::all`](crate::RateLimitLayer::all) takes.
///
/// Made by [`Quota::by`] or [`LocalLimiter::by`].
#[must_use]
pub struct KeyedLimit<I = Quota> {
    pub(crate) limit: I,
    pub(crate) extractor: Arc<dyn KeyExtractor>,
    pub(crate) priority: Option<PriorityOf>,
    /// The units of a response.
    pub(crate) units: Option<UnitsOf>,
}

/// Finds the class of a request.
pub(crate) type PriorityOf = Arc<dyn Fn(&Parts) -> Priority + Send + Sync>;

/// Finds the units of tokens.
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
