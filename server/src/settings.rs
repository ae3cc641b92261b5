//! The settings of the service, and the files that they name.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
#[cfg(doc)]
use tower_ratelimit::RedisStore;
use tower_ratelimit::{
    OnFailure,
    rules::{Format, RulesError},
};
use tracing::info;

use crate::{
    decide::Modes,
    error::{ServeError, fault},
    lyft::{FilesOf, Rules},
    store::Store,
    tls::TlsFiles,
};

/// How long Redis may take by default: less than the 20 milliseconds that Envoy waits by default.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(15);

/// The settings of [`serve`](crate::serve::serve).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Rule files of Envoy's reference service, and directories of them. If there is none, the gRPC service and `/json`
    /// answer that limits are unavailable.
    pub rules: Vec<PathBuf>,
    /// Which files of those directories are read. Defaults to [`FilesOf::Rules`].
    pub files: FilesOf,
    /// Rule files of this crate, by which `/v1/auth` answers. Defaults to none: there is no such route.
    pub auth_rules: Vec<PathBuf>,
    /// The networks of the proxies that may ask `/v1/auth`. Defaults to the loopback ones.
    pub trust: Vec<IpNet>,
    /// Whether a domain may stand in several files. Defaults to false.
    pub merge_domains: bool,
    /// Whether the files are read again when they change. Defaults to false: only when the process is told to.
    pub watch: bool,
    /// Where the gRPC service listens. Defaults to 127.0.0.1:8081.
    pub grpc: SocketAddr,
    /// A socket in the file system on which the gRPC service listens in place of that address. Defaults to none.
    pub grpc_uds: Option<PathBuf>,
    /// How old a connection of gRPC may become, a tenth more or less; callers then make a new one, which may lead to
    /// another instance. Defaults to 24 hours.
    pub grpc_max_age: Duration,
    /// Where the HTTP service listens. Defaults to 127.0.0.1:8080.
    pub http: SocketAddr,
    /// The certificate and the key by which the gRPC service speaks TLS. Defaults to none: no TLS.
    pub tls: Option<TlsFiles>,
    /// Whether the HTTP service speaks TLS by the same files. Defaults to false.
    pub http_tls: bool,
    /// The address of Redis. Defaults to none: this process counts by itself.
    pub redis: Option<String>,
    /// The file with the password of Redis, for an address that has none. Defaults to none.
    pub redis_password_file: Option<PathBuf>,
    /// Whether the service is only ready while Redis answers. Defaults to false: it goes on by `on_failure`.
    pub ready_needs_store: bool,
    /// The prefix of all keys in Redis. Defaults to that of [`RedisStore`].
    pub redis_prefix: Option<String>,
    /// How long Redis may take for a decision. Defaults to [`DEFAULT_DEADLINE`].
    pub redis_deadline: Duration,
    /// The policy while Redis does not answer. Defaults to [`OnFailure::local`].
    pub on_failure: OnFailure,
    /// How many keys are counted in this process, where there is no Redis. Defaults to 262,144.
    pub max_keys: usize,
    /// How long requests are still taken after SIGTERM, while the probes say that the service is not ready. Defaults to
    /// 5 seconds.
    pub drain: Duration,
    /// How requests are charged and answered, whatever rules they meet.
    pub modes: Modes,
    /// Where the admin service listens: on a loopback address, unless there is a token. Defaults to none: there is
    /// no such service.
    pub admin: Option<SocketAddr>,
    /// The file with the token that the admin service asks for, of at least 32 characters. Defaults to none.
    pub admin_token_file: Option<PathBuf>,
    /// The hosts by which the admin service may be asked, beside its address. Defaults to none.
    pub admin_hosts: Vec<String>,
    /// Whether the admin service and the log show keys, which are addresses and the like. Defaults to false: they
    /// show digests.
    pub reveal_keys: bool,
}

impl Settings {
    /// The settings with these rule files and all defaults.
    #[must_use]
    pub fn new(rules: Vec<PathBuf>) -> Self {
        let here = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            rules,
            files: FilesOf::default(),
            auth_rules: Vec::new(),
            trust: ["127.0.0.0/8", "::1/128"]
                .iter()
                .flat_map(|network| network.parse())
                .collect(),
            merge_domains: false,
            watch: false,
            grpc: here(8081),
            grpc_uds: None,
            grpc_max_age: Duration::from_secs(24 * 60 * 60),
            http: here(8080),
            tls: None,
            http_tls: false,
            redis: None,
            redis_password_file: None,
            ready_needs_store: false,
            redis_prefix: None,
            redis_deadline: DEFAULT_DEADLINE,
            on_failure: OnFailure::local(),
            max_keys: 262_144,
            drain: Duration::from_secs(5),
            modes: Modes::default(),
            admin: None,
            admin_token_file: None,
            admin_hosts: Vec::new(),
            reveal_keys: false,
        }
    }

    /// The limits of descriptors; `None` without files of them.
    pub(crate) fn rules(&self) -> Result<Option<Rules>, ServeError> {
        let rules = self.read_rules();
        rules.map_err(|error| fault("the rules cannot be used", &error))
    }

    /// As [`rules`](Self::rules), with the faults of the files.
    pub(crate) fn read_rules(&self) -> Result<Option<Rules>, RulesError> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let builder = Rules::builder().merge_domains(self.merge_domains);
        let rules = builder.files(self.files).read(&self.rules)?;
        for other in rules.others() {
            info!("{} is not read", other.display());
        }
        Ok(Some(rules))
    }

    /// The warnings of a text as one of the files of `rules`, or its faults.
    pub(crate) fn check_limits(&self, text: String) -> Result<Vec<String>, String> {
        let builder = Rules::builder().merge_domains(self.merge_domains);
        let rules = builder.parse([("rules", text)]);
        let rules = rules.map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }

    /// The same for one of the files of `auth_rules`.
    pub(crate) fn check_requests(
        &self,
        text: String,
        format: Format,
        store: &Store,
    ) -> Result<Vec<String>, String> {
        let rules = store.request_rules().parse(text, format);
        let rules = rules.map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }
}
