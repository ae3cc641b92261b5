//! The settings of the service, and the files that they name.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use tower_ratelimit::{
    OnFailure,
    rules::{Format, RulesError},
};
use tracing::info;

use crate::{
    decide::Modes,
    errors::{ServeError, counted, fault},
    lyft::{Builder, FilesOf, Rules},
    rlqs::RlqsSettings,
    store::{Store, StoreSettings},
    tls::TlsFiles,
    xds::ControlPlane,
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
    /// Whether these are the settings of a gateway, whose rules may follow responses.
    pub(crate) is_gateway: bool,
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

/// The admin service, and what operators see.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OperatorSettings {
    /// The address of the admin service: a loopback address, unless there is a token. Defaults to none: no such
    /// service.
    pub admin: Option<SocketAddr>,
    /// The file with the token of the admin service, of at least 32 characters. Defaults to none.
    pub token_file: Option<PathBuf>,
    /// Further hosts that the admin service accepts. Defaults to none.
    pub hosts: Vec<String>,
    /// Whether the admin service and the log reveal keys, such as addresses. Defaults to false: they show digests.
    pub reveal_keys: bool,
    /// Whether the admin service has a page of limits as they act. The default is true.
    pub page: bool,
}

impl Default for OperatorSettings {
    fn default() -> Self {
        Self {
            admin: None,
            token_file: None,
            hosts: Vec::new(),
            reveal_keys: false,
            page: true,
        }
    }
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
            is_gateway: false,
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

    /// Whether there are limits of descriptors.
    pub(crate) fn has_limits(&self) -> bool {
        !self.rules.is_empty() || self.xds.is_some()
    }

    /// Checks a text as one of the files of `rules`: its warnings, or its faults.
    pub(crate) fn check_limits(&self, text: String) -> Result<Vec<String>, String> {
        let rules = self
            .rules_builder()
            .parse([("rules", text)])
            .map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }

    /// Checks a text as one of the files of `auth_rules`.
    pub(crate) fn check_requests(
        &self,
        text: String,
        format: Format,
        store: &Store,
    ) -> Result<Vec<String>, String> {
        let rules = store
            .request_rules()
            .accept_in_flight(self.is_gateway)
            .accept_spend(self.is_gateway)
            .parse(text, format)
            .map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }
}

/// The least number of characters of a secret.
const SHORTEST: usize = 32;

/// Reads the secret, such as the token of the admin service, from the file of an option; `what` is its name in errors.
///
/// # Errors
///
/// When the file cannot be read, or the secret is short.
pub(crate) fn read_secret(file: &Path, option: &str, what: &str) -> Result<String, ServeError> {
    let fault = |text| ServeError(format!("{option}: {}: {text}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
    let secret = text.trim();
    if secret.len() >= SHORTEST {
        return Ok(secret.to_owned());
    }
    let length = counted(secret.len(), "character");
    let text = format!("the {what} has {length}; at least {SHORTEST} are needed");
    Err(fault(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_has_at_least_32_characters() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let read = || read_secret(&file, "--token", "token");
        assert!(read().is_err(), "no file");
        let secret = "0123456789abcdef0123456789abcdef";
        fs::write(&file, format!("{secret}\n")).expect("a file");
        assert_eq!(read().expect("a secret"), secret);
        fs::write(&file, "0123456789\n").expect("a file");
        let error = read().expect_err("short").to_string();
        assert!(error.contains("the token has 10 characters"), "{error}");
    }
}
