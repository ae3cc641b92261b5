//! Extractors for handlers of axum.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::{StatusCode, request::Parts};

use crate::{
    key::client_ip::ClientAddress,
    rate_limit::{Decisions, Spent},
};

/// The decisions of all layers that allowed this request, for handlers behind layers with
/// [`expose_decision`](crate::RateLimitLayer::expose_decision). Without one: 500, or `None` for
/// `Option<Decisions>`.
impl<S: Sync> FromRequestParts<S> for Decisions {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "no rate limit decisions: the layers need expose_decision(true)",
        ))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decisions {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The client's address, for handlers behind a
/// [`ClientAddressLayer`](crate::ClientAddressLayer). Without one: 500, or `None` for
/// `Option<ClientAddress>`.
impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().copied().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "no client address: the router needs a ClientAddressLayer, and the server the peer's \
             address",
        ))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for ClientAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().copied())
    }
}

/// The units of the response, for handlers behind a [`SpendLayer`](crate::SpendLayer). Without one, and for a request that
/// it does not count: 500, or `None` for `Option<Spent>`.
impl<S: Sync> FromRequestParts<S> for Spent {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "no units of the response: the router needs a SpendLayer that counts this request",
        ))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Spent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
