//! `serve`: Envoy's rate limit service.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use http::HeaderName;
use ipnet::IpNet;
use tower_ratelimit_envoy::{
    HeaderSet, OnFailure,
    decide::Modes,
    rlqs::RlqsSettings,
    serve::{self, Settings},
    xds::ControlPlane,
};
use tower_ratelimit_service::ClientTls;

use crate::{
    common_options::{Drain, Files, Operators, Redis, Tls, address, time},
    service_log::{Log, run},
};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Rule files of Envoy's rate limit service, or directories of *.yaml, *.yml and *.json.
    #[arg(required_unless_present_any = ["auth_rules", "xds"], value_delimiter = ',')]
    rules: Vec<PathBuf>,
    /// Rule files of tower-ratelimit, as for `check`: /v1/auth decides by them for nginx, Caddy and
    /// Traefik.
    #[arg(
        long,
        help_heading = "Rules",
        value_name = "FILES",
        value_delimiter = ','
    )]
    auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may use /v1/auth.
    #[arg(
        long,
        help_heading = "Rules",
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "127.0.0.0/8,::1/128"
    )]
    trust: Vec<IpNet>,
    /// Allows a domain in several files.
    #[arg(long, help_heading = "Rules")]
    merge_domains: bool,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    xds: Xds,
    #[command(flatten)]
    rlqs: Rlqs,
    /// The address of the gRPC service.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "127.0.0.1:8081"
    )]
    grpc: SocketAddr,
    /// A Unix socket for the gRPC service, which replaces --grpc.
    #[arg(long, help_heading = "Listeners", value_name = "PATH")]
    grpc_uds: Option<PathBuf>,
    /// The maximum age of a gRPC connection, plus or minus a tenth; its caller then connects again.
    /// 0 is none.
    #[arg(long, help_heading = "Listeners", value_name = "TIME", default_value = "24h", value_parser = time)]
    grpc_max_age: Duration,
    /// The address of the HTTP service: /v1/check, /v1/auth, /json, /metrics, and the probes
    /// /healthz and /readyz.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "127.0.0.1:8080"
    )]
    http: SocketAddr,
    #[command(flatten)]
    operators: Operators,
    #[command(flatten)]
    tls: Tls,
    /// Uses TLS for HTTP as well.
    #[arg(long, help_heading = "TLS", requires = "tls_cert")]
    http_tls: bool,
    #[command(flatten)]
    redis: Redis,
    /// The policy while Redis does not respond.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "HOW",
        default_value = "local"
    )]
    on_failure: Failure,
    /// The number of keys to count without Redis; a new key then evicts the one that has used the
    /// least.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "COUNT",
        default_value_t = 262_144
    )]
    max_keys: usize,
    /// A file with a secret of at least 32 characters, the same for all instances that count together:
    /// each then accepts the reservations of all, also after a restart. Only with --redis or --state.
    /// Default: each process accepts its own.
    #[arg(long, help_heading = "Counts", value_name = "FILE")]
    reservation_key_file: Option<PathBuf>,
    #[command(flatten)]
    drain: Drain,
    #[command(flatten)]
    responses: Responses,
    #[command(flatten)]
    log: Log,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Answers to Envoy")]
struct Responses {
    /// Header fields that Envoy adds to its responses: retry-after, draft11, legacy, envoy.
    /// Default: none.
    #[arg(long, value_name = "SETS", value_delimiter = ',')]
    rls_headers: Vec<HeaderSet>,
    /// The body of Envoy's response to a denied client.
    #[arg(long, value_name = "BODY", default_value = "empty")]
    rls_body: DeniedBody,
    /// Lets all requests pass; their statuses still report exceeded limits.
    #[arg(long)]
    shadow: bool,
    /// Denies a request only when all of its limits are exceeded, as if each had `quota_mode`.
    #[arg(long)]
    quota: bool,
    /// The requests that are charged.
    #[arg(long, value_name = "WHICH", default_value = "always")]
    charge: Charged,
    /// Adds dynamic metadata to responses: the request, and the `metadata` of the descriptors that
    /// passed.
    #[arg(long)]
    metadata: bool,
}

