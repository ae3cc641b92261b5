//! `IntoQuotas`: lists of quotas, and the types that become one.

use std::{fmt, str::FromStr};

use super::{OwnedQuota, Quota};
use crate::error::ConfigError;

/// One quota or several from a text, such as `10/second; 1000/hour`.
///
/// Quotas are separated by semicolons; each is parsed like a [`Quota`]. With the feature `serde`,
/// configuration files may have a text, a table, or a list of these. A list in code needs no such
/// type, see [`IntoQuotas`].
///
/// ```
/// use tower_ratelimit::{LocalLimiter, QuotaList};
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
