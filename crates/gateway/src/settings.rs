//! The settings of a gateway, and the address of its upstream.

use std::{fmt, net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum};
use http::{
    Uri,
    uri::{Authority, Parts, PathAndQuery, Scheme},
};
use tokio_rustls::rustls::pki_types::ServerName;
use tower_ratelimit::rules::{Rules, RulesBuilder};

use tower_ratelimit_service::{
    OperatorSettings,
    connections::MAX_CONNECTIONS,
    errors::{ServeError, fault},
    options::{OrOff, address, address_or_off, defaults, time},
    rule_file_polling::{FilesOf, WatchedPath},
    store::{Store, StoreSettings},
    tls::{PemFiles, TlsFiles},
};

/// The default deadline of Redis, the library's.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The settings of [`serve`](crate::serve).
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct Settings {
    /// Rule files, or directories of *.yaml, *.yml, *.json and *.toml, as `check` takes them.
    #[arg(required = true, value_delimiter = ',')]
    pub rules: Vec<PathBuf>,
    /// Reads changed files again, without SIGHUP.
    #[arg(long, help_heading = "Rules")]
    pub watch: bool,
    /// The server that receives the requests, such as http://127.0.0.1:8080, or https://api.internal
    /// by TLS.
    #[allow(rustdoc::bare_urls, reason = "the text of --help")]
    #[arg(long, help_heading = "Rules", value_name = "URL")]
    pub upstream: Upstream,
    /// How the upstream is reached.
    #[command(flatten)]
    pub to_upstream: ToUpstream,
    /// The address of the gateway.
    #[arg(long, help_heading = "Listeners", value_name = "ADDRESS", value_parser = address)]
    #[arg(default_value = "0.0.0.0:8000")]
    pub listen: SocketAddr,
    /// The certificate and the key for TLS. Defaults to none: no TLS.
    #[command(flatten)]
    pub tls: Option<TlsFiles>,
    /// Where the counts are. The deadline of Redis defaults to 50 milliseconds.
    #[command(flatten)]
    pub store: StoreSettings,
    /// A page in HTML, of at most 256 KiB, for denied requests of browsers; {retry_after} in it is
    /// replaced by the seconds to wait. Default: a problem document in JSON, as programs get it.
    #[arg(long, help_heading = "Rules", value_name = "FILE")]
    pub denied_page: Option<PathBuf>,
    /// The limits of every request.
    #[command(flatten)]
    pub limits: RequestLimits,
    /// How long new requests are accepted after SIGTERM at most, so that callers can notice; less
    /// if no connection has been open for a second.
    #[arg(long, help_heading = "Listeners", value_name = "TIME")]
    #[arg(default_value = "5s", value_parser = time)]
    pub drain: Duration,
    /// The address of /metrics and the probes /healthz and /readyz, without TLS; off is no
    /// listener.
    #[arg(long, help_heading = "Listeners", value_name = "ADDRESS")]
    #[arg(default_value = "127.0.0.1:6071", value_parser = address_or_off)]
    pub http: OrOff,
    /// The admin service.
    #[command(flatten)]
    pub operators: OperatorSettings,
}

/// The limits of every request.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits of every request")]
#[non_exhaustive]
pub struct RequestLimits {
    /// The longest body of a request, in bytes, or with a unit as in 64k, 10m, 1g; a longer one
    /// gets 413. Default: no limit.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_body: Option<u64>,
    /// The most concurrent requests, and the most concurrent WebSockets; one more gets 503.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub max_in_flight: usize,
    /// The most connections of clients. If all are in use, a new one evicts the connection that has
    /// been idle longest.
    #[arg(long, value_name = "COUNT", default_value_t = MAX_CONNECTIONS)]
    pub max_connections: usize,
    /// The most connections of one client, by its address; a further one closes at once. Loopback
    /// addresses and the proxies of client_ip.trust have no such limit; off removes it. Default: a
    /// 32nd of --max-connections, at least 8.
    #[arg(long, value_name = "COUNT", value_parser = count_or_off)]
    pub max_connections_per_client: Option<usize>,
    /// The longest time until the upstream's response begins; then the client gets 504.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub timeout: Duration,
    /// The longest silence in both directions of a WebSocket, or of an exchange whose response has
    /// begun; 0 is no limit.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    pub idle_timeout: Duration,
}

/// How the upstream is reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Upstream")]
#[non_exhaustive]
pub struct ToUpstream {
    /// Authorities, in PEM: one of them has to have signed the certificate of an https:// upstream.
    /// Default: those of the system. Changed files are read again.
    #[arg(long, value_name = "FILE")]
    pub upstream_ca: Option<PathBuf>,
    /// The gateway's certificate for the upstream, in PEM, followed by the intermediate ones.
    #[arg(long, value_name = "FILE", requires = "upstream_key")]
    pub upstream_cert: Option<PathBuf>,
    /// The key of --upstream-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "upstream_cert")]
    pub upstream_key: Option<PathBuf>,
    /// The name in the upstream's certificate, and in SNI. Default: the host of --upstream.
    #[arg(long, value_name = "NAME")]
    pub upstream_name: Option<String>,
    /// The Host that the upstream receives: keep is the client's, upstream is that of --upstream, or
    /// --upstream-name.
    #[arg(long, value_name = "keep|upstream", default_value = "keep")]
    #[arg(hide_possible_values = true)]
    pub upstream_host: UpstreamHost,
    /// The version of HTTP for the upstream: auto is the one that an https:// upstream selects, and
    /// without TLS HTTP/1.1, and HTTP/2 for gRPC. WebSockets use HTTP/1.1.
    #[arg(long, value_name = "auto|1|2", default_value = "auto")]
    #[arg(hide_possible_values = true)]
    pub upstream_http: UpstreamHttp,
}

