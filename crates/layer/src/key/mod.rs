//! Keys that a request has: its peer, its route, its method, the key that all share, and what it sent.

#[doc(hidden)]
pub mod request_value;

use std::net::{IpAddr, SocketAddr};

#[cfg(feature = "axum")]
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::{Extensions, Method, request::Parts};
#[cfg(feature = "tonic")]
use tonic::transport::server::TcpConnectInfo;

use tower_ratelimit_core::error::KeyError;
use tower_ratelimit_core::key::{Key, extract::KeyExtractor, ip_prefix::IpPrefix};
#[cfg(feature = "axum")]
use tower_ratelimit_core::log::{Code, Watch};

/// The address at the other end of the connection, IPv6 grouped by /64.
///
/// It is read from the request's extensions: axum's `ConnectInfo<SocketAddr>`, a bare
/// [`SocketAddr`], which is what a plain hyper server inserts, or tonic's `TcpConnectInfo` (feature
/// `tonic`). No header is read, so no client can choose it.
///
/// An axum server must be started with
/// `app.into_make_service_with_connect_info::<SocketAddr>()`, or every request gets 500.
/// Tests of an axum router have no connection: add axum's `MockConnectInfo` after this layer, and
/// its address is used without a `ConnectInfo`, as for handlers.
///
/// Behind a proxy this is the proxy's address, the same for all clients: use
/// [`ClientIp`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.ClientIp.html) there. When one address sends several values of a header such as
/// `X-Forwarded-For` in a layer's first 1,000 requests, a line is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "a unit struct is its own value")]
pub struct PeerIp;

/// [`PeerIp`] with its own grouping. Made by [`PeerIp::grouped_by`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupedPeerIp(IpPrefix);

impl PeerIp {
    /// Groups addresses by `prefix`. Defaults to /32 for IPv4 and /64 for IPv6.
    ///
    /// A handler finds the same key with [`IpPrefix::key`]; ungrouped, `Key::from(peer.ip())` does.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use http::Request;
    /// use tower_ratelimit::{KeyExtractor, PeerIp, key::IpPrefix};
    ///
    /// let by_site = PeerIp.grouped_by(IpPrefix::new().v6(48));
    ///
    /// let [one, other] = ["[2001:db8:0:1::1]:4000", "[2001:db8:0:2::1]:4000"].map(|peer| {
    ///     let (mut parts, ()) = Request::new(()).into_parts();
    ///     parts.extensions.insert(peer.parse::<SocketAddr>().unwrap());
    ///     parts
    /// });
    /// assert_eq!(by_site.extract(&one), by_site.extract(&other));
    /// assert_ne!(PeerIp.extract(&one), PeerIp.extract(&other));
    /// ```
    pub const fn grouped_by(self, prefix: IpPrefix) -> GroupedPeerIp {
        GroupedPeerIp(prefix)
    }
}

impl KeyExtractor for PeerIp {
    #[inline]
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        self.grouped_by(IpPrefix::new()).extract(parts)
    }

    #[inline]
    fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        self.grouped_by(IpPrefix::new()).extract_early(extensions)
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        peer_of(&parts.extensions)
    }
}

impl KeyExtractor for GroupedPeerIp {
    #[inline]
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        peer_ip(parts).map(|address| self.0.key(address))
    }

    #[inline]
    fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        Some(self.0.key(peer_of(extensions)?))
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        peer_of(&parts.extensions)
    }
}

const NO_PEER: KeyError = KeyError::unavailable(
    "no peer address in the request's extensions: start axum with \
     `into_make_service_with_connect_info::<SocketAddr>()`, tonic with its `transport` \
     server and our feature `tonic`, or insert a `std::net::SocketAddr` into the \
     extensions of every request",
);

#[doc(hidden)]
#[inline]
pub fn peer_ip(parts: &Parts) -> Result<IpAddr, KeyError> {
    peer_of(&parts.extensions).ok_or(NO_PEER)
}

/// The socket's address, from wherever the server in front of us left it.
#[inline]
fn peer_of(extensions: &Extensions) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(address.ip());
    }
    rare_peer_of(extensions)
}

// Not inlined, so that what others look up takes no room where a connection of axum's is found.
#[inline(never)]
fn rare_peer_of(extensions: &Extensions) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
        return Some(address.ip());
    }
    let plain = extensions.get::<SocketAddr>().copied();
    #[cfg(feature = "tonic")]
    let plain = plain.or_else(|| extensions.get::<TcpConnectInfo>()?.remote_addr());
    Some(plain?.ip())
}

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

/// The methods of RFC 9110 and PATCH, without HEAD, which counts as GET.
static KNOWN_METHODS: [Method; 8] = [
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
static ROUTES: Watch = Watch::new(Code::NO_ROUTE_MATCHED);

#[cfg(feature = "axum")]
impl KeyExtractor for MatchedRoute {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        Ok(Key::from(matched_route(parts).unwrap_or("")))
    }
}

#[cfg(feature = "axum")]
#[doc(hidden)]
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
