//! The decisions that passed a request, for handlers.

use http::Extensions;

use crate::{decision::Decision, key::Key, reject::AnswerStyle};

/// The decisions of all layers with [`expose_decision`](crate::RateLimitLayer::expose_decision) that
/// a request has passed, and the denials of layers that let it [overflow](crate::RateLimitLayer::overflow), the
/// outermost first; in the request's extensions, and with axum an
/// extractor.
///
/// The extensions have the innermost one as a [`Decision`], too. A handler that calls a limiter for the
/// [key](Exposed::key) itself answers a denial as the layer would, see
/// [`Denial`](crate::reject::Denial).
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
    key: Option<Key>,
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

    /// The key that the request was counted for, `None` when it was
    /// [not counted](Decision::is_counted).
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }
}

/// Adds a layer's decision to those of the layers around it, and replaces the style of their responses.
#[inline(never)]
pub(super) fn expose(
    key: Option<&Key>,
    decision: &Decision,
    style: AnswerStyle,
    to: &mut Extensions,
) {
    let exposed = Exposed {
        key: key.cloned(),
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
