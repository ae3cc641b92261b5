//! The layer that adds the client's address to requests, for handlers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use crate::client_ip::ClientIp;
use tower_ratelimit_core::log::{self, Code};

/// Inserts the client's address, a [`ClientAddress`](crate::client_ip::ClientAddress), into the extensions of
/// requests, for handlers and other layers.
///
/// Give it a clone of the [`ClientIp`] that the rate limit is keyed on. The order of the two does
/// not matter: neither needs the other. With the feature `axum` the address is an extractor.
///
/// A request without a peer address gets none, and the first is logged as an error.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_ratelimit::{
///     ClientAddress, ClientIp, Quota, RateLimitLayer, ClientAddressLayer,
/// };
///
/// async fn whoami(client: ClientAddress) -> String {
///     client.ip().to_string()
/// }
///
/// let client_ip = ClientIp::behind(["10.0.0.0/8"]);
/// let app: Router = Router::new()
///     .route("/whoami", get(whoami))
///     .layer(RateLimitLayer::new(Quota::per_second(10), client_ip.clone()))
///     .layer(ClientAddressLayer::new(client_ip));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientAddressLayer {
    client_ip: ClientIp,
    /// Whether the missing peer address has been reported.
    reported: Arc<AtomicBool>,
}

impl ClientAddressLayer {
    /// A layer that finds addresses with `client_ip`.
    pub fn new(client_ip: ClientIp) -> Self {
        Self {
            client_ip,
            reported: Arc::default(),
        }
    }
}

impl<S> Layer<S> for ClientAddressLayer {
    type Service = WithClientAddress<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WithClientAddress {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service that finds the client's address in the extensions of its requests. Made by
/// [`ClientAddressLayer`].
#[derive(Debug, Clone)]
pub struct WithClientAddress<S> {
    inner: S,
    layer: ClientAddressLayer,
}

impl<S> WithClientAddress<S> {
    tower_ratelimit_layer::inner_service!(S);
}

impl<S, B> Service<Request<B>> for WithClientAddress<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (mut parts, body) = request.into_parts();
        match self.layer.client_ip.resolve(&parts) {
            Ok(address) => drop(parts.extensions.insert(address)),
            Err(error) if !self.layer.reported.swap(true, Ordering::Relaxed) => {
                log::report(Code::ADDRESS_UNAVAILABLE, &error.to_string());
            }
            Err(_) => {}
        }
        self.inner.call(Request::from_parts(parts, body))
    }
}
