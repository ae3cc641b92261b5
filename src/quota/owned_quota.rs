//! A quota that owns its name.

use std::borrow::Cow;

use super::{Quota, check_name};
use crate::error::ConfigError;

/// The name of a lone quota without a name, in a limiter without one.
pub(crate) const DEFAULT_NAME: &str = "default";

/// A quota with an owned name, if it has one: for names from configuration at run time. The names of
/// a [`Quota`] are static.
///
/// Made by [`Quota::named_owned`], from a [`Quota`], and by serde. Everything that accepts quotas
/// accepts it. The name is freed with the limiter and the last decision that has it.
///
/// One policy for each route in a file:
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_ratelimit::{ConfigError, PeerIp, Quota, RateLimitLayer};
///
/// fn app(routes: &[(String, Quota)]) -> Result<Router, ConfigError> {
///     let mut app = Router::new();
///     for (path, quota) in routes {
///         let limit = RateLimitLayer::try_new(quota.named_owned(path), PeerIp)?;
///         app = app.route(path, get(|| async { "hello" }).layer(limit));
///     }
///     Ok(app)
/// }
/// # let _ = app(&[("/search".to_owned(), Quota::per_second(5))]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct OwnedQuota {
    /// The quota; its own name is unused.
    quota: Quota,
    name: Option<Cow<'static, str>>,
}

impl OwnedQuota {
    pub(super) fn new(quota: Quota, name: Cow<'static, str>) -> Self {
        Self {
            quota: quota.unnamed(),
            name: Some(name),
        }
    }

    /// The quota without its name.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The name that was set; `None` for a quota that was made from one without a name.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Checks that limiters accept the quota.
    ///
    /// # Errors
    ///
    /// The errors of [`Quota::check`].
    pub fn check(&self) -> Result<(), ConfigError> {
        self.name().map_or(Ok(()), check_name)?;
        self.quota.check()
    }

    /// The name in a list of `count` quotas: the one that was set, otherwise `default` for a single
    /// quota, otherwise a name made of the rate, such as `10-per-1s`.
    pub(crate) fn name_in(&self, count: usize) -> Cow<'static, str> {
        match &self.name {
            Some(name) => name.clone(),
            None if count == 1 => DEFAULT_NAME.into(),
            None => self.quota.rate_text().replace('/', "-per-").into(),
        }
    }
}

impl From<Quota> for OwnedQuota {
    fn from(quota: Quota) -> Self {
        Self {
            quota: quota.unnamed(),
            name: quota.name().map(Cow::Borrowed),
        }
    }
}

impl Quota {
    /// The quota under a name from run time, such as one of a configuration file. It has the meaning
    /// of [`named`](Self::named); nothing is leaked.
    ///
    /// The name has 1 to 64 printable ASCII characters. A decision counts one reference for all owned
    /// names of a limiter; static names cost nothing.
    ///
    /// ```
    /// use tower_ratelimit::{LocalLimiter, Key, Quota};
    ///
    /// let route = String::from("/search");
    /// let limiter = LocalLimiter::new(Quota::per_second(5).named_owned(route));
    /// let decision = limiter.acquire(&Key::from("alice"), 1);
    /// assert_eq!(decision.binding().name(), "/search");
    /// ```
    pub fn named_owned(self, name: impl Into<String>) -> OwnedQuota {
        OwnedQuota::new(self, Cow::Owned(name.into()))
    }

    /// The quota under a name that may be static.
    pub(crate) fn named_as(self, name: Cow<'static, str>) -> OwnedQuota {
        OwnedQuota::new(self, name)
    }
}