/// A number of bytes; `k`, `m` and `g` are powers of 1,024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err("a size is a number of bytes, or one with k, m or g".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    let bytes = number.checked_mul(1 << shift);
    bytes.ok_or_else(|| "it is too large".to_owned())
}

/// A number of at least 1; `off` is no limit.
fn count_or_off(text: &str) -> Result<usize, String> {
    match text {
        "off" => Ok(usize::MAX),
        text => match text.parse() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err("it is a number from 1 on, or off".to_owned()),
        },
    }
}

impl Settings {
    /// The settings with these rule files and this upstream, without metrics, probes and the admin service.
    pub fn new(rules: Vec<PathBuf>, upstream: Upstream) -> Self {
        let defaults = defaults(&["rules", "--upstream", &upstream.to_string()]);
        Self {
            rules,
            upstream,
            http: None,
            operators: OperatorSettings::default(),
            ..defaults
        }
    }

    /// The longest silence of an exchange.
    pub(crate) fn idle_timeout(&self) -> Duration {
        match self.limits.idle_timeout {
            Duration::ZERO => Duration::MAX,
            time => time,
        }
    }

    pub(crate) fn max_body(&self) -> u64 {
        self.limits.max_body.unwrap_or(u64::MAX)
    }

    /// Reads the rules, and makes the store for their counts.
    pub(crate) fn rules(&self) -> Result<(Rules, Store), ServeError> {
        let redis = self.store.connect(DEFAULT_DEADLINE)?;
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
        let share = (self.limits.max_connections / 32).max(8);
        let most = self.limits.max_connections_per_client.unwrap_or(share);
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
    pub(crate) authority: Authority,
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

impl ToUpstream {
    /// The files of TLS.
    pub(crate) fn files(&self) -> PemFiles {
        let paths = [&self.upstream_cert, &self.upstream_key, &self.upstream_ca];
        PemFiles {
            paths: paths.map(Clone::clone),
            names: ["--upstream-cert", "--upstream-key", "--upstream-ca"],
        }
    }

    /// The name that the upstream's certificate must have; `None` for an upstream without TLS.
    ///
    /// # Errors
    ///
    /// When the name is no name, or without TLS one of these settings.
    pub(crate) fn server_name(
        &self,
        upstream: &Upstream,
    ) -> Result<Option<ServerName<'static>>, ServeError> {
        if !upstream.is_tls {
            let files = [&self.upstream_ca, &self.upstream_cert];
            let has_any = files.iter().any(|file| file.is_some()) || self.upstream_name.is_some();
            return if has_any {
                Err(ServeError(format!(
                    "--upstream-ca, --upstream-cert, --upstream-key and --upstream-name need an upstream of https://, \
                     and --upstream is {upstream}"
                )))
            } else {
                Ok(None)
            };
        }
        let (option, name) = match &self.upstream_name {
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

    /// The upstream's own host, unless the client's is kept.
    ///
    /// # Errors
    ///
    /// When the name cannot stand in a request.
    pub(crate) fn own_host(&self, upstream: &Upstream) -> Result<Option<Authority>, ServeError> {
        let authority = &upstream.authority;
        match (self.upstream_host, &self.upstream_name) {
            (UpstreamHost::Keep, _) => Ok(None),
            (UpstreamHost::Upstream, None) => Ok(Some(authority.clone())),
            (UpstreamHost::Upstream, Some(name)) => {
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

/// The host that the upstream receives, in `Host` or `:authority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
#[non_exhaustive]
pub enum UpstreamHost {
    /// The client's.
    #[default]
    Keep,
    /// The upstream's own: host and port of its address, with the host replaced by [`ToUpstream::upstream_name`] if that is
    /// set.
    Upstream,
}

/// The versions of HTTP for the upstream. WebSockets use HTTP/1.1 in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
#[non_exhaustive]
pub enum UpstreamHttp {
    /// By TLS the version that the upstream selects by ALPN. Without TLS HTTP/1.1, and HTTP/2 for gRPC.
    #[default]
    Auto,
    /// HTTP/1.1.
    #[value(name = "1")]
    Http1,
    /// HTTP/2, without TLS too.
    #[value(name = "2")]
    Http2,
}

#[cfg(test)]
mod tests {
    use super::{count_or_off, size};

    #[test]
    fn count_is_at_least_one_or_off() {
        assert_eq!(count_or_off("1"), Ok(1));
        assert_eq!(count_or_off("off"), Ok(usize::MAX));
        for wrong in ["", "0", "-1", "none", "1k"] {
            assert!(count_or_off(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_powers_of_1024() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("1000"), Ok(1000));
        assert_eq!(size("64k"), Ok(64 << 10));
        assert_eq!(size("10M"), Ok(10 << 20));
        assert_eq!(size("1g"), Ok(1 << 30));
        for wrong in ["", "k", "-1", "1.5m", "10mb", "10 m", "99999999999g"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
