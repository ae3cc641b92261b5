//! A request as rules see it: what several of them look at is found out once.

use std::{cell::OnceCell, net::IpAddr};

use http::{Method, request::Parts};

use super::pattern::SentPath;
use crate::{
    clock::Timestamp,
    key::{AddressOrigin, ClientAddress, ClientIp},
};

/// The head of a request, the instant, and what was found out about it.
#[derive(Debug)]
pub(super) struct RequestView<'r> {
    pub(super) parts: &'r Parts,
    pub(super) now: Timestamp,
    pub(super) path: SentPath<'r>,
    client_ip: &'r ClientIp,
    client: OnceCell<Option<ClientAddress>>,
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

    /// The client's address, if the server tells one.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.client_address().map(|address| address.ip())
    }

    /// The client's address, unless it is that of a proxy which does not tell the client's: clients
    /// can bring that about.
    pub(super) fn certain_client(&self) -> Option<IpAddr> {
        use AddressOrigin::{AllTrusted, Client, Peer};
        let address = self.client_address()?;
        matches!(address.origin(), Peer | Client | AllTrusted).then(|| address.ip())
    }

    fn client_address(&self) -> Option<ClientAddress> {
        *self
            .client
            .get_or_init(|| self.client_ip.resolve(self.parts).ok())
    }

    /// The route that axum matched.
    #[cfg(feature = "axum")]
    pub(super) fn route(&self) -> Option<&'r str> {
        let route = self.parts.extensions.get::<axum::extract::MatchedPath>();
        route.map(|route| route.as_str())
    }

    /// No route: the feature `axum` is off, and files that ask for one are refused.
    #[cfg(not(feature = "axum"))]
    pub(super) const fn route(&self) -> Option<&'r str> {
        None
    }
}
