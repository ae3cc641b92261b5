//! Limits with their key extractors, for lists of limits that are charged together.

use std::{fmt, sync::Arc};

use http::request::Parts;

use super::member::Member;
use crate::{
    error::ConfigError,
    key::KeyExtractor,
    limiter::{LocalLimiter, LocalStore},
    quota::{OwnedQuota, Priority, Quota},
};

/// A limit with its key extractor: an item of the list that
/// [`RateLimitLayer::all`](crate::RateLimitLayer::all) takes.
///
/// Made by [`Quota::by`] or [`LocalLimiter::by`].
#[must_use]
pub struct KeyedLimit<I = Quota> {
    limit: I,
    extractor: Arc<dyn KeyExtractor>,
    priority: Option<PriorityOf>,
}

/// Finds the class of a request.
pub(crate) type PriorityOf = Arc<dyn Fn(&Parts) -> Priority + Send + Sync>;

impl<I> KeyedLimit<I> {
    /// `limit`, counted by the key that `extractor` finds.
    pub fn new(limit: I, extractor: impl KeyExtractor) -> Self {
        Self {
            limit,
            extractor: Arc::new(extractor),
            priority: None,
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

    pub(crate) fn into_parts(self) -> (I, Arc<dyn KeyExtractor>, Option<PriorityOf>) {
        (self.limit, self.extractor, self.priority)
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
