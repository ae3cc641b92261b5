//! The upstream's address, and how the gateway speaks to it.

use std::{fmt, path::PathBuf, str::FromStr};

use http::{
    Uri,
    uri::{Authority, Parts, PathAndQuery, Scheme},
};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::decide_and_serve_errors::ServeError;

/// The server that receives the requests, such as `http://127.0.0.1:8080` or `https://api.internal`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    is_tls: bool,
    authority: Authority,
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let parts = uri.into_parts();
        if !parts.authority.as_ref().is_none_or(has_valid_port) {
            return Err(format!("the port of {text} is no number from 1 to 65535"));
        }
        let path = parts.path_and_query;
        let is_tls = match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("http") => Some(false),
            Some("https") => Some(true),
            _ => None,
        };
        match (is_tls, parts.authority) {
            (Some(is_tls), Some(authority))
                if !authority.as_str().contains('@') && path.is_none_or(|path| path == "/") =>
            {
                Ok(Self { is_tls, authority })
            }
            _ => Err(
                "an upstream is http:// or https://, a host and a port, without a path".to_owned(),
            ),
        }
    }
}

/// Whether there is no port, or one that can be connected to. The connector takes any other for the scheme's default.
fn has_valid_port(authority: &Authority) -> bool {
    let host = authority.host();
    let (_, after) = authority.as_str().rsplit_once(host).unwrap_or_default();
    after.is_empty() || authority.port_u16().is_some_and(|port| port > 0)
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority)
    }
}

impl Upstream {
    pub(super) const fn authority(&self) -> &Authority {
        &self.authority
    }

    fn scheme(&self) -> Scheme {
        if self.is_tls {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        }
    }

    /// The target of a request to this authority, by the upstream's scheme.
    pub(super) fn target(&self, authority: Authority, path: Option<PathAndQuery>) -> Option<Uri> {
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme());
        parts.authority = Some(authority);
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        Uri::from_parts(parts).ok()
    }
}

/// TLS to the upstream. Changed files are read again.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct UpstreamTls {
    /// Certificates of authorities, in PEM. Defaults to those of the system, as they are at the start.
    pub authority: Option<PathBuf>,
    /// The certificate of the gateway and its key, in PEM. Defaults to none.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name in SNI and in the upstream's certificate. Defaults to the host of its address.
    pub name: Option<String>,
}

impl UpstreamTls {
    /// The name that the upstream's certificate must have; `None` for an upstream without TLS.
    ///
    /// # Errors
    ///
    /// When the name is no name, or without TLS one of these settings.
    pub(super) fn server_name(
        &self,
        upstream: &Upstream,
    ) -> Result<Option<ServerName<'static>>, ServeError> {
        if !upstream.is_tls {
            let has_any =
                self.authority.is_some() || self.certificate.is_some() || self.name.is_some();
            return if has_any {
                Err(ServeError(format!(
                    "--upstream-ca, --upstream-cert, --upstream-key and --upstream-name need an upstream of https://, \
                     and --upstream is {upstream}"
                )))
            } else {
                Ok(None)
            };
        }
        let (option, name) = match &self.name {
            Some(name) => ("--upstream-name", name.as_str()),
            None => ("--upstream", upstream.authority.host()),
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        match ServerName::try_from(bare.to_owned()) {
            Ok(name) => Ok(Some(name)),
            Err(_) => Err(ServeError(format!(
                "{option}: {name:?} is no name of a server, such as api.internal or 10.0.0.8"
            ))),
        }
    }
}

/// The host that the upstream receives, in `Host` or `:authority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UpstreamHost {
    /// The client's.
    #[default]
    Keep,
    /// The upstream's own: host and port of its address, with the host replaced by [`UpstreamTls::name`] if that is
    /// set.
    Upstream,
}

impl FromStr for UpstreamHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            "upstream" => Ok(Self::Upstream),
            _ => Err("it is keep or upstream".to_owned()),
        }
    }
}

impl UpstreamHost {
    /// The upstream's own host, unless the client's is kept.
    ///
    /// # Errors
    ///
    /// When the name cannot stand in a request.
    pub(super) fn own(
        self,
        upstream: &Upstream,
        tls: &UpstreamTls,
    ) -> Result<Option<Authority>, ServeError> {
        let authority = &upstream.authority;
        match (self, &tls.name) {
            (Self::Keep, _) => Ok(None),
            (Self::Upstream, None) => Ok(Some(authority.clone())),
            (Self::Upstream, Some(name)) => {
                let port = authority.port().map(|port| format!(":{port}"));
                let own = format!("{name}{}", port.unwrap_or_default());
                let parsed = own.parse().map_err(|_| {
                    ServeError(format!("--upstream-name: {name:?} is no host of a request"))
                })?;
                Ok(Some(parsed))
            }
        }
    }
}

/// The versions of HTTP for the upstream. WebSockets use HTTP/1.1 in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UpstreamHttp {
    /// By TLS the version that the upstream selects by ALPN. Without TLS HTTP/1.1, and HTTP/2 for gRPC.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without TLS too.
    Http2,
}

impl FromStr for UpstreamHttp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "1" => Ok(Self::Http1),
            "2" => Ok(Self::Http2),
            _ => Err("it is auto, 1 or 2".to_owned()),
        }
    }
}