impl Responses {
    fn modes(self) -> Modes {
        Modes::default()
            .shadow(self.shadow)
            .quota(self.quota)
            .metadata(self.metadata)
            .charge_admitted(self.charge == Charged::Admitted)
            .headers(self.rls_headers)
            .problem_body(self.rls_body == DeniedBody::Problem)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Failure {
    /// This process counts alone.
    Local,
    /// All requests pass.
    Allow,
    /// No decision: failure_mode_deny of Envoy applies.
    Deny,
}

impl Failure {
    fn policy(self) -> OnFailure {
        match self {
            Self::Local => OnFailure::local(),
            Self::Allow => OnFailure::allow(),
            Self::Deny => OnFailure::deny(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeniedBody {
    /// An empty body, as from Envoy's reference service.
    Empty,
    /// A problem document. Envoy sends it to gRPC clients as their message.
    Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Charged {
    /// All: each descriptor counts independently of the others, as in Envoy's reference service.
    Always,
    /// Only those that pass.
    Admitted,
}

/// Serves until a signal stops it.
///
/// # Errors
///
/// Wrong arguments or files.
pub(crate) fn serve(serve: Serve) -> Result<(), String> {
    let (log, settings) = settings(serve);
    log.begin();
    run(serve::serve(settings))
}

fn settings(serve: Serve) -> (Log, Settings) {
    let mut settings = Settings::new(serve.rules);
    settings.auth_rules = serve.auth_rules;
    (settings.xds, settings.rlqs) = (serve.xds.control_plane(), serve.rlqs.settings());
    settings.trust = serve.trust;
    (settings.merge_domains, settings.watch) = (serve.merge_domains, serve.files.watch);
    settings.grpc = serve.grpc;
    settings.grpc_uds = serve.grpc_uds;
    settings.grpc_max_age = serve.grpc_max_age;
    settings.http = serve.http;
    settings.operators = serve.operators.settings();
    settings.tls = serve.tls.files();
    settings.http_tls = serve.http_tls;
    serve.redis.set(&mut settings.store);
    settings.on_failure = serve.on_failure.policy();
    settings.max_keys = serve.max_keys;
    settings.reservation_key_file = serve.reservation_key_file;
    settings.drain = serve.drain.drain;
    settings.modes = serve.responses.modes();
    (serve.log, settings)
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Control plane")]
struct Xds {
    /// Takes the limits from the control plane at this URL, such as http://10.0.0.7:18000 or
    /// https://envoy-gateway:18001, and not from files.
    #[arg(long, value_name = "URL", value_parser = url, conflicts_with_all = ["rules", "auth_rules", "watch"])]
    xds: Option<Url>,
    /// The name under which the control plane knows this service.
    #[arg(long, value_name = "ID", default_value = "default")]
    xds_node: String,
    /// Authorities of the control plane, in PEM. Default: those of the system. These files are read
    /// for each connection.
    #[arg(long, value_name = "FILE", requires = "xds")]
    xds_ca: Option<PathBuf>,
    /// The certificate that this service presents to the control plane, in PEM.
    #[arg(long, value_name = "FILE", requires = "xds_key")]
    xds_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "xds_cert")]
    xds_key: Option<PathBuf>,
    /// The name in the control plane's certificate. Default: the host of the URL.
    #[arg(long, value_name = "NAME", requires = "xds")]
    xds_server_name: Option<String>,
    /// The most bytes of a set of limits.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    xds_max_message_bytes: usize,
    /// Starts without limits; until they arrive, decisions are unavailable. Default: nothing
    /// listens until then.
    #[arg(long, requires = "xds")]
    xds_force_start: bool,
}

/// The URL of a control plane.
#[derive(Debug, Clone)]
struct Url {
    address: String,
    is_encrypted: bool,
}

fn url(text: &str) -> Result<Url, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let address = rest.strip_suffix('/').unwrap_or(rest);
    let port = address
        .rsplit_once(':')
        .map(|(_, port)| port.parse::<u16>());
    let is_encrypted = match scheme {
        "http" => Some(false),
        "https" => Some(true),
        _ => None,
    };
    let is_address = matches!(port, Some(Ok(_))) && !address.contains(['/', '@', '?', '#']);
    is_encrypted
        .filter(|_| is_address)
        .map(|is_encrypted| Url {
            address: address.to_owned(),
            is_encrypted,
        })
        .ok_or_else(|| "a control plane is such as http://10.0.0.7:18000".to_owned())
}

impl Xds {
    fn control_plane(self) -> Option<ControlPlane> {
        let Url {
            address,
            is_encrypted,
        } = self.xds?;
        let mut plane = ControlPlane::new(address);
        plane.tls = is_encrypted.then(|| {
            let mut tls = ClientTls::default();
            tls.authority = self.xds_ca;
            tls.certificate = self.xds_cert.zip(self.xds_key);
            tls.server_name = self.xds_server_name;
            tls
        });
        plane.node_id = self.xds_node;
        plane.max_message_bytes = self.xds_max_message_bytes;
        plane.starts_without_limits = self.xds_force_start;
        Some(plane)
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Shares for Envoy")]
struct Rlqs {
    /// Assigns shares of limits to Envoys with the filter rate_limit_quota, which then decide by
    /// themselves. With --redis, instances divide limits together.
    #[arg(long)]
    rlqs: bool,
    /// How long a share lasts without a further message: whole seconds, at least 10. Envoy reports
    /// every 5 seconds. Instances with one Redis need the same.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = ttl)]
    rlqs_ttl: Duration,
    /// How long a bucket without requests is kept.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    rlqs_idle: Duration,
    /// Requests in buckets that get no share: beyond a maximum, or with pairs that fit too many
    /// orders.
    #[arg(long, value_name = "HOW", default_value = "deny")]
    rlqs_excess: Excess,
    /// The header of streams with the Envoy's name, so that each keeps its shares when it
    /// reconnects: initial_metadata of Envoy's rlqs_server. Otherwise an Envoy is the address of its
    /// connection.
    #[arg(long, value_name = "NAME", value_parser = header)]
    rlqs_client_header: Option<HeaderName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Excess {
    /// All pass.
    Allow,
    /// None pass.
    Deny,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = time(text)?;
    let is_whole = ttl.subsec_nanos() == 0 && (10..=3_600).contains(&ttl.as_secs());
    is_whole
        .then_some(ttl)
        .ok_or_else(|| "a share lasts for whole seconds, from 10s to 1h".to_owned())
}

/// Accepts what gRPC sends as text metadata.
fn header(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    let is_text = |name: &HeaderName| {
        let name = name.as_str();
        !name.ends_with("-bin") && !name.starts_with("grpc-")
    };
    name.filter(is_text).ok_or_else(|| {
        "a header's name is letters, digits and -, begins not with grpc- and ends not with -bin"
            .to_owned()
    })
}

impl Rlqs {
    fn settings(self) -> Option<RlqsSettings> {
        let mut settings = RlqsSettings::default();
        (settings.ttl, settings.idle) = (self.rlqs_ttl, self.rlqs_idle);
        settings.excess_passes = self.rlqs_excess == Excess::Allow;
        settings.client_header = self.rlqs_client_header;
        self.rlqs.then_some(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_a_port() {
        let parsed = url("https://envoy-gateway:18001/").expect("a URL");
        assert_eq!(parsed.address, "envoy-gateway:18001");
        assert!(parsed.is_encrypted);
        assert!(!url("http://[::1]:18000").expect("a URL").is_encrypted);
        for wrong in [
            "",
            "envoy-gateway:18001",
            "http://envoy-gateway",
            "grpc://envoy-gateway:18001",
            "http://eve@envoy-gateway:18001",
            "http://envoy-gateway:18001/limits",
            "http://envoy-gateway:x",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_last_for_whole_seconds() {
        assert_eq!(ttl("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(ttl("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["9s", "10500ms", "2h", "x"] {
            assert!(ttl(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_are_named_by_a_header_of_text() {
        assert_eq!(header("X-Envoy"), Ok(HeaderName::from_static("x-envoy")));
        for wrong in ["", "a b", "ä", "x:", "x-bin", "grpc-x"] {
            let error = header(wrong).expect_err(wrong);
            assert!(error.contains("letters, digits"), "{error}");
        }
    }
}
