//! The arguments of the program.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_ratelimit::rules::Format;

/// Rule files of tower-ratelimit: checks them, and says what they do.
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
    /// Files, or directories of *.yaml, *.yml, *.json and *.toml; all of them are one list of rules.
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
