//! A request as rules see it: what several of them look at is found out once.

use std::{cell::OnceCell, net::IpAddr};

use http::{Method, request::Parts};

use super::pattern::SentPath;
#[cfg(feature = "axum")]
use crate::key::matched_route;
use crate::{
    clock::Timestamp,
    error::KeyError,
    key::{AddressOrigin, ClientAddress, ClientIp},
};

/// The head of a request, the instant, and what was found out about it.
#[derive(Debug)]
pub(super) struct RequestView<'r> {
    pub(super) parts: &'r Parts,
    pub(super) now: Timestamp,
    pub(super) path: SentPath<'r>,
    client_ip: &'r ClientIp,
    client: OnceCell<Result<ClientAddress, KeyError>>,
}

impl<'r> RequestView<'r> {
    #[inline]
    pub(super) fn new(parts: &'r Parts, now: Timestamp, client_ip: &'r ClientIp) -> Self {
        Self {
            parts,
            now,
            path: SentPath::new(parts.uri.path()),
            client_ip,
            client: OnceCell::new(),
        }
    }

    /// HEAD counts as GET, which does the same work.
    pub(super) fn method(&self) -> &'r Method {
        match &self.parts.method {
            &Method::HEAD => &Method::GET,
            method => method,
        }
    }

    /// The client's address.
    ///
    /// # Errors
    ///
    /// When the server tells none.
    pub(super) fn client(&self) -> Result<IpAddr, &KeyError> {
        self.client_address().map(|address| address.ip())
    }

    /// The client's address, unless it is that of a proxy which does not tell the client's: clients
    /// can bring that about.
    pub(super) fn certain_client(&self) -> Option<IpAddr> {
        use AddressOrigin::{AllTrusted, Client, Peer};
        let address = self.client_address().ok()?;
        matches!(address.origin(), Peer | Client | AllTrusted).then(|| address.ip())
    }

    fn client_address(&self) -> Result<&ClientAddress, &KeyError> {
        let resolved = || self.client_ip.resolve(self.parts);
        self.client.get_or_init(resolved).as_ref()
    }

    /// The route that axum matched.
    #[cfg(feature = "axum")]
    pub(super) fn route(&self) -> Option<&'r str> {
        matched_route(self.parts)
    }

    /// The path by which axum matched the route: that of the whole application, also within a nested
    /// router.
    #[cfg(feature = "axum")]
    pub(super) fn routed_path(&self) -> &'r str {
        let original = self.parts.extensions.get::<axum::extract::OriginalUri>();
        original
            .map_or(&self.parts.uri, |original| &original.0)
            .path()
    }

    /// The path as it was sent.
    #[cfg(not(feature = "axum"))]
    pub(super) fn routed_path(&self) -> &'r str {
        self.parts.uri.path()
    }

    /// No route: the feature `axum` is off, and files that ask for one are refused.
    #[cfg(not(feature = "axum"))]
    pub(super) const fn route(&self) -> Option<&'r str> {
        None
    }
}
