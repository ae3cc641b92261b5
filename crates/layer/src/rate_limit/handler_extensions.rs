//! The decisions that passed a request, in its extensions for handlers.

#[cfg(feature = "axum")]
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::Extensions;
#[cfg(feature = "axum")]
use http::{StatusCode, request::Parts};

use tower_ratelimit_core::{
    decision::Decision, key::Key, limiter::call::Charge, reject::rejection::AnswerStyle,
    small_list::SmallList,
};

/// The decisions of all layers with [`expose_decision`](crate::rate_limit::layer::RateLimitLayer::expose_decision) that
/// a request has passed, and the denials of layers that let it [overflow](crate::rate_limit::layer::RateLimitLayer::overflow), the
/// outermost first; in the request's extensions, and with axum an
/// extractor.
///
/// The extensions have the innermost one as a [`Decision`], too. A handler that calls a limiter for the
/// [key](Exposed::key) itself responds to a denial as the layer would, see
/// [`Denial`](tower_ratelimit_core::reject::Denial).
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_ratelimit::{Global, PeerIp, Quota, RateLimitLayer, rate_limit::Decisions};
///
/// async fn left(decisions: Decisions) -> String {
///     let left = decisions.iter().map(|exposed| {
///         let quota = exposed.decision().binding();
///         format!("{}: {:?}\n", quota.name(), quota.remaining())
///     });
///     left.collect()
/// }
///
/// let everybody = Quota::per_second(1_000).named("everybody");
/// let each = Quota::per_second(10).named("each");
/// let app: Router = Router::new()
///     .route("/left", get(left))
///     .layer(RateLimitLayer::new(everybody, Global).expose_decision(true))
///     // Outside, so that what it denies takes nothing from everybody.
///     .layer(RateLimitLayer::new(each, PeerIp).expose_decision(true));
/// ```
#[derive(Debug, Clone)]
pub struct Decisions(Vec<Exposed>);

/// A layer's decision, and whom it is about.
#[derive(Debug, Clone)]
pub struct Exposed {
    /// The key of each limit that counts the request.
    keys: SmallList<Key, 1>,
    decision: Decision,
}

impl Decisions {
    /// The decisions, the outermost first.
    pub fn iter(&self) -> std::slice::Iter<'_, Exposed> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Exposed;
    type IntoIter = std::slice::Iter<'a, Exposed>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Exposed {
    /// The decision.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The key that the [binding](Decision::binding) quota counts the request by, see
    /// [`Decided::key`](crate::observe::Decided::key); `None` when it was [not counted](Decision::is_counted).
    pub fn key(&self) -> Option<&Key> {
        let quotas = &self.decision.quotas;
        let limit = quotas.limit_of(quotas.binding_place());
        let keys = self.keys.as_slice();
        keys.get(limit).or(keys.first())
    }

    /// The keys of all limits that count the request, in their order.
    pub fn keys(&self) -> &[Key] {
        self.keys.as_slice()
    }
}

/// Adds a layer's decision to those of the layers around it, and replaces the style of their responses.
#[inline(never)]
pub(super) fn expose(
    charges: &[Charge<'_>],
    decision: &Decision,
    style: AnswerStyle,
    to: &mut Extensions,
) {
    let exposed = Exposed {
        keys: SmallList::of_exact(charges.iter().map(|charge| charge.key.clone())),
        decision: decision.clone(),
    };
    match to.get_mut::<Decisions>() {
        Some(decisions) => decisions.0.push(exposed),
        None => {
            to.insert(Decisions(vec![exposed]));
        }
    }
    to.insert(decision.clone());
    to.insert(style);
}

/// The decisions of all layers that allowed this request, for handlers behind layers with
/// [`expose_decision`](crate::rate_limit::layer::RateLimitLayer::expose_decision). Without one: 500, or `None` for
/// `Option<Decisions>`.
#[cfg(feature = "axum")]
impl<S: Sync> FromRequestParts<S> for Decisions {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "no rate limit decisions: the layers need expose_decision(true)",
        ))
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> OptionalFromRequestParts<S> for Decisions {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
