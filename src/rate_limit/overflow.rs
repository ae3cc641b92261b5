//! Overflow: denied requests that pass to the inner service.

use crate::decision::Decision;

/// The denials that do not end a request.
#[derive(Clone)]
pub(super) enum Overflow {
    /// None.
    Never,
    /// The denials of all limits.
    Always,
}

impl Overflow {
    pub(super) const fn is_always(&self) -> bool {
        matches!(self, Self::Always)
    }

    /// Whether a request with this decision passes despite a denial. A blocked key stays out,
    /// because somebody blocked it.
    pub(super) fn lets_pass(&self, decision: &Decision) -> bool {
        match self {
            Self::Never => false,
            Self::Always => decision.is_denied() && !decision.is_blocked(),
        }
    }
}
