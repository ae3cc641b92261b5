//! The arguments of `check`.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, ValueEnum};
use tower_ratelimit::rules::Format;

use crate::output::OutputFormat;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Files, or directories of *.yaml, *.yml, *.json and *.toml; together they are one list of
    /// rules. Files with a domain are those of Envoy's rate limit service.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A request, such as 'POST /api/login'. Keys that the application registers are unavailable
    /// here, and requests have no route.
    #[arg(long, value_name = "METHOD PATH")]
    pub(crate) request: Option<String>,
    /// A header of the request; may be repeated.
    #[arg(long = "header", value_name = "NAME:VALUE", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// The other end of the connection.
    #[arg(long, value_name = "ADDRESS", default_value = "192.0.2.1")]
    pub(crate) peer: IpAddr,
    /// The time of the request, such as 2026-11-21T03:00Z or 2026-11-21T08:30+05:30. Default: now.
    #[arg(long, value_name = "TIME", requires = "request")]
    pub(crate) at: Option<String>,
    /// The request is authenticated.
    #[arg(long, requires = "request")]
    pub(crate) authenticated: bool,
    /// Reveals keys, such as addresses.
    #[arg(long, requires = "request")]
    pub(crate) reveal_keys: bool,
    /// A recorded response to the request, as `curl -i` prints it, or its body alone: explains what
    /// rules with `spend` charge for it, beginning with full quotas.
    #[arg(long, value_name = "FILE", requires = "request")]
    pub(crate) response: Option<PathBuf>,
    /// A descriptor of Envoy's protocol, such as rl foo=bar,baz=x: explains its limit. May be
    /// repeated: all descriptors belong to one request, and have one domain.
    #[cfg(feature = "serve")]
    #[arg(long, value_names = ["DOMAIN", "KEY=VALUE,..."], num_args = 2, conflicts_with = "request")]
    pub(crate) descriptor: Vec<String>,
    /// Rejects extensions that Envoy's rate limit service does not know.
    #[cfg(feature = "serve")]
    #[arg(long)]
    pub(crate) strict_envoy: bool,
    /// Allows a domain of Envoy's rate limit service in several files.
    #[cfg(feature = "serve")]
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// The files in force: lists the changes by a reload.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Vec<PathBuf>,
    /// Exits with 1 for warnings, too.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// The format of the files. Default: by their names.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<FileFormat>,
    /// The format of the output: text for people, JSON for programs, or annotations of a GitHub
    /// workflow.
    #[arg(long, value_name = "HOW", default_value = "text")]
    pub(crate) output: OutputFormat,
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
