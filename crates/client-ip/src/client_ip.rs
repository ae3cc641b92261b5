//! The client's address behind proxies: [`ClientIp`] reads the header that was chosen from the right, as far as proxies
//! are trusted, and reports the place of the address.
//!
//! In: the address of the peer and the lines of one header. Out: a `ClientAddress`, with where it was found; as a key, the
//! network that the address belongs to. Entries are read by pure functions over bytes (`forwarded_entries.rs`).
//!
//! 1. A peer that is not trusted is the client: its header is not read, since everybody can write one.
//! 2. Otherwise each entry from the last line's end on is what a trusted proxy reports about the host before it. The first
//!    address that is not trusted is the client's. What is left of it was written by the client, and is not read.
//! 3. At an entry that hides its address or cannot be read, the last trusted address is taken: a bad entry must not
//!    move a client to another one's key. So it is if all entries are trusted, or there are too many.
//! 4. A header with a single address is believed as a whole, and has to appear once.
//!
//! Example: trust in 10.0.0.0/8, the peer 10.0.0.1, and `X-Forwarded-For: 1.2.3.4, 203.0.113.7, 10.0.0.2`. The entry
//! 10.0.0.2 is trusted and 203.0.113.7 is not: it is the client, and 1.2.3.4 is its own invention.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderName, HeaderValue, header, request::Parts};
use ipnet::{IpNet, Ipv4Net};

use crate::forwarded_entries::{
    self, HeaderEntry, address, forwarded_entries, list_entries, viewer_address,
};
use tower_ratelimit_core::key::{Key, extract::KeyExtractor, ip_prefix::IpPrefix};
use tower_ratelimit_core::{
    error::{ConfigError, ConfigErrorKind, KeyError},
    log::{Code, Watch},
};
pub use tower_ratelimit_layer::key::peer_ip;

/// The client's address behind proxies, IPv6 grouped by /64.
///
/// ```
/// use tower_ratelimit::{ClientIp, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(
///     Quota::per_second(10).burst(20),
///     ClientIp::behind(["10.0.0.0/8", "2001:db8:ffff::/48"]),
/// );
/// # let _ = layer;
/// ```
///
/// # How it is found
///
/// A proxy appends the address it got the request from to a header, and a client can send that
/// header with anything in it. So only what a trusted proxy wrote is believed:
///
/// 1. The peer of the connection, see [`PeerIp`](tower_ratelimit_layer::key::PeerIp), is the client if it is no trusted
///    proxy. No header is read.
/// 2. Else the entries of the one chosen header are read from the right, the last line first. One
///    that is a trusted proxy leads on to the left; the first that is none is the client. If all
///    are, it is the leftmost.
/// 3. Reading stops at a fault: an entry without an address, `unknown`, an obfuscated name, an empty entry.
///    The client is then the trusted proxy that wrote it, never something further left, and no
///    other header is tried.
/// 4. The address is grouped by [`IpPrefix`].
///
/// A client may write anything to the left: its key is its own address or that of a trusted proxy; only
/// a client with a trusted address is treated as a proxy. The proxy's key is a bucket shared by all
/// clients whose address that proxy does not forward, and by those that spoiled the line that it was
/// appended to. The proxy's own requests, such as health checks, are in it too:
/// [skip](tower_ratelimit_layer::rate_limit::layer::RateLimitLayer::skip) those by their path, never by the proxy's address or key, since
/// clients can get into that bucket.
///
/// [`resolve`](Self::resolve) returns how an address was found, and
/// [`ClientAddressLayer`](crate::client_address_layer::ClientAddressLayer) passes it to handlers.
///
/// # What has to hold
///
/// - Each trusted proxy appends to the header, or replaces it. One that forwards what a client
///   sent lets it choose its address.
/// - Nobody else has an address in the trusted networks. A host that does can name any address.
/// - The header is the one that the proxies write. If none of the first 16 requests from trusted
///   proxies has it, a line is logged: the clients then share the proxy's limit.
///
/// # Without an address
///
/// Behind a proxy on a unix socket there is no peer address; let an outer layer insert
/// `SocketAddr::from(([127, 0, 0, 1], 0))` into the request's extensions, and trust `"127.0.0.1"`.
/// The PROXY protocol lies below HTTP: a listener that reads it provides the client as the peer.
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientIp {
    trust: Trust,
    name: HeaderName,
    syntax: Syntax,
    prefix: IpPrefix,
    header_watch: Arc<Watch>,
}

