//! `gateway`: a proxy that limits requests.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use tower_ratelimit_gateway::{self as gateway, Settings, Upstream, UpstreamHost, UpstreamHttp};
use tower_ratelimit_service::ClientTls;

use crate::{
    common_options::{Drain, Files, Operators, OrOff, Redis, Tls, address, time},
    service_log::{Log, run},
};

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Rule files, or directories of *.yaml, *.yml, *.json and *.toml, as `check` takes them.
    #[arg(required = true, value_delimiter = ',')]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    files: Files,
    /// The server that receives the requests, such as http://127.0.0.1:8080, or https://api.internal
    /// by TLS.
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    #[command(flatten)]
    to_upstream: ToUpstream,
    /// The address of the gateway.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "0.0.0.0:8000"
    )]
    listen: SocketAddr,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    redis: Redis,
    /// A page in HTML, of at most 256 KiB, for denied requests of browsers; {retry_after} in it is
    /// replaced by the seconds to wait. Default: a problem document in JSON, as programs get it.
    #[arg(long, help_heading = "Rules", value_name = "FILE")]
    denied_page: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    drain: Drain,
    /// The address of /metrics and the probes /healthz and /readyz, without TLS; off is no
    /// listener.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6071"
    )]
    http: OrOff,
    #[command(flatten)]
    operators: Operators,
    #[command(flatten)]
    log: Log,
}

// Without a doc comment, as the options that several services share: clap would take it for that of the command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of every request")]
struct Limits {
    /// The longest body of a request, in bytes, or with a unit as in 64k, 10m, 1g; a longer one
    /// gets 413. Default: no limit.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_body: Option<u64>,
    /// The most concurrent requests, and the most concurrent WebSockets; one more gets 503.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    max_in_flight: usize,
    /// The most connections of clients. If all are in use, a new one evicts the connection that has
    /// been idle longest.
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    max_connections: usize,
    /// The most connections of one client, by its address; a further one closes at once. Loopback
    /// addresses and the proxies of client_ip.trust have no such limit; off removes it. Default: a
    /// 32nd of --max-connections, at least 8.
    #[arg(long, value_name = "COUNT", value_parser = count_or_off)]
    max_connections_per_client: Option<usize>,
    /// The longest time until the upstream's response begins; then the client gets 504.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    timeout: Duration,
    /// The longest silence in both directions of a WebSocket, or of an exchange whose response has
    /// begun; 0 is no limit.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    idle_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Upstream")]
struct ToUpstream {
    /// Authorities, in PEM: one of them has to have signed the certificate of an https:// upstream.
    /// Default: those of the system. Changed files are read again.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// The gateway's certificate for the upstream, in PEM, followed by the intermediate ones.
    #[arg(long, value_name = "FILE", requires = "upstream_key")]
    upstream_cert: Option<PathBuf>,
    /// The key of --upstream-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "upstream_cert")]
    upstream_key: Option<PathBuf>,
    /// The name in the upstream's certificate, and in SNI. Default: the host of --upstream.
    #[arg(long, value_name = "NAME")]
    upstream_name: Option<String>,
    /// The Host that the upstream receives: keep is the client's, upstream is that of --upstream, or
    /// --upstream-name.
    #[arg(long, value_name = "keep|upstream", default_value = "keep")]
    upstream_host: UpstreamHost,
    /// The version of HTTP for the upstream: auto is the one that an https:// upstream selects, and
    /// without TLS HTTP/1.1, and HTTP/2 for gRPC. WebSockets use HTTP/1.1.
    #[arg(long, value_name = "auto|1|2", default_value = "auto")]
    upstream_http: UpstreamHttp,
}

impl ToUpstream {
    fn set(self, settings: &mut Settings) {
        let mut tls = ClientTls::default();
        tls.authority = self.upstream_ca;
        tls.certificate = self.upstream_cert.zip(self.upstream_key);
        tls.server_name = self.upstream_name;
        settings.upstream_tls = tls;
        settings.upstream_host = self.upstream_host;
        settings.upstream_http = self.upstream_http;
    }
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

/// Serves until a signal stops it.
///
/// # Errors
///
/// Wrong arguments or files.
pub(crate) fn gateway(gateway: Gateway) -> Result<(), String> {
    let mut settings = Settings::new(gateway.rules, gateway.upstream);
    gateway.to_upstream.set(&mut settings);
    settings.watch = gateway.files.watch;
    settings.listen = gateway.listen;
    settings.tls = gateway.tls.files();
    gateway.redis.set(&mut settings.store);
    settings.denied_page = gateway.denied_page;
    settings.max_body = gateway.limits.max_body;
    settings.max_in_flight = gateway.limits.max_in_flight;
    settings.max_connections = gateway.limits.max_connections;
    settings.max_connections_per_client = gateway.limits.max_connections_per_client;
    settings.timeout = gateway.limits.timeout;
    settings.idle_timeout = match gateway.limits.idle_timeout {
        Duration::ZERO => Duration::MAX,
        time => time,
    };
    settings.drain = gateway.drain.drain;
    settings.http = gateway.http.0;
    settings.operators = gateway.operators.settings();
    gateway.log.begin();
    run(gateway::serve(settings))
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
