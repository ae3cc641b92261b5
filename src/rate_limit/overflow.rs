//! Overflow: denied requests that pass to the inner service.

#[cfg(feature = "rules")]
use std::sync::Arc;

use http::HeaderMap;
#[cfg(feature = "rules")]
use http::{HeaderName, HeaderValue};

use crate::decision::Decision;

/// The field of a request's header in which the service behind a [`RulesLayer`](crate::rules::RulesLayer) finds
/// the rules that denied the request, with the action `overflow`: a line with the name of each.
#[cfg(feature = "rules")]
pub(crate) const OVERFLOW_FIELD: HeaderName = HeaderName::from_static("x-ratelimit-overflow");

/// The denials that do not end a request.
#[derive(Clone)]
pub(super) enum Overflow {
    /// None.
    Never,
    /// The denials of all limits.
    Always,
    /// The denials of some limits: those with the name of a rule, at the index of the limit. The inner service finds
    /// the name in the request's header.
    #[cfg(feature = "rules")]
    OfRules(Arc<[Option<HeaderValue>]>),
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
            #[cfg(feature = "rules")]
            Self::OfRules(names) => decision.overflows(names.len(), |limit| names[limit].is_some()),
        }
    }

    /// Adds the rules that denied a request which passes to its header.
    #[cfg_attr(
        not(feature = "rules"),
        allow(clippy::unused_self, reason = "as its twin")
    )]
    pub(super) fn mark(&self, decision: &Decision, headers: &mut HeaderMap) {
        #[cfg(feature = "rules")]
        if let Self::OfRules(names) = self {
            for name in decision
                .denying(names.len())
                .filter_map(|limit| names[limit].as_ref())
            {
                headers.append(OVERFLOW_FIELD, name.clone());
            }
        }
        #[cfg(not(feature = "rules"))]
        let _ = (decision, headers);
    }
}