impl ClientIp {
    /// How many entries of a header are read at most, from its right end. If all of them are
    /// trusted proxies, the client is the last one read.
    pub const MAX_ENTRIES: usize = forwarded_entries::MAX_ENTRIES;

    /// Loopback, private (RFC 1918, RFC 4193) and link-local networks, for
    /// [`behind`](Self::behind).
    ///
    /// A start where the proxies' addresses change: in a container network, on one machine. **A
    /// host with an address in these networks can name any client**: a neighbouring container, an
    /// office network, a VPN; and every client where source NAT gives it such an address, as a
    /// published container port or a Kubernetes `NodePort` may. List the proxies' own networks
    /// where they are known.
    ///
    /// Addresses shared by carriers (100.64.0.0/10, RFC 6598) are not among them, since there they
    /// are clients; where proxies have such ones, list the network.
    ///
    /// ```
    /// use tower_ratelimit::ClientIp;
    ///
    /// let key = ClientIp::behind(ClientIp::PRIVATE_NETWORKS);
    /// let proxies = ClientIp::PRIVATE_NETWORKS.iter().copied().chain(["100.64.0.0/10"]);
    /// let with_shared = ClientIp::behind(proxies);
    /// # let _ = (key, with_shared);
    /// ```
    pub const PRIVATE_NETWORKS: &[&str] = &[
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "::1",
        "fc00::/7",
        "fe80::/10",
    ];

