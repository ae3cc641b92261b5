//! The settings of the service, and the files that they name.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use tower_ratelimit::{OnFailure, rules::RulesError};
use tracing::info;

use crate::{
    decide::Modes,
    lyft::{Builder, Rules},
    rlqs::RlqsSettings,
    xds::ControlPlane,
};
use tower_ratelimit_service::{
    OperatorSettings,
    options::{address, defaults, time},
    rule_file_polling::{FilesOf, WatchedPath},
    store::StoreSettings,
    tls::TlsFiles,
};

/// The default deadline of Redis: less than the 20 milliseconds that Envoy waits by default.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(15);

/// The settings of [`serve`](crate::serve::serve).
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct Settings {
    /// Rule files of Envoy's rate limit service, or directories of *.yaml, *.yml and *.json.
    #[arg(required_unless_present_any = ["auth_rules", "xds"], conflicts_with = "xds")]
    #[arg(value_delimiter = ',')]
    pub rules: Vec<PathBuf>,
    /// Rule files of tower-ratelimit, as for `check`: /v1/auth decides by them for nginx, Caddy and
    /// Traefik.
    #[arg(
        long,
        help_heading = "Rules",
        value_name = "FILES",
        conflicts_with = "xds",
        value_delimiter = ','
    )]
    pub auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may use /v1/auth.
    #[arg(
        long,
        help_heading = "Rules",
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "127.0.0.0/8,::1/128"
    )]
    pub trust: Vec<IpNet>,
    /// Allows a domain in several files.
    #[arg(long, help_heading = "Rules")]
    pub merge_domains: bool,
    /// Reads changed files again, without SIGHUP.
    #[arg(long, help_heading = "Rules", conflicts_with = "xds")]
    pub watch: bool,
    /// The files of directories to read. Defaults to [`FilesOf::Rules`].
    #[arg(skip)]
    pub files: FilesOf,
    /// The control plane from which limits come, and then from no files.
    #[command(flatten)]
    pub xds: ControlPlane,
    /// Assigns shares of limits to Envoys with the filter rate_limit_quota, which then decide by
    /// themselves. With --redis, instances divide limits together.
    #[arg(long, help_heading = "Shares for Envoy")]
    pub rlqs: bool,
    /// The service that assigns shares of limits; with Redis, those of all instances.
    #[command(flatten)]
    pub shares: RlqsSettings,
    /// The address of the gRPC service.
    #[arg(long, help_heading = "Listeners", value_name = "ADDRESS", value_parser = address)]
    #[arg(default_value = "127.0.0.1:8081")]
    pub grpc: SocketAddr,
    /// A Unix socket for the gRPC service, which replaces --grpc.
    #[arg(long, help_heading = "Listeners", value_name = "PATH")]
    pub grpc_uds: Option<PathBuf>,
    /// The maximum age of a gRPC connection, plus or minus a tenth; its caller then connects again.
    /// 0 is none.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "TIME",
        default_value = "24h"
    )]
    #[arg(value_parser = time)]
    pub grpc_max_age: Duration,
    /// The address of the HTTP service: /v1/check, /v1/auth, /json, /metrics, and the probes
    /// /healthz and /readyz.
    #[arg(long, help_heading = "Listeners", value_name = "ADDRESS", value_parser = address)]
    #[arg(default_value = "127.0.0.1:8080")]
    pub http: SocketAddr,
    /// A further address for metrics, and the path of its route. Defaults to none: the HTTP service has `/metrics`.
    #[arg(skip)]
    pub prometheus: Option<(SocketAddr, String)>,
    /// The admin service.
    #[command(flatten)]
    pub operators: OperatorSettings,
    /// The certificate and the key of the gRPC service. Defaults to none: no TLS.
    #[command(flatten)]
    pub tls: Option<TlsFiles>,
    /// Uses TLS for HTTP as well.
    #[arg(long, help_heading = "TLS", requires = "tls_cert")]
    pub http_tls: bool,
    /// Where the counts are. The deadline of Redis defaults to [`DEFAULT_DEADLINE`].
    #[command(flatten)]
    pub store: StoreSettings,
    /// The policy while Redis does not respond.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "HOW",
        default_value = "local"
    )]
    pub on_failure: Failure,
    /// The name of the setting of `on_failure` in the log. Defaults to `--on-failure`.
    #[arg(skip = "--on-failure")]
    pub on_failure_setting: &'static str,
    /// The number of keys to count without Redis; a new key then evicts the one that has used the
    /// least.
    #[arg(
        long,
        help_heading = "Counts",
        value_name = "COUNT",
        default_value_t = 262_144
    )]
    pub max_keys: usize,
    /// A file with a secret of at least 32 characters, the same for all instances that count together:
    /// each then accepts the reservations of all, also after a restart. Only with --redis or --state.
    /// Default: each process accepts its own.
    #[arg(long, help_heading = "Counts", value_name = "FILE")]
    pub reservation_key_file: Option<PathBuf>,
    /// How long new requests are accepted after SIGTERM at most, so that callers can notice; less
    /// if no connection has been open for a second.
    #[arg(
        long,
        help_heading = "Listeners",
        value_name = "TIME",
        default_value = "5s"
    )]
    #[arg(value_parser = time)]
    pub drain: Duration,
    /// How requests are charged and answered, for all rules.
    #[command(flatten)]
    pub modes: Modes,
}

/// The policy while Redis does not respond.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[non_exhaustive]
pub enum Failure {
    /// This process counts alone.
    Local,
    /// All requests pass.
    Allow,
    /// No decision: failure_mode_deny of Envoy applies.
    Deny,
}

impl Failure {
    pub(crate) fn policy(self) -> OnFailure {
        match self {
            Self::Local => OnFailure::local(),
            Self::Allow => OnFailure::allow(),
            Self::Deny => OnFailure::deny(),
        }
    }
}

impl Settings {
    /// The settings with these rule files and all defaults, without the admin service.
    pub fn new(rules: Vec<PathBuf>) -> Self {
        Self {
            rules,
            operators: OperatorSettings::default(),
            ..defaults(&["rules"])
        }
    }

    /// The control plane from which limits come, if they do.
    pub(crate) fn control_plane(&self) -> Option<&ControlPlane> {
        Some(&self.xds).filter(|plane| plane.xds.is_some())
    }

    /// Reads the limits of descriptors; `None` without files.
    pub(crate) fn read_rules(&self) -> Result<Option<Rules>, RulesError> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let rules = self.rules_builder().files(self.files).read(&self.rules)?;
        for other in rules.others() {
            info!("{} is not read", other.display());
        }
        Ok(Some(rules))
    }

    /// A reader of limits of descriptors.
    pub(crate) fn rules_builder(&self) -> Builder {
        Rules::builder().merge_domains(self.merge_domains)
    }

    /// The files that are read again, with the kind of files that count in a directory.
    pub(crate) fn watched(&self) -> Vec<WatchedPath> {
        let rules = self.rules.iter().map(|path| (path.clone(), self.files));
        let auth_rules = { self.auth_rules.iter() }.map(|path| (path.clone(), FilesOf::Rules));
        rules.chain(auth_rules).collect()
    }

    /// Whether there are limits of descriptors.
    pub(crate) fn has_limits(&self) -> bool {
        !self.rules.is_empty() || self.control_plane().is_some()
    }
}
