//! limitador behind a layer. It comes as a library and as a service, and has no layer of its own.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Request, Response, StatusCode},
};
use limitador::{
    RateLimiter,
    limit::{self, Limit, Namespace},
};
use tower::{Layer, Service};

use super::CLIENTS;
use crate::rate_conversions::Rate;

/// Limits by the address, the network of 256 addresses, and the path of a request.
#[derive(Clone)]
pub struct LimitadorLayer(Arc<RateLimiter>);

/// Made by [`LimitadorLayer`].
#[derive(Clone)]
pub struct Limited<S> {
    inner: S,
    limiter: Arc<RateLimiter>,
}

pub const NAMESPACE: &str = "peers";

impl LimitadorLayer {
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Self {
        let limiter = RateLimiter::new(4 * u64::from(CLIENTS));
        for limit in limits {
            assert!(limiter.add_limit(limit), "two limits are the same to it");
        }
        Self(Arc::new(limiter))
    }
}

/// A limit for each address.
pub fn by_address(rate: Rate) -> Limit {
    limit(rate, &[], &["address"])
}

/// A limit for each value of the variables, of the requests that meet all conditions.
pub fn limit(rate: Rate, conditions: &[&str], variables: &[&str]) -> Limit {
    let (units, seconds) = rate.in_seconds();
    let conditions = conditions.iter().map(|text| (*text).try_into());
    let variables = variables.iter().map(|text| (*text).try_into());
    Limit::new(
        NAMESPACE,
        units,
        seconds,
        conditions.map(|parsed| parsed.expect("a condition")),
        variables.map(|parsed| parsed.expect("a variable")),
    )
}

impl<S> Layer<S> for LimitadorLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited {
            inner,
            limiter: Arc::clone(&self.0),
        }
    }
}

impl<S> Limited<S> {
    fn allows(&self, request: &Request<Body>) -> bool {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let address = peer.expect("the address of the peer").ip().to_string();
        let network = address.rsplit_once('.').map_or("", |(network, _)| network);
        let values = HashMap::from([
            ("path".to_owned(), request.uri().path().to_owned()),
            ("network".to_owned(), network.to_owned()),
            ("address".to_owned(), address),
        ]);
        let namespace = Namespace::from(NAMESPACE);
        let context = limit::Context::from(values);
        let checked = (self.limiter).check_rate_limited_and_update(&namespace, &context, 1);
        !checked.expect("limits that can be evaluated").limited
    }
}

impl<S> Service<Request<Body>> for Limited<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    /// The allocation is lost in what a decision costs.
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.allows(&request) {
            return Box::pin(self.inner.call(request));
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        Box::pin(std::future::ready(Ok(response)))
    }
}
