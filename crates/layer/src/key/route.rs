//! Keys from the route and the method, and the key that all requests share.

use http::{Extensions, Method, request::Parts};

use tower_ratelimit_core::error::KeyError;
use tower_ratelimit_core::key::{Key, KeyExtractor};
#[cfg(feature = "axum")]
use tower_ratelimit_core::log::{Code, Watch};

/// One key for all requests: [`Key::global`].
///
/// The limit protects the service and no client from another: one that sends enough exhausts it for
/// everybody. Put a limit for each client around it, or charge both together, as
/// [`RateLimitLayer::all`](crate::rate_limit::layer::RateLimitLayer::all) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "a unit struct is its own value")]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Ok(Key::global())
    }

    fn extract_early(&self, _: &Extensions) -> Option<Key> {
        Some(Key::global())
    }
}

/// The request's method, as in `(PeerIp, RequestMethod)`.
///
/// HEAD has the key of GET, which does the same work. Case does not matter, since some servers
/// read `POSt` as POST. Methods other than those of RFC 9110 and PATCH share one key: a client can
/// invent as many as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "a unit struct is its own value")]
pub struct RequestMethod;

const KNOWN_METHODS: [Method; 8] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

impl KeyExtractor for RequestMethod {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let sent = parts.method.as_str();
        let is = |known: &Method| known.as_str().eq_ignore_ascii_case(sent);
        if is(&Method::HEAD) {
            return Ok(Key::from(Method::GET.as_str()));
        }
        let known = KNOWN_METHODS.iter().find(|known| is(known));
        Ok(Key::from(known.map_or("", Method::as_str)))
    }
}

/// The route that axum matched, such as `/users/{id}`.
///
/// Unlike the path it cannot be varied by the client: `/users/1` and `/users/2` are one route.
/// The route is known only to layers inside the router, so this needs `Router::layer` or
/// `Router::route_layer`. Requests that matched none, as all do around the router, share one key;
/// if the first 16 requests of the process matched none, a line is logged.
#[cfg(feature = "axum")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "a unit struct is its own value")]
pub struct MatchedRoute;

/// Whether any request has matched a route; the extractor itself has no room for it.
#[cfg(feature = "axum")]
static ROUTES: Watch = Watch::new(Code::NoRouteMatched);

#[cfg(feature = "axum")]
impl KeyExtractor for MatchedRoute {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        Ok(Key::from(matched_route(parts).unwrap_or("")))
    }
}

#[cfg(feature = "axum")]
pub fn matched_route(parts: &Parts) -> Option<&str> {
    let route = parts.extensions.get::<axum::extract::MatchedPath>();
    ROUTES.note(
        || route.is_some(),
        || {
            "none of the first requests has matched a route, so they share one limit by \
             `MatchedRoute`, and meet no rule that matches a `route`: both work in a layer inside the \
             router, `Router::layer` or `Router::route_layer`; if the layer is inside, these were \
             requests that match none"
                .to_owned()
        },
    );
    route.map(|route| route.as_str())
}
