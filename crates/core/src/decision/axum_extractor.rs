//! `Decision` as an extractor of axum.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::{StatusCode, request::Parts};

use super::Decision;

/// The decision that passed this request, for handlers behind a layer with
/// [`expose_decision`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.expose_decision) or
/// [`overflow`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.overflow). With several layers it is the decision of the innermost. Without one: 500, or `None` for `Option<Decision>`.
///
/// [`Decisions`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/struct.Decisions.html) has its key as well, see
/// [`Exposed::key`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/struct.Exposed.html#method.key).
impl<S: Sync> FromRequestParts<S> for Decision {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "no rate limit decision: the layer needs expose_decision(true)",
        ))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