    /// Behind proxies with these addresses, which write `X-Forwarded-For` unless another
    /// [`header`](Self::header) is chosen.
    ///
    /// **A client with such an address can name any other.** With `127.0.0.1` that is each program on the
    /// proxy's machine, `curl` too: where only the proxy reaches the server, on loopback or a Unix socket,
    /// prefer [`hops(1)`](Self::hops).
    ///
    /// Takes texts, addresses and [`ipnet::IpNet`], see [`IntoNetwork`]. Without any, no header is
    /// ever read, as for [`PeerIp`](tower_ratelimit_layer::key::PeerIp).
    ///
    /// # Panics
    ///
    /// When a text is neither an address nor a network, or a network is everybody
    /// (`0.0.0.0/0`, `::/0`).
    #[track_caller]
    pub fn behind<I>(proxies: I) -> Self
    where
        I: IntoIterator<Item: IntoNetwork>,
    {
        match Self::try_behind(proxies) {
            Ok(client_ip) => client_ip,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`behind`](Self::behind), for proxies from a configuration file.
    ///
    /// # Errors
    ///
    /// [`ConfigErrorKind::Proxy`] when a text is neither an address
    /// nor a network, or a network is everybody (`0.0.0.0/0`, `::/0`).
    pub fn try_behind<I>(proxies: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item: IntoNetwork>,
    {
        Trust::networks(proxies).map(Self::trusting)
    }

    /// Behind proxies anywhere in [`PRIVATE_NETWORKS`](Self::PRIVATE_NETWORKS): a start for a
    /// container network or a single machine, with the danger that is described there.
    pub fn private_networks() -> Self {
        Self::behind(Self::PRIVATE_NETWORKS)
    }

    /// Behind exactly `proxies` proxies, whatever their addresses: the client is the entry of that
    /// number from the right. More than [`MAX_ENTRIES`](Self::MAX_ENTRIES) count as that; with 0 it
    /// is the peer.
    ///
    /// **This trusts every peer**: a client that reaches the server past a proxy can choose its
    /// address. For servers that listen on loopback or a Unix socket, and platforms whose load balancers
    /// have no fixed addresses and are the only way in; prefer [`behind`](Self::behind) elsewhere. With fewer entries than proxies it is the leftmost one.
    /// With a header of a single value, any number but 0 means that it is believed.
    pub fn hops(proxies: u8) -> Self {
        Self::trusting(Trust::Hops(proxies.min(Self::MAX_ENTRIES as u8)))
    }

    fn trusting(trust: Trust) -> Self {
        let (name, syntax) = ClientIpHeader::XForwardedFor.into_parts();
        Self {
            trust,
            name,
            syntax,
            prefix: IpPrefix::new(),
            header_watch: Arc::new(Watch::new(Code::PROXY_HEADER_MISSING)),
        }
    }

    /// The proxies write `Forwarded`, as in RFC 7239. Short for
    /// [`header`](Self::header)`(ClientIpHeader::Forwarded)`.
    ///
    /// A line of more than 8 KiB, or with a quote left open, is a fault.
    pub fn forwarded(self) -> Self {
        self.header(ClientIpHeader::Forwarded)
    }

    /// The one header that the proxies write. Defaults to `X-Forwarded-For`.
    ///
    /// A header of a single value, such as `CF-Connecting-IP`, names the client outright; it has to
    /// be one line with one address, or the client is the peer.
    ///
    /// ```
    /// use tower_ratelimit::{ClientIp, key::ClientIpHeader};
    ///
    /// // The tunnel's end runs on this machine.
    /// let key = ClientIp::behind(["127.0.0.1"]).header(ClientIpHeader::CfConnectingIp);
    /// # let _ = key;
    /// ```
    pub fn header(mut self, header: ClientIpHeader) -> Self {
        (self.name, self.syntax) = header.into_parts();
        self.header_watch = Arc::new(Watch::new(Code::PROXY_HEADER_MISSING));
        self
    }

    /// Groups addresses by `prefix`. Defaults to /32 for IPv4 and /64 for IPv6.
    pub const fn grouped_by(mut self, prefix: IpPrefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// The client's address, whole, and how it was found.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tower_ratelimit::{ClientIp, key::AddressOrigin};
    ///
    /// let (mut parts, ()) = http::Request::builder()
    ///     .header("x-forwarded-for", "6.6.6.6, 203.0.113.7")
    ///     .extension(SocketAddr::from(([10, 0, 0, 1], 4000)))
    ///     .body(())?
    ///     .into_parts();
    ///
    /// let client = ClientIp::behind(["10.0.0.0/8"]).resolve(&parts)?;
    /// assert_eq!(client.ip().to_string(), "203.0.113.7");
    /// assert_eq!(client.origin(), AddressOrigin::Client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyError::unavailable`] when the request has no peer address, as for
    /// [`PeerIp`](tower_ratelimit_layer::key::PeerIp).
    pub fn resolve(&self, parts: &Parts) -> Result<ClientAddress, KeyError> {
        let peer = peer_ip(parts)?.to_canonical();
        if !self.trust.covers(peer, 0) {
            return Ok(ClientAddress::peer(peer));
        }
        (self.header_watch).note(
            || parts.headers.contains_key(&self.name),
            || {
                format!(
                    "trusted proxies send no {:?}, so all their clients share the proxy's limit: name the \
                     header that they do send, `ClientIp::header(..)`, or do not trust what is no proxy",
                    self.name
                )
            },
        );
        let lines = parts.headers.get_all(&self.name).iter();
        let lines = lines.map(HeaderValue::as_bytes);
        Ok(match self.syntax {
            Syntax::List => self.walk(peer, lines.rev().flat_map(list_entries)),
            Syntax::Forwarded => self.walk(peer, lines.rev().flat_map(forwarded_entries)),
            Syntax::Single => only(peer, lines.map(address)),
            Syntax::ViewerAddress => only(peer, lines.map(viewer_address)),
        })
    }

    /// Whether a peer with this address is a proxy whose header is read.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trust.covers(peer.to_canonical(), 0)
    }

    /// How addresses are grouped into keys, see [`grouped_by`](Self::grouped_by).
    pub const fn prefix(&self) -> IpPrefix {
        self.prefix
    }

    /// The name of the header that is read.
    pub const fn header_name(&self) -> &HeaderName {
        &self.name
    }

    /// Goes from proxy to proxy towards the client.
    fn walk(&self, peer: IpAddr, entries: impl Iterator<Item = HeaderEntry>) -> ClientAddress {
        let mut found = ClientAddress::peer(peer);
        for entry in entries {
            if found.entries() == Self::MAX_ENTRIES {
                return found.with_origin(AddressOrigin::TooManyEntries);
            }
            let Some(address) = found.read(entry) else {
                return found;
            };
            if !self.trust.covers(address, found.entries()) {
                return found.with_origin(AddressOrigin::Client);
            }
        }
        found.with_origin(AddressOrigin::AllTrusted)
    }
}

fn only(peer: IpAddr, mut values: impl Iterator<Item = HeaderEntry>) -> ClientAddress {
    let mut found = ClientAddress::peer(peer);
    match (values.next(), values.next()) {
        (None, _) => found.with_origin(AddressOrigin::AllTrusted),
        (Some(_), Some(_)) => found.with_origin(AddressOrigin::Malformed),
        (Some(value), None) => match found.read(value) {
            Some(_) => found.with_origin(AddressOrigin::Client),
            None => found,
        },
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        Ok(self.prefix.key(self.resolve(parts)?.ip()))
    }

    fn believed_peer(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = peer_ip(parts).ok()?.to_canonical();
        (!self.trust.covers(peer, 0)).then_some(peer)
    }
}

/// The address of a request's client, found by [`ClientIp::resolve`].
///
/// It is the whole address, not grouped; the key is made from its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress {
    ip: IpAddr,
    origin: AddressOrigin,
    entries: u8,
}

/// Where a [`ClientAddress`] comes from, to find out whether a deployment is set up right: one
/// that is sees [`Client`](Self::Client) behind its proxies and [`Peer`](Self::Peer) in front of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressOrigin {
    /// The connection does not come from a trusted proxy, so its other end is the client. No
    /// header was read.
    Peer,
    /// A trusted proxy wrote it into the header, and it is no trusted proxy itself.
    Client,
    /// Everybody on the way is a trusted proxy, or the header is missing: the farthest of them.
    AllTrusted,
    /// A proxy names the one before it `unknown`, or by an obfuscated name: the address of that
    /// proxy.
    Hidden,
    /// A proxy wrote something that is no address, or a header of one value has several: the
    /// address of that proxy.
    Malformed,
    /// More entries than [`ClientIp::MAX_ENTRIES`], and all of them
    /// trusted proxies: the last one that was read.
    TooManyEntries,
}

