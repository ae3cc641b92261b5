//! Lists of quotas, and whatever becomes one.

use super::{OwnedQuota, Quota};

/// One quota, or several that are charged together or not at all.
///
/// Implemented for [`Quota`] and [`OwnedQuota`], and for arrays, vectors and slices of either. In a
/// list every quota needs a name of its own; one that was given none is named after its rate,
/// `10-per-1s`. Where only some own their names, the others become `OwnedQuota` by `.into()`.
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
