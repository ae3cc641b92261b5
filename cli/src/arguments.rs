//! The arguments of the program.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_ratelimit::{Quota, rules::Format};

use crate::replay::Spread;

/// Limits of tower-ratelimit: checks rule files, explains quotas, and tries both on access logs.
#[derive(Debug, Parser)]
#[command(name = "tower-ratelimit", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checks rule files; with --request, says which rules apply to it and why.
    ///
    /// Exit codes: 0 if all is well, 1 if there are faults, 2 for wrong arguments and files that
    /// cannot be read.
    Check(Box<Check>),
    /// Decides the requests of access logs by limits that are not in force yet.
    ///
    /// Exit codes: 0 if all is well, 1 if no line could be read, 2 for wrong arguments and files that
    /// cannot be opened, 3 if more was limited than --fail-above allows.
    Replay(Box<Replay>),
    /// Serves limits to Envoy and others, by rule files of Envoy's reference service.
    ///
    /// SIGTERM ends it when the last request is answered, SIGHUP has it read the files again. Each option can be
    /// set by an environment variable, such as TOWER_RATELIMIT_GRPC. Exit codes: 0 if it was told to end, 2 for
    /// wrong arguments and files.
    #[cfg(feature = "serve")]
    Serve(Box<crate::serve::Serve>),
    /// Serves limits to Envoy in place of its reference service, by that one's own environment variables.
    ///
    /// RUNTIME_ROOT, GRPC_PORT, REDIS_URL and so on; the page on the service lists them. Files are read again when
    /// they change. Exit codes as those of `serve`.
    #[cfg(feature = "serve")]
    Envoy,
    /// Asks a service whether it is ready: exits with 0 if it is, else with 1.
    #[cfg(feature = "serve")]
    Healthcheck(crate::healthcheck::Healthcheck),
    /// Hands requests on to a server, and limits them by rule files.
    ///
    /// SIGTERM ends it when the last request is answered, SIGHUP has it read the files again. Each option can be
    /// set by an environment variable, such as TOWER_RATELIMIT_UPSTREAM. Exit codes: 0 if it was told to end, 2 for
    /// wrong arguments and files.
    #[cfg(feature = "serve")]
    Gateway(Box<crate::gateway::Gateway>),
    /// Shows the keys that a service denies most often, as `top` shows processes.
    #[cfg(feature = "serve")]
    Top(crate::top::Top),
    /// Prints the JSON Schema of rule files, for editors.
    Schema,
    /// Says in words and numbers what a quota promises, such as "100/minute burst 200".
    Explain {
        /// The quota; quotes around it can be left out.
        #[arg(required = true)]
        quota: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Files, or directories of *.yaml, *.yml, *.json and *.toml; all of them are one list of rules. Those with a
    /// domain are files of Envoy's rate limit service.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A request, such as 'POST /api/login'. Keys that the application registers are unavailable
    /// here, and no request has a route.
    #[arg(long, value_name = "METHOD PATH")]
    pub(crate) request: Option<String>,
    /// A header of the request; may be repeated.
    #[arg(long = "header", value_name = "NAME:VALUE", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// The other end of the connection.
    #[arg(long, value_name = "ADDRESS", default_value = "192.0.2.1")]
    pub(crate) peer: IpAddr,
    /// When the request comes, such as 2026-11-21T03:00Z or 2026-11-21T08:30+05:30. Default: now.
    #[arg(long, value_name = "TIME", requires = "request")]
    pub(crate) at: Option<String>,
    /// The request is authenticated.
    #[arg(long, requires = "request")]
    pub(crate) authenticated: bool,
    /// Shows keys, which are addresses and the like.
    #[arg(long, requires = "request")]
    pub(crate) reveal_keys: bool,
    /// A descriptor as Envoy sends it, such as rl foo=bar,baz=x: says which limit of a file of Envoy's rate limit
    /// service it has, and why. May be repeated: then all are of one request, and have one domain.
    #[cfg(feature = "serve")]
    #[arg(long, value_names = ["DOMAIN", "KEY=VALUE,..."], num_args = 2, conflicts_with = "request")]
    pub(crate) descriptor: Vec<String>,
    /// Refuses what Envoy's rate limit service does not know.
    #[cfg(feature = "serve")]
    #[arg(long)]
    pub(crate) strict_envoy: bool,
    /// Lets a domain of Envoy's rate limit service stand in several files.
    #[cfg(feature = "serve")]
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// The files as they are in force: says what a reload would change.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Vec<PathBuf>,
    /// Warnings are faults.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// The format of the files, instead of that of their names.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<FileFormat>,
    /// How to tell: for readers, for programs, or as annotations of a GitHub workflow.
    #[arg(long, value_name = "HOW", default_value = "text")]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Logs in any order, also compressed by gzip, of one server or of several; their lines are put in
    /// order by time. - is the standard input.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A quota to try, such as "100/minute burst 200"; may be repeated, each counts for itself.
    #[arg(long, value_name = "QUOTA")]
    pub(crate) quota: Vec<Quota>,
    /// Rule files to try, as `check` takes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// The key that quotas count by: ip (IPv6 by /64), ip/48, user, path, field:NAME, or several with +.
    #[arg(long, value_name = "KEY", default_value = "ip")]
    pub(crate) key: String,
    /// The format of the lines. Told by each line itself: JSON begins with a brace.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) format: LogFormat,
    /// The field of JSON lines that has the time; a dot is an object in an object.
    #[arg(long, value_name = "NAME")]
    pub(crate) time_field: Option<String>,
    /// The field of JSON lines that has the client's address.
    #[arg(long, value_name = "NAME")]
    pub(crate) ip_field: Option<String>,
    /// The requests that count, such as 'POST /login' or '/api/**'.
    #[arg(long = "match", value_name = "METHOD PATH")]
    pub(crate) matching: Option<String>,
    /// The responses that count, such as 401 or 4xx: the others are refunded.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) count_if: Vec<String>,
    /// Addresses and networks of your proxies: the client is then the one in X-Forwarded-For.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) trust_proxies: Vec<String>,
    /// How much later than others a line may be written that came earlier.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) reorder: String,
    /// When requests came of which the log has whole seconds only.
    #[arg(long, value_name = "HOW", default_value = "even")]
    pub(crate) spread: Spread,
    /// How many keys to name that were limited most.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    /// Says what keys ask for, and a quota that nearly all of them would have stayed under.
    #[arg(long)]
    pub(crate) suggest: bool,
    /// Tries up to twelve limits around the first quota.
    #[arg(long)]
    pub(crate) what_if: bool,
    /// Writes a page with pictures.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Writes JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Names keys by a hash, another one in each run.
    #[arg(long)]
    pub(crate) hash_keys: bool,
    /// Exits with 3 if a larger share of requests is limited, such as 0.1%.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) fail_above: Option<String>,
    /// How many keys are remembered; beyond, peaks are those of a sample.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub(crate) max_keys: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Auto,
    Combined,
    Common,
    NginxJson,
    Caddy,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    Github,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FileFormat {
    Yaml,
    Json,
    Toml,
}

impl From<FileFormat> for Format {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Yaml => Self::Yaml,
            FileFormat::Json => Self::Json,
            FileFormat::Toml => Self::Toml,
        }
    }
}