impl ClientAddress {
    /// The peer of the connection, before any header is read.
    const fn peer(ip: IpAddr) -> Self {
        Self {
            ip,
            origin: AddressOrigin::Peer,
            entries: 0,
        }
    }

    /// The client's address. IPv4-mapped IPv6 (`::ffff:203.0.113.7`) is unwrapped.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The origin of the address.
    pub const fn origin(&self) -> AddressOrigin {
        self.origin
    }

    /// How many entries of the header were read, from its right end: at most
    /// [`ClientIp::MAX_ENTRIES`].
    pub const fn entries(&self) -> usize {
        self.entries as usize
    }

    /// Reads one more entry. `None`, with the reason noted, if it has no address.
    const fn read(&mut self, entry: HeaderEntry) -> Option<IpAddr> {
        self.entries += 1;
        match entry {
            HeaderEntry::Address(ip) => {
                self.ip = ip;
                return Some(ip);
            }
            HeaderEntry::Hidden => self.origin = AddressOrigin::Hidden,
            HeaderEntry::Malformed => self.origin = AddressOrigin::Malformed,
        }
        None
    }

    const fn with_origin(mut self, origin: AddressOrigin) -> Self {
        self.origin = origin;
        self
    }
}

/// The header in which proxies name the client; see [`ClientIp::header`].
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    List,
    Forwarded,
    Single,
    ViewerAddress,
}

