//! A request as rules see it. Values that several rules need are computed once.

use std::{cell::OnceCell, net::IpAddr};

use http::{HeaderName, Method, header::HOST, request::Parts};
use tower_ratelimit_rulefile::pattern::{Host, RequestPath};

use super::cors_origins::CorsOrigins;
pub(crate) use tower_ratelimit_client_ip::client_ip::{AddressOrigin, ClientAddress, ClientIp};
use tower_ratelimit_core::{clock::Timestamp, error::KeyError};
#[cfg(feature = "axum")]
use tower_ratelimit_layer::key::matched_route;

/// The settings of the files about requests of all rules.
#[derive(Debug, Clone)]
pub(super) struct RequestReading {
    pub(super) client_ip: ClientIp,
    pub(super) cors_origins: CorsOrigins,
}

/// The head of a request, the instant, and the values computed from them.
#[derive(Debug)]
pub(super) struct RequestView<'r> {
    pub(super) parts: &'r Parts,
    pub(super) now: Timestamp,
    pub(super) path: RequestPath<'r>,
    /// The method in upper case, if the client sent it in another one.
    upper_method: Option<Box<Method>>,
    /// Whether a header has a name with a sign other than the hyphen.
    other_signs: OnceCell<bool>,
    /// Whether this is a preflight request of `cors_origins`, at which no limit counts.
    pub(super) is_preflight: bool,
    /// Whether the body with the call of MCP is still to be read.
    pub(super) call_is_unread: bool,
    client_ip: &'r ClientIp,
    client: OnceCell<Result<ClientAddress, KeyError>>,
}

impl<'r> RequestView<'r> {
    pub(super) fn new(parts: &'r Parts, now: Timestamp, reading: &'r RequestReading) -> Self {
        Self {
            parts,
            now,
            path: RequestPath::new(parts.uri.path()),
            upper_method: upper_case(&parts.method),
            other_signs: OnceCell::new(),
            is_preflight: reading.cors_origins.is_preflight(parts),
            call_is_unread: false,
            client_ip: &reading.client_ip,
            client: OnceCell::new(),
        }
    }

    /// The method in upper case, as servers read it that ignore its case. HEAD counts as GET, since it does the same
    /// work.
    pub(super) fn method(&self) -> &Method {
        match self.upper_method.as_deref().unwrap_or(&self.parts.method) {
            &Method::HEAD => &Method::GET,
            method => method,
        }
    }

    /// Whether all servers read the method alike.
    pub(super) const fn is_method_certain(&self) -> bool {
        self.upper_method.is_none()
    }

    #[cold]
    fn find_other_signs(&self) -> bool {
        self.parts.headers.keys().any(has_other_signs)
    }

    /// Whether a header may be another spelling of a name without such signs.
    #[inline(always)]
    pub(super) fn has_other_signs(&self) -> bool {
        let found = || self.find_other_signs();
        *self.other_signs.get_or_init(found)
    }

    /// The client's address.
    ///
    /// # Errors
    ///
    /// When the server provides no address.
    pub(super) fn client(&self) -> Result<IpAddr, &KeyError> {
        self.client_address().map(|address| address.ip())
    }

    /// The client's address; `None` for the address of a proxy that does not send the client's, which a client can cause.
    pub(super) fn certain_client(&self) -> Option<IpAddr> {
        use AddressOrigin::{AllTrusted, Client, Peer};
        let address = self.client_address().ok()?;
        matches!(address.origin(), Peer | Client | AllTrusted).then(|| address.ip())
    }

    fn client_address(&self) -> Result<&ClientAddress, &KeyError> {
        let resolved = || self.client_ip.resolve(self.parts);
        self.client.get_or_init(resolved).as_ref()
    }

    #[cfg(feature = "axum")]
    pub(super) fn route(&self) -> Option<&'r str> {
        matched_route(self.parts)
    }

    /// The path that axum compared with the route: the whole path, also inside of a nested router.
    #[cfg(feature = "axum")]
    pub(super) fn routed_path(&self) -> &'r str {
        let original = self.parts.extensions.get::<axum::extract::OriginalUri>();
        original
            .map_or(&self.parts.uri, |original| &original.0)
            .path()
    }

    /// The path as the client sent it.
    #[cfg(not(feature = "axum"))]
    pub(super) fn routed_path(&self) -> &'r str {
        self.parts.uri.path()
    }

    /// No route: the feature `axum` is off, and the compilation refuses files with `route`.
    #[cfg(not(feature = "axum"))]
    pub(super) const fn route(&self) -> Option<&'r str> {
        None
    }
}

/// A part of requests that a rule reads, in addition to method, path, query and client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestPart {
    /// The header of this name.
    Header(HeaderName),
    /// The cookie of this name.
    Cookie(String),
    /// The token in `Authorization: Bearer`, see [`BearerToken`](tower_ratelimit_layer::key::request_value::BearerToken).
    BearerToken,
    /// The user in `Authorization: Basic`, see [`BasicUser`](tower_ratelimit_layer::key::request_value::BasicUser).
    BasicUser,
    /// The host in `:authority` or `Host`.
    Host,
    /// The route that axum matched; no other server has one.
    Route,
    /// Whether the application considers the request authenticated, by the function of
    /// [`RulesBuilder::authenticated`](crate::RulesBuilder::authenticated).
    Authenticated,
    /// The key that the application registers under this name by
    /// [`RulesBuilder::key`](crate::RulesBuilder::key).
    CustomKey(String),
}

impl RequestPart {
    /// The headers with a call of MCP.
    pub(super) const OF_MCP: [Self; 2] = [
        Self::Header(HeaderName::from_static("mcp-method")),
        Self::Header(HeaderName::from_static("mcp-name")),
    ];
}

/// Whether a name has a sign other than the hyphen. If neither of two names has one, they are no spellings of each other.
pub(super) fn has_other_signs(name: &HeaderName) -> bool {
    let is_other = |byte: u8| byte != b'-' && !byte.is_ascii_alphanumeric();
    name.as_str().bytes().any(is_other)
}

fn upper_case(method: &Method) -> Option<Box<Method>> {
    if matches!(*method, Method::GET | Method::POST) {
        return None;
    }
    let sent = method.as_str();
    if !sent.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let upper = Method::from_bytes(sent.to_ascii_uppercase().as_bytes());
    upper.ok().map(Box::new)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedHost<'r> {
    /// An empty field: no host.
    Empty,
    Known(Host<'r>),
    /// A text that servers may read as any host.
    Unreadable,
}

/// The hosts in a request: `:authority` and each line of `Host`. Some servers use the former, some the latter.
pub(super) fn hosts(parts: &Parts) -> impl Iterator<Item = NamedHost<'_>> {
    let authority = parts.uri.authority();
    let authority = authority.map(|authority| authority.as_str().as_bytes());
    let lines = parts.headers.get_all(HOST).iter();
    let lines = lines.map(|line| line.as_bytes().trim_ascii());
    authority.into_iter().chain(lines).map(|text| match text {
        [] => NamedHost::Empty,
        text => Host::parse(text).map_or(NamedHost::Unreadable, NamedHost::Known),
    })
}
