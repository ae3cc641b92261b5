//! Headers in which proxies name the client.

use http::{HeaderName, header};

/// The header in which proxies name the client; see [`ClientIp::header`](super::ClientIp::header).
///
/// Choose the one that *your* proxy writes, and look up in its manual whether it replaces what a
/// client sent. The addresses may have a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientIpHeader {
    /// `X-Forwarded-For`: nginx with `$proxy_add_x_forwarded_for`, HAProxy, Envoy, Traefik, Caddy,
    /// the load balancers of AWS, Google and Azure.
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
    /// `CF-Connecting-IP`: Cloudflare.
    CfConnectingIp,
    /// `True-Client-IP`: Akamai, Cloudflare Enterprise.
    TrueClientIp,
    /// `Fly-Client-IP`: fly.io.
    FlyClientIp,
    /// `CloudFront-Viewer-Address`, with its port after the last colon: Amazon CloudFront.
    CloudFrontViewerAddress,
    /// `X-Real-IP`: nginx with `proxy_set_header X-Real-IP $remote_addr`.
    XRealIp,
    /// `X-Envoy-External-Address`: Envoy.
    XEnvoyExternalAddress,
    /// Another header that is one line with one address.
    Single(HeaderName),
    /// Another header that is a list as `X-Forwarded-For` is, to whose right end each proxy
    /// appends.
    List(HeaderName),
}

/// How a header is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    List,
    Forwarded,
    Single,
    ViewerAddress,
}

impl ClientIpHeader {
    pub(super) fn into_parts(self) -> (HeaderName, Syntax) {
        let single = |name| (HeaderName::from_static(name), Syntax::Single);
        match self {
            Self::XForwardedFor => (HeaderName::from_static("x-forwarded-for"), Syntax::List),
            Self::Forwarded => (header::FORWARDED, Syntax::Forwarded),
            Self::CloudFrontViewerAddress => {
                let name = HeaderName::from_static("cloudfront-viewer-address");
                (name, Syntax::ViewerAddress)
            }
            Self::CfConnectingIp => single("cf-connecting-ip"),
            Self::TrueClientIp => single("true-client-ip"),
            Self::FlyClientIp => single("fly-client-ip"),
            Self::XRealIp => single("x-real-ip"),
            Self::XEnvoyExternalAddress => single("x-envoy-external-address"),
            Self::Single(name) => (name, Syntax::Single),
            Self::List(name) => (name, Syntax::List),
        }
    }
}