impl ClientIpHeader {
    fn into_parts(self) -> (HeaderName, Syntax) {
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

/// The proxies that are believed about where a request came from.
#[derive(Debug, Clone)]
enum Trust {
    /// Every address in these networks, which are disjoint, sorted, and not IPv4-mapped.
    Networks(Arc<[IpNet]>),
    /// This many proxies in front of us, whatever their addresses.
    Hops(u8),
}

impl Trust {
    fn networks<I>(proxies: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item: IntoNetwork>,
    {
        let networks = proxies.into_iter().map(IntoNetwork::into_network);
        let networks = networks.map(|network| network.map(unmapped));
        // Checked together: two halves are all addresses, too.
        let networks = IpNet::aggregate(&networks.collect::<Result<_, _>>()?);
        if let Some(network) = networks.iter().find(|network| network.prefix_len() == 0) {
            let message = format!(
                "{network} as a trusted proxy would let every client choose its address; where the proxies \
                 have no known addresses, use `ClientIp::hops`"
            );
            return Err(ConfigError::new(ConfigErrorKind::Proxy, message));
        }
        Ok(Self::Networks(networks.into()))
    }

    /// Whether to believe the one at `address`, which is `hops` proxies away: 0 is the peer.
    fn covers(&self, address: IpAddr, hops: usize) -> bool {
        match self {
            Self::Hops(count) => hops < usize::from(*count),
            Self::Networks(networks) => {
                let after = networks.partition_point(|network| network.network() <= address);
                after > 0 && networks[after - 1].contains(&address)
            }
        }
    }
}

/// IPv4-mapped networks as IPv4 ones: addresses are unwrapped before they are compared.
pub fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let v4 = v6.network().to_ipv4_mapped();
    let bits = v6.prefix_len().checked_sub(96);
    let v4 = v4
        .zip(bits)
        .and_then(|(v4, bits)| Ipv4Net::new(v4, bits).ok());
    v4.map_or(network, IpNet::V4)
}

/// A name for a trusted proxy, or a network of them, in
/// [`ClientIp::behind`].
///
/// Texts are addresses (`"10.0.0.1"`) or networks (`"10.0.0.0/8"`), with white space around them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no trusted proxy",
    label = "expected a text such as \"10.0.0.0/8\", an `IpAddr` or an `ipnet::IpNet`"
)]
pub trait IntoNetwork {
    /// The network; a single address is one of /32 or /128.
    ///
    /// # Errors
    ///
    /// When a text is neither an address nor a network.
    fn into_network(self) -> Result<IpNet, ConfigError>;
}

impl IntoNetwork for &str {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        let text = self.trim();
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).map_err(|_| {
            let message = format!(
                "the trusted proxy {self:?} is neither an address such as \"10.0.0.1\" nor a \
                 network such as \"10.0.0.0/8\" or \"2001:db8::/32\""
            );
            ConfigError::new(ConfigErrorKind::Proxy, message)
        })
    }
}

impl IntoNetwork for String {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        self.as_str().into_network()
    }
}

impl IntoNetwork for IpAddr {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        Ok(self.into())
    }
}

impl IntoNetwork for IpNet {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        Ok(self)
    }
}

/// The items of a list that is borrowed.
impl<T: IntoNetwork + Clone> IntoNetwork for &T {
    fn into_network(self) -> Result<IpNet, ConfigError> {
        self.clone().into_network()
    }
}

#[cfg(feature = "axum")]
mod extracted {
    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::{StatusCode, request::Parts};

    use super::ClientAddress;

    /// The client's address, for handlers behind a
    /// [`ClientAddressLayer`](crate::client_address_layer::ClientAddressLayer). Without one: 500, or `None` for
    /// `Option<ClientAddress>`.
    impl<S: Sync> FromRequestParts<S> for ClientAddress {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get().copied().ok_or((
                StatusCode::INTERNAL_SERVER_ERROR,
                "no client address: the router needs a ClientAddressLayer, and the server the peer's \
                 address",
            ))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for ClientAddress {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get().copied())
        }
    }
}
