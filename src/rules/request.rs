//! A request as rules see it: what several of them look at is found out once.

use std::{cell::OnceCell, net::IpAddr};

use http::{Method, request::Parts};

use super::pattern::SentPath;
use crate::{clock::Timestamp, key::ClientIp};

/// The head of a request, the instant, and what was found out about it.
#[derive(Debug)]
pub(super) struct RequestView<'r> {
    pub(super) parts: &'r Parts,
    pub(super) now: Timestamp,
    pub(super) path: SentPath<'r>,
    client_ip: &'r ClientIp,
    client: OnceCell<Option<IpAddr>>,
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
        *self.client.get_or_init(|| {
            let found = self.client_ip.resolve(self.parts).ok();
            found.map(|address| address.ip())
        })
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
