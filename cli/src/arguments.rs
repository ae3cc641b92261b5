//! The command line.

use clap::{Parser, Subcommand};

use crate::{check::Check, replay::Replay};

/// Limits of tower-ratelimit: check rule files, explain quotas, try both on access logs, and serve
/// them.
#[derive(Debug, Parser)]
#[command(name = "tower-ratelimit", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checks rule files. With --request, explains which rules apply to it.
    ///
    /// Exit codes: 0 without faults, 1 with faults, 2 for wrong arguments and unreadable files.
    Check(Box<Check>),
    /// Replays access logs against limits before they are in force.
    ///
    /// Exit codes: 0 on success, 1 if no line could be read, 2 for wrong arguments and files that
    /// cannot be opened, 3 if a larger share is limited than --fail-above allows.
    Replay(Box<Replay>),
    /// Serves limits to Envoy and other proxies, by rule files of Envoy's reference service.
    ///
    /// SIGTERM drains and stops the service, SIGHUP reads the files again. Each option can be set
    /// by an environment variable, such as TOWER_RATELIMIT_GRPC. Exit codes: 0 after a signal, 2
    /// for wrong arguments and files.
    #[cfg(feature = "serve")]
    Serve(Box<crate::serve::Serve>),
    /// Serves limits to Envoy as a drop-in for its reference service, by the same environment
    /// variables.
    ///
    /// RUNTIME_ROOT, GRPC_PORT, REDIS_URL and so on; the page on the service lists them. Changed
    /// files are read again. Exit codes as for `serve`.
    #[cfg(feature = "serve")]
    Envoy,
    /// Checks whether a service is ready: exits with 0 if it is, else with 1.
    #[cfg(feature = "serve")]
    Healthcheck(crate::healthcheck::Healthcheck),
    /// Forwards requests to a server, and limits them by rule files.
    ///
    /// SIGTERM drains and stops the gateway, SIGHUP reads the files again. Each option can be set
    /// by an environment variable, such as TOWER_RATELIMIT_UPSTREAM. Exit codes: 0 after a signal,
    /// 2 for wrong arguments and files.
    #[cfg(feature = "serve")]
    Gateway(Box<crate::gateway::Gateway>),
    /// Lists the keys that a service denies most often.
    #[cfg(feature = "serve")]
    Top(crate::top::Top),
    /// Prints the JSON Schema of rule files, for editors.
    Schema,
    /// Explains what a quota allows, such as "100/minute burst 200".
    Explain {
        /// The quota, with or without quotes.
        #[arg(required = true)]
        quota: Vec<String>,
    },
}
