//! The settings of the service, and the files that they name.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

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
    errors::{ServeError, fault},
    rule_file_polling::{FilesOf, WatchedPath},
    store::StoreSettings,
    tls::TlsFiles,
};

/// The default deadline of Redis: less than the 20 milliseconds that Envoy waits by default.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(15);

/// The settings of [`serve`](crate::serve::serve).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Rule files of Envoy's reference service, and directories of them. Without any, the gRPC service and `/json`
    /// respond that limits are unavailable.
    pub rules: Vec<PathBuf>,
    /// The files of directories to read. Defaults to [`FilesOf::Rules`].
    pub files: FilesOf,
    /// The control plane from which limits come, and then from no files. Defaults to none.
    pub xds: Option<ControlPlane>,
    /// The file with the secret, of at least 32 characters, that instances with the same counts share, so that each
    /// accepts the reservations of all. Only with Redis or `state`. Defaults to none: each process accepts its own.
    pub reservation_key_file: Option<PathBuf>,
    /// The service that assigns shares of limits; with Redis, those of all instances. Defaults to none.
    pub rlqs: Option<RlqsSettings>,
    /// Rule files of this crate, for `/v1/auth`. Defaults to none: there is no such route.
    pub auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may use `/v1/auth`. Defaults to the loopback networks.
    pub trust: Vec<IpNet>,
    /// Whether several files may have parts of one domain. Defaults to false.
    pub merge_domains: bool,
    /// Whether changed files are read again. Defaults to false: SIGHUP reads them.
    pub watch: bool,
    /// The address of the gRPC service. Defaults to 127.0.0.1:8081.
    pub grpc: SocketAddr,
    /// A Unix socket for the gRPC service, which replaces the address. Defaults to none.
    pub grpc_uds: Option<PathBuf>,
    /// The maximum age of a gRPC connection, plus or minus a tenth; 0 is none. Callers then connect again, maybe to
    /// another instance. Defaults to 24 hours.
    pub grpc_max_age: Duration,
    /// The address of the HTTP service. Defaults to 127.0.0.1:8080.
    pub http: SocketAddr,
    /// The certificate and the key of the gRPC service. Defaults to none: no TLS.
    pub tls: Option<TlsFiles>,
    /// Whether the HTTP service uses the same TLS files. Defaults to false.
    pub http_tls: bool,
    /// Where the counts are. The deadline of Redis defaults to [`DEFAULT_DEADLINE`].
    pub store: StoreSettings,
    /// The policy while Redis does not respond. Defaults to [`OnFailure::local`].
    pub on_failure: OnFailure,
    /// The name of the setting of `on_failure` in the log. Defaults to `--on-failure`.
    pub on_failure_setting: &'static str,
    /// The most keys counted in this process, without Redis. Defaults to 262,144.
    pub max_keys: usize,
    /// How long the service accepts requests after SIGTERM, while the probes report not ready. Defaults to 5 seconds.
    pub drain: Duration,
    /// How requests are charged and answered, for all rules.
    pub modes: Modes,
    /// A further address for metrics, and the path of its route. Defaults to none: the HTTP service has `/metrics`.
    pub prometheus: Option<(SocketAddr, String)>,
    /// The admin service. Defaults to none.
    pub operators: OperatorSettings,
}

/// The networks that are trusted by default.
fn loopback() -> Vec<IpNet> {
    let networks = ["127.0.0.0/8", "::1/128"].iter();
    networks.flat_map(|network| network.parse()).collect()
}

impl Settings {
    /// The settings with these rule files and all defaults.
    pub fn new(rules: Vec<PathBuf>) -> Self {
        let here = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            rules,
            files: FilesOf::default(),
            xds: None,
            reservation_key_file: None,
            rlqs: None,
            auth_rules: Vec::new(),
            trust: loopback(),
            merge_domains: false,
            watch: false,
            grpc: here(8081),
            grpc_uds: None,
            grpc_max_age: Duration::from_secs(24 * 60 * 60),
            http: here(8080),
            tls: None,
            http_tls: false,
            store: StoreSettings::new(DEFAULT_DEADLINE),
            on_failure: OnFailure::local(),
            on_failure_setting: "--on-failure",
            max_keys: 262_144,
            drain: Duration::from_secs(5),
            modes: Modes::default(),
            prometheus: None,
            operators: OperatorSettings::default(),
        }
    }

    /// Reads the limits of descriptors; `None` without files.
    pub(crate) fn rules(&self) -> Result<Option<Rules>, ServeError> {
        let rules = self.read_rules();
        rules.map_err(|error| fault("the rules cannot be used", &error))
    }

    /// [`rules`](Self::rules) with the faults of the files.
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
        !self.rules.is_empty() || self.xds.is_some()
    }
}
