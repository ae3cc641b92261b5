//! The arguments of the program.

use clap::{Parser, Subcommand};

use crate::{check::Check, replay::Replay};

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
