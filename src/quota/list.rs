use super::Quota;

/// One quota, or several that are charged together or not at all.
///
/// Implemented for [`Quota`], arrays, vectors and slices of it. In a list every quota needs a name
/// of its own; one that was given none is named after its rate, `10-per-1s`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no quota",
    label = "expected a `Quota`, or an array or vector of them",
    note = "a text such as `\"10/second\"` is read by `.parse()`: `\"10/second\".parse::<Quota>()?`"
)]
pub trait IntoQuotas {
    /// The quotas in the order in which headers list them.
    fn into_quotas(self) -> Vec<Quota>;
}

impl IntoQuotas for Quota {
    fn into_quotas(self) -> Vec<Quota> {
        vec![self]
    }
}

impl<const N: usize> IntoQuotas for [Quota; N] {
    fn into_quotas(self) -> Vec<Quota> {
        self.into()
    }
}

impl IntoQuotas for Vec<Quota> {
    fn into_quotas(self) -> Self {
        self
    }
}

impl IntoQuotas for &[Quota] {
    fn into_quotas(self) -> Vec<Quota> {
        self.to_vec()
    }
}
