//! `OwnedQuota`: a quota that owns its name, and `IntoQuotas`: the types that become a list of them.

use std::{borrow::Cow, fmt, str::FromStr};

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
    fn new(quota: Quota, name: Cow<'static, str>) -> Self {
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
    #[doc(hidden)]
    pub fn name_in(&self, count: usize) -> Cow<'static, str> {
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

    #[doc(hidden)]
    pub fn named_as(self, name: Cow<'static, str>) -> OwnedQuota {
        OwnedQuota::new(self, name)
    }
}

/// One quota or several from a text, such as `10/second; 1000/hour`.
///
/// Quotas are separated by semicolons; each is parsed like a [`Quota`]. With the feature `serde`,
/// configuration files may have a text, a table, or a list of these. A list in code needs no such
/// type, see [`IntoQuotas`].
///
/// ```
/// use tower_ratelimit::{LocalLimiter, quota::QuotaList};
///
/// # fn main() -> Result<(), tower_ratelimit::ConfigError> {
/// let quotas: QuotaList = "10/second; 1000/hour".parse()?;
/// let limiter = LocalLimiter::try_new(quotas)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaList(pub(super) Vec<OwnedQuota>);

/// # Errors
///
/// The error of the first invalid quota. An empty text is invalid, also after the last semicolon.
impl FromStr for QuotaList {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let quotas = text.split(';').map(|text| text.trim().parse::<Quota>());
        let quotas = quotas.map(|quota| quota.map(OwnedQuota::from));
        quotas.collect::<Result<_, _>>().map(Self)
    }
}

/// The text that [`FromStr`] parses, without names.
impl fmt::Display for QuotaList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, quota) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{}", quota.quota())?;
        }
        Ok(())
    }
}

impl IntoQuotas for QuotaList {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        self.0
    }
}

/// One quota, or several that are charged together or not at all.
///
/// Implemented for [`Quota`] and [`OwnedQuota`], and for arrays, vectors and slices of either. The
/// quotas of a list need different names; one without a name is named after its rate, `10-per-1s`.
/// If only some own their names, the others become `OwnedQuota` by `.into()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no quota",
    label = "expected a `Quota`, or an array or vector of them",
    note = "a text such as `\"10/second\"` is read by `.parse()`: `\"10/second\".parse::<Quota>()?`"
)]
pub trait IntoQuotas {
    /// The quotas in the order in which headers list them.
    fn into_quotas(self) -> Vec<OwnedQuota>;
}

impl IntoQuotas for Quota {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        vec![self.into()]
    }
}

impl IntoQuotas for OwnedQuota {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        vec![self]
    }
}

impl<Q: Into<OwnedQuota>, const N: usize> IntoQuotas for [Q; N] {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        self.into_iter().map(Q::into).collect()
    }
}

impl<Q: Into<OwnedQuota>> IntoQuotas for Vec<Q> {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        self.into_iter().map(Q::into).collect()
    }
}

impl<Q: Into<OwnedQuota> + Clone> IntoQuotas for &[Q] {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        self.iter().cloned().map(Q::into).collect()
    }
}

impl<Q: Into<OwnedQuota> + Clone, const N: usize> IntoQuotas for &[Q; N] {
    fn into_quotas(self) -> Vec<OwnedQuota> {
        self.as_slice().into_quotas()
    }
}
