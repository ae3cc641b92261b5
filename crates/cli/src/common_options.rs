//! The options that several services share: reloads, TLS, Redis, the admin service, shutdown.
//!
//! The structs have no doc comments: clap would use them as the text of the command that flattens
//! them.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{ArgAction, Args};
use tower_ratelimit::Quota;
use tower_ratelimit_service::{OperatorSettings, StoreSettings, TlsFiles};

#[derive(Debug, Args)]
#[command(next_help_heading = "Rules")]
pub(crate) struct Files {
    /// Reads changed files again, without SIGHUP.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Tls {
    /// The certificate for TLS, in PEM, followed by the intermediate ones. Default: no TLS. Changed
    /// TLS files are read again.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities, in PEM: each client has to present a certificate that one of them signed.
    /// Default: clients present none.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl Tls {
    pub(crate) fn files(self) -> Option<TlsFiles> {
        let mut files = TlsFiles::new(self.tls_cert?, self.tls_key?);
        files.client_ca = self.tls_client_ca;
        Some(files)
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Counts")]
pub(crate) struct Redis {
    /// The Redis in which all instances count together, such as redis://127.0.0.1. Default: this
    /// process counts alone.
    #[arg(long, value_name = "URL", hide_env_values = true)]
    redis: Option<String>,
    /// A file with the password of Redis, instead of in the URL. This file and the next three are
    /// read again for each connection, and on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "redis")]
    redis_password_file: Option<PathBuf>,
    /// The authorities that sign the certificate of Redis, in PEM, for a URL that begins with
    /// rediss. Default: those of the system.
    #[arg(long, value_name = "FILE", requires = "redis")]
    redis_tls_ca: Option<PathBuf>,
    /// The certificate that Redis requires of its clients, in PEM, followed by the intermediate ones.
    /// Default: none.
    #[arg(long, value_name = "FILE", requires_all = ["redis", "redis_tls_key"])]
    redis_tls_cert: Option<PathBuf>,
    /// The key of --redis-tls-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "redis_tls_cert")]
    redis_tls_key: Option<PathBuf>,
    /// A file that keeps the counts across restarts: restored at the start, saved each minute and
    /// at the end. Not with --redis, which keeps them. Default: all keys start afresh.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The prefix of all keys in Redis.
    #[arg(long, value_name = "PREFIX")]
    redis_prefix: Option<String>,
    /// The address of Redis is a proxy that sends each command to the server of its first key, as
    /// Envoy and twemproxy do. Default: it is a server, or of a URL that names a cluster or sentinels.
    #[arg(long, requires = "redis")]
    redis_sharding_proxy: bool,
    /// The deadline of Redis for a decision. Default: 15ms in `serve`, since Envoy waits 20ms by
    /// default; 50ms in `gateway`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    redis_deadline: Option<Duration>,
    /// Is ready (/readyz) only while Redis responds. Default: ready, and --on-failure or
    /// store.on_failure of the rules decides.
    #[arg(long)]
    ready_needs_store: bool,
}

impl Redis {
    pub(crate) fn set(self, store: &mut StoreSettings) {
        store.redis = self.redis;
        store.redis_password_file = self.redis_password_file;
        store.redis_tls.authority = self.redis_tls_ca;
        store.redis_tls.certificate = self.redis_tls_cert.zip(self.redis_tls_key);
        store.redis_prefix = self.redis_prefix;
        store.redis_sharding_proxy = self.redis_sharding_proxy;
        store.redis_deadline = self.redis_deadline.unwrap_or(store.redis_deadline);
        store.ready_needs_store = self.ready_needs_store;
        store.state = self.state;
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Listeners")]
pub(crate) struct Drain {
    /// How long new requests are accepted after SIGTERM at most, so that callers can notice; less
    /// if no connection has been open for a second.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) drain: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Operators")]
pub(crate) struct Operators {
    /// The address of the admin service, for operators and `top`; off is no such service. An
    /// address that other machines can reach needs --admin-token-file.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6070")]
    admin: OrOff,
    /// A file with the token for operators, of at least 32 characters.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// A further host name that the admin service accepts.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    admin_host: Vec<String>,
    /// Whether the admin service has a page of limits as they act.
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    admin_page: bool,
    /// Reveals keys, such as addresses, to operators and in the log. Default: digests.
    #[arg(long)]
    reveal_keys: bool,
}

impl Operators {
    pub(crate) fn settings(self) -> OperatorSettings {
        let mut settings = OperatorSettings::default();
        settings.admin = self.admin.0;
        settings.token_file = self.admin_token_file;
        settings.hosts = self.admin_host;
        settings.reveal_keys = self.reveal_keys;
        settings.page = self.admin_page;
        settings
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is on or off".to_owned()),
    }
}

/// The address of a service, unless it is off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrOff(pub(crate) Option<SocketAddr>);

impl FromStr for OrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => address(text).map(|address| Self(Some(address))),
        }
    }
}

/// An address and a port. `:8000` and `8000` are the port on all addresses, as in nginx.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let local = text.strip_prefix("localhost:");
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = match local {
        Some(port) if is_port(port) => port.parse().ok().map(|port| ([127, 0, 0, 1], port).into()),
        _ if is_port(port) => port.parse().ok().map(|port| ([0, 0, 0, 0], port).into()),
        _ => text.parse().ok(),
    };
    parsed.ok_or_else(|| {
        "an address is such as 127.0.0.1:8000, [::1]:8000, localhost:8000, or :8000 for all addresses"
            .to_owned()
    })
}

/// A time such as 15ms or 5s; 0 is 0s.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") {
        return Ok(Duration::ZERO);
    }
    // The periods of quotas have the same syntax.
    let quota: Result<Quota, _> = format!("1/{text}").parse();
    quota
        .map(|quota| quota.period())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_are_written_as_for_other_servers() {
        for (text, expected) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("[::1]:8000", "[::1]:8000"),
            (":8000", "0.0.0.0:8000"),
            ("8000", "0.0.0.0:8000"),
            ("localhost:8000", "127.0.0.1:8000"),
        ] {
            assert_eq!(
                address(text).map(|address| address.to_string()),
                Ok(expected.to_owned())
            );
        }
        for wrong in [
            "",
            ":",
            "localhost",
            "localhost:",
            "localhost:x",
            "65536",
            "shop:80",
            "::1:80",
            "127.0.0.1",
        ] {
            assert!(
                address(wrong).is_err_and(|error| error.contains(":8000")),
                "{wrong}"
            );
        }
    }

    use clap::{Arg, Command};

    use crate::program;

    fn options<'c>(arguments: &'c Command, command: &str) -> Vec<&'c Arg> {
        let command = arguments.find_subcommand(command).expect("a command");
        command.get_arguments().collect()
    }

    /// The properties that must be equal.
    fn facts(option: &Arg) -> [String; 5] {
        [
            format!("{:?}", option.get_help()),
            format!("{:?}", option.get_env()),
            format!("{:?}", option.get_value_names()),
            format!("{:?}", option.get_default_values()),
            format!("{:?}", option.get_help_heading()),
        ]
    }

    #[test]
    fn options_of_one_name_are_one_option() {
        let arguments = program();
        let of_serve = options(&arguments, "serve");
        let mut shared = Vec::new();
        for option in options(&arguments, "gateway") {
            let twin = of_serve
                .iter()
                .find(|other| other.get_id() == option.get_id());
            // Their rules and HTTP routes differ.
            let differs = ["rules", "http"].contains(&option.get_id().as_str());
            if let Some(twin) = twin.filter(|_| !differs) {
                assert_eq!(facts(option), facts(twin), "{}", option.get_id());
                shared.push(option.get_id().as_str());
            }
        }
        for expected in [
            "watch",
            "redis",
            "redis_deadline",
            "tls_cert",
            "admin",
            "drain",
            "log_level",
        ] {
            assert!(
                shared.contains(&expected),
                "{expected} is not in both: {shared:?}"
            );
        }
    }
}
