//! The settings of a gateway, and the address of its upstream.

use std::{fmt, net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use http::{
    Uri,
    uri::{Authority, Parts, PathAndQuery, Scheme},
};
use tokio_rustls::rustls::pki_types::ServerName;
use tower_ratelimit::rules::{Rules, RulesBuilder};

use tower_ratelimit_service::{
    OperatorSettings, connections,
    errors::{ServeError, fault},
    rule_file_polling::{FilesOf, WatchedPath},
    store::{Store, StoreSettings},
    tls::{ClientTls, TlsFiles},
};

/// The default deadline of Redis, the library's.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The settings of [`serve`](crate::serve).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Rule files of this crate, and directories of them.
    pub rules: Vec<PathBuf>,
    /// Whether changed files are read again. Defaults to false: SIGHUP reads them.
    pub watch: bool,
    /// The server that receives the requests.
    pub upstream: Upstream,
    /// TLS to an upstream of `https://`. Defaults to the authorities of the system, and no certificate of the gateway.
    pub upstream_tls: ClientTls,
    /// The host that the upstream receives. Defaults to the client's.
    pub upstream_host: UpstreamHost,
    /// The versions of HTTP for the upstream. Defaults to [`UpstreamHttp::Auto`].
    pub upstream_http: UpstreamHttp,
    /// A page in HTML for denied requests whose `Accept` prefers it, of at most 256 KiB; it is read again with the
    /// rules. `{retry_after}` in it stands for the seconds to wait. Defaults to none: all denials are problem documents.
    pub denied_page: Option<PathBuf>,
    /// Where the gateway listens. Defaults to 0.0.0.0:8000.
    pub listen: SocketAddr,
    /// The certificate and the key for TLS. Defaults to none: no TLS.
    pub tls: Option<TlsFiles>,
    /// Where the counts are. The deadline of Redis defaults to 50 milliseconds.
    pub store: StoreSettings,
    /// The most bytes of a request's body. Defaults to no limit.
    pub max_body: Option<u64>,
    /// The most concurrent requests, and the most concurrent WebSockets. Defaults to 1,024.
    pub max_in_flight: usize,
    /// The most connections of clients, WebSockets included. If all are in use, a new one evicts the connection that
    /// has been idle longest; if none is idle, it waits. Defaults to 4,096.
    pub max_connections: usize,
    /// The most connections of one client; a further one closes at once. A client is the address of the peer, or in
    /// IPv6 its network of `client_ip.ipv6_prefix`. Loopback addresses and those of `client_ip.trust` have no such
    /// limit. Defaults to `None`: a 32nd of `max_connections`, at least 8. [`usize::MAX`] is no limit; 0 counts as 1.
    pub max_connections_per_client: Option<usize>,
    /// The longest time from the last part of the request to the begin of the response. Defaults to 60 seconds.
    pub timeout: Duration,
    /// The longest silence in both directions of a WebSocket, or of an exchange whose response has begun.
    /// [`Duration::MAX`] is no limit. Defaults to an hour.
    pub idle_timeout: Duration,
    /// How long the gateway accepts new requests after SIGTERM, so that callers can notice. Defaults to 5 seconds.
    pub drain: Duration,
    /// The address of metrics and probes. Defaults to none: no listener.
    pub http: Option<SocketAddr>,
    /// The admin service. Defaults to none.
    pub operators: OperatorSettings,
}

impl Settings {
    /// The settings with these rule files, this upstream and all defaults.
    pub fn new(rules: Vec<PathBuf>, upstream: Upstream) -> Self {
        Self {
            rules,
            watch: false,
            upstream,
            upstream_tls: ClientTls::default(),
            upstream_host: UpstreamHost::default(),
            upstream_http: UpstreamHttp::default(),
            denied_page: None,
            listen: SocketAddr::from(([0, 0, 0, 0], 8000)),
            tls: None,
            store: StoreSettings::new(DEFAULT_DEADLINE),
            max_body: None,
            max_in_flight: 1024,
            max_connections: connections::MAX_CONNECTIONS,
            max_connections_per_client: None,
            timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60 * 60),
            drain: Duration::from_secs(5),
            http: None,
            operators: OperatorSettings::default(),
        }
    }

    pub(crate) fn max_body(&self) -> u64 {
        self.max_body.unwrap_or(u64::MAX)
    }

    /// Reads the rules, and makes the store for their counts.
    pub(crate) fn rules(&self) -> Result<(Rules, Store), ServeError> {
        let redis = self.store.connect()?;
        let builder = redis
            .iter()
            .cloned()
            .fold(Rules::builder(), RulesBuilder::store);
        let states = self.store.state.iter();
        let builder = states.fold(builder, RulesBuilder::restore_or_new);
        let rules = builder
            .accept_in_flight(true)
            .accept_spend(true)
            .read_all(&self.rules)
            .map_err(|error| fault("the rules cannot be used", &error))?;
        let store = match (redis, rules.local_store()) {
            (Some(redis), _) => Store::Redis(redis),
            (None, Some(local)) => Store::Local(local.clone()),
            (None, None) => unreachable!("without Redis rules count in this process"),
        };
        Ok((rules, store))
    }

    /// The most connections of one client; `None` is no limit.
    pub(crate) fn connections_per_client(&self) -> Option<NonZeroUsize> {
        let share = (self.max_connections / 32).max(8);
        let most = self.max_connections_per_client.unwrap_or(share);
        (most < usize::MAX).then(|| NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN))
    }

    /// The files that are read again.
    pub(crate) fn watched(&self) -> Vec<WatchedPath> {
        let paths = self.rules.iter().chain(&self.denied_page);
        paths.map(|path| (path.clone(), FilesOf::Rules)).collect()
    }
}

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
    pub(crate) const fn authority(&self) -> &Authority {
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
    pub(crate) fn target(&self, authority: Authority, path: Option<PathAndQuery>) -> Option<Uri> {
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme());
        parts.authority = Some(authority);
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        Uri::from_parts(parts).ok()
    }
}

impl Upstream {
    /// The name that the upstream's certificate must have; `None` for an upstream without TLS.
    ///
    /// # Errors
    ///
    /// When the name is no name, or without TLS one of these settings.
    pub(crate) fn server_name(
        &self,
        tls: &ClientTls,
    ) -> Result<Option<ServerName<'static>>, ServeError> {
        if !self.is_tls {
            let has_any =
                tls.authority.is_some() || tls.certificate.is_some() || tls.server_name.is_some();
            return if has_any {
                Err(ServeError(format!(
                    "--upstream-ca, --upstream-cert, --upstream-key and --upstream-name need an upstream of https://, \
                     and --upstream is {self}"
                )))
            } else {
                Ok(None)
            };
        }
        let (option, name) = match &tls.server_name {
            Some(name) => ("--upstream-name", name.as_str()),
            None => ("--upstream", self.authority.host()),
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
    /// The upstream's own: host and port of its address, with the host replaced by [`ClientTls::server_name`] if that is
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
    pub(crate) fn own(
        self,
        upstream: &Upstream,
        tls: &ClientTls,
    ) -> Result<Option<Authority>, ServeError> {
        let authority = &upstream.authority;
        match (self, &tls.server_name) {
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
